"""Where a target may be asked, and how lines and typical inputs lie there."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput
from unrelu.lines.survey import SurveyLine

__all__ = ["Domain", "as_domain"]

_EDGE = 1e-3
"""Small coordinates over large ones, of points beside an edge of the orthant: off the edge, as
a hyperplane may contain it. Part of the half-width of a box that lines keep away from its
faces, for the same reason."""


@dataclasses.dataclass(frozen=True)
class Domain:
    """All of space, the non-negative orthant, or a box.

    Attributes
    ----------
    kind
        ``"all"``, ``"nonnegative"`` or ``"box"``.
    low, high
        Corners, ``(d,)``; infinite where there is no bound.
    """

    kind: str
    low: FloatArray
    high: FloatArray

    @property
    def dimension(self) -> int:
        """Number of inputs, d."""
        return len(self.low)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray] | None:
        """Corners of the box, or None where all points may be asked."""
        return None if self.kind == "all" else (self.low, self.high)

    @property
    def distribution(self) -> str:
        """The distribution of :meth:`draw`, in words."""
        return {
            "all": "standard Gaussian",
            "nonnegative": "absolute Gaussian",
            "box": "uniform in the box",
        }[self.kind]

    @property
    def scale(self) -> float:
        """Typical length of a typical input."""
        if self.kind == "box":
            return float(np.linalg.norm(self.high - self.low))
        return math.sqrt(self.dimension)

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw typical inputs, ``(n, d)``."""
        if self.kind == "box":
            return np.asarray(rng.uniform(self.low, self.high, size=(n, self.dimension)))
        x = rng.standard_normal((n, self.dimension))
        return np.abs(x) if self.kind == "nonnegative" else x

    def draw_wide(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw typical inputs, every other one farther out.

        In a box these have coordinates on its faces: a hyperplane that cuts off
        a corner is seen there first. Else they are up to eight times as long: a
        unit that typical inputs hardly switch on shows there. In the orthant half of these
        have a few large coordinates only: a hyperplane through the corner may keep to one
        edge.
        """
        x = self.draw(n, rng)
        wide = x[::2]
        if self.kind == "box":
            side = rng.integers(3, size=wide.shape)
            x[::2] = np.where(side == 0, self.low, np.where(side == 1, self.high, wide))
        else:
            x[::2] = wide * np.exp(rng.uniform(0.0, np.log(8.0), size=(len(wide), 1)))
        if self.kind == "nonnegative":
            few = rng.uniform(size=(len(x[::4]), 1))  # of each, the part that stays large
            x[::4] *= np.where(rng.uniform(size=x[::4].shape) < few, 1.0, _EDGE)
        return x

    def vertices(self) -> FloatArray:
        """Return d points of the orthant, each beside another half-axis, as long as inputs are.

        Theorem 2's half-axes meet a hyperplane through the corner nowhere else. But if it cuts
        the orthant, its normal has entries of both signs, so that it has some of these points
        on either side.
        """
        if self.kind != "nonnegative":
            return np.empty((0, self.dimension))
        return np.asarray(self.scale * ((1.0 - _EDGE) * np.eye(self.dimension) + _EDGE))

    def line(self, rng: np.random.Generator, reach: float) -> SurveyLine:
        """Draw a line through a typical input.

        ``reach`` limits an unbounded line, in units of its scale.
        """
        base, other = self.draw(2, rng)
        if self.kind == "box":  # through two typical inputs: most random chords are short
            return self.through(base, other, reach)
        # In the orthant the direction is positive: a ray from the boundary to infinity.
        return self.through(base, base + other, reach)

    def through(self, a: FloatArray, b: FloatArray, reach: float) -> SurveyLine:
        """Return the line through two points, as far as the domain goes.

        In a box points on its faces are moved a little inwards: on a line along a face
        there would be no room for steps across it.
        """
        if self.kind == "box":
            inset = 0.5 * _EDGE * (self.high - self.low)
            a, b = (np.clip(p, self.low + inset, self.high - inset) for p in (a, b))
        direction = (b - a) / np.linalg.norm(b - a)
        if self.kind == "all":
            return SurveyLine(a, direction, -reach * self.scale, reach * self.scale, self.scale)
        return self.chord(a, direction, reach)

    def chord(self, base: FloatArray, direction: FloatArray, reach: float) -> SurveyLine:
        """Return the part of a line inside the domain."""
        with np.errstate(divide="ignore", invalid="ignore"):
            to_low = np.where(direction != 0, (self.low - base) / direction, -np.inf)
            to_high = np.where(direction != 0, (self.high - base) / direction, np.inf)
        start = float(np.minimum(to_low, to_high).max())
        stop = float(np.maximum(to_low, to_high).min())
        limit = reach * math.sqrt(self.dimension)
        if stop > limit and math.isfinite(start):  # unbounded ahead: orders of magnitude count
            return SurveyLine(base + start * direction, direction, 0.0, limit, self.scale)
        if start < -limit:
            return SurveyLine(base + stop * direction, -direction, 0.0, limit, self.scale)
        # Step a hair inside, so that rounding never leaves the box.
        inset = 1e-12 * (stop - start)
        return SurveyLine(base, direction, start + inset, stop - inset, math.inf)

    def axes(self, reach: float) -> list[SurveyLine]:
        """Return the d half-axes of the orthant: every hyperplane that meets it, meets one."""
        if self.kind != "nonnegative":
            return []
        limit = reach * self.scale
        return [
            SurveyLine(np.zeros(self.dimension), axis, 0.0, limit, self.scale)
            for axis in np.eye(self.dimension)
        ]


def as_domain(domain: str | tuple[ArrayLike, ArrayLike], d: int) -> Domain:
    """Check a caller's domain: ``"all"``, ``"nonnegative"`` or ``(low, high)``."""
    if isinstance(domain, str):
        if domain == "all":
            return Domain("all", np.full(d, -np.inf), np.full(d, np.inf))
        if domain == "nonnegative":
            return Domain("nonnegative", np.zeros(d), np.full(d, np.inf))
        raise InvalidInput(
            f"domain must be 'all', 'nonnegative' or a pair (low, high), got {domain!r}"
        )
    try:
        low, high = domain
        corners = [np.array(np.broadcast_to(np.asarray(c, float), (d,))) for c in (low, high)]
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"a box is a pair (low, high) of numbers or of arrays of length {d}: {error}"
        ) from error
    if not (np.isfinite(corners[0]).all() and np.isfinite(corners[1]).all()):
        raise InvalidInput("the corners of a box must be finite")
    if not (corners[0] < corners[1]).all():
        raise InvalidInput("every lower bound of the box must lie below the upper one")
    return Domain("box", corners[0], corners[1])
