"""Whom to ask, and where: a target's labels, and subspaces of its inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.record import Remembered
from unrelu.lines.domains import Domain
from unrelu.oracles.base import Oracle

__all__ = ["Chart", "Target"]

WIDE = 3.0
"""Inputs up to so many times a typical one's norm are asked."""


class Target:
    """A target's labels as the numbers 0, 1, ... in the order of their names.

    Attributes
    ----------
    names
        The labels seen so far, as the target gives them; label i is ``names[i]``.
    examples
        The first input of each, ``(m, d)``.
    """

    def __init__(self, oracle: Remembered, domain: Domain) -> None:
        self.oracle, self.domain = oracle, domain
        self._asked: Oracle = oracle
        self.names: list[float] = []
        self.examples = np.empty((0, domain.dimension))

    def ask(self, x: FloatArray) -> IntArray:
        """Return the labels of ``x`` ``(n, d)``."""
        raw = self._asked(x)[:, 0]
        for name in np.setdiff1d(raw, self.names):
            self.names.append(float(name))
            first = x[int(np.argmax(raw == name))]
            self.examples = np.concatenate([self.examples, first[None]])
        return self.code(raw)

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Ask inside without keeping answers: for bisections too many to keep.

        Their ends, which imply the rest, go to :meth:`keep`.
        """
        self._asked = self.oracle.inner
        try:
            yield
        finally:
            self._asked = self.oracle

    def keep(self, x: FloatArray, labels: IntArray) -> None:
        """Add labels of inputs ``(n, d)`` to the record of the run."""
        names = np.asarray(self.names)[labels]
        self.oracle.record.add(x, names[:, None], self.oracle.meter.stage_name)

    def code(self, raw: FloatArray) -> IntArray:
        """Return the numbers of labels that were seen before."""
        order = np.argsort(self.names)
        return np.asarray(order[np.searchsorted(np.asarray(self.names)[order], raw)], np.intp)

    def may_ask(self, x: FloatArray) -> BoolArray:
        """Tell which rows of ``x`` lie in the domain."""
        if self.domain.kind == "all":
            return np.ones(len(x), dtype=bool)
        return np.asarray(((x >= self.domain.low) & (x <= self.domain.high)).all(axis=1))


@dataclasses.dataclass(frozen=True)
class Chart:
    """A subspace of the inputs: ``x = origin + y @ rows``, typical for normal y.

    Attributes
    ----------
    target
        Whom to ask.
    origin
        ``(d,)``.
    rows
        Orthogonal, of equal length, ``(s, d)``.
    identity
        Whether coordinates are the inputs themselves.
    """

    target: Target
    origin: FloatArray
    rows: FloatArray
    identity: bool = False

    @classmethod
    def whole(cls, target: Target) -> Chart:
        """Return all of the inputs."""
        d = target.domain.dimension
        return cls(target, np.zeros(d), np.eye(d), identity=True)

    @classmethod
    def through(
        cls, target: Target, points: FloatArray, s: int, rng: np.random.Generator
    ) -> Chart:
        """Return a random subspace of s dimensions that holds some points ``(n, d)``, n <= s."""
        domain, d = target.domain, target.domain.dimension
        box = domain.kind == "box"
        origin = 0.5 * (domain.low + domain.high) if box else np.zeros(d)
        spread = domain.draw(s, rng) - origin
        spread[: len(points)] = points - origin
        rows = np.linalg.qr(spread.T)[0].T
        typical = float(np.sqrt((domain.draw(64, rng) - origin).var(axis=0).sum()))
        return cls(target, origin, rows * typical / np.sqrt(s))

    @property
    def scale(self) -> float:
        """Length of a unit of the coordinates, in inputs."""
        return float(np.linalg.norm(self.rows[0]))

    @property
    def size(self) -> float:
        """Norm of a typical point's coordinates, the origin's distance included."""
        return float(np.sqrt(self.dimension) + np.linalg.norm(self.origin) / self.scale)

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw coordinates of typical inputs."""
        if self.identity:
            return self.target.domain.draw(n, rng)
        return rng.standard_normal((n, self.dimension))

    def draw_wide(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw the same, every other one up to WIDE times as far out: rare units switch there."""
        y = self.draw(n, rng)
        y[::2] *= np.exp(rng.uniform(0.0, np.log(WIDE), size=(len(y[::2]), 1)))
        return y

    @property
    def dimension(self) -> int:
        """Number of coordinates, s."""
        return len(self.rows)

    def inputs(self, y: FloatArray) -> FloatArray:
        """Return the inputs that coordinates ``(n, s)`` stand for."""
        return y if self.identity else np.asarray(self.origin + y @ self.rows)

    def coordinates(self, x: FloatArray) -> FloatArray:
        """Return the coordinates of inputs ``(n, d)``, what lies across left out."""
        return np.asarray((x - self.origin) @ self.rows.T / self.scale**2)

    def ask(self, y: FloatArray) -> IntArray:
        """Return labels; -1, and no query, outside of the domain."""
        x = self.inputs(y)
        if self.target.domain.kind == "all":
            return self.target.ask(x)
        allowed = self.target.may_ask(x)
        labels = np.full(len(y), -1, np.intp)
        if allowed.any():
            labels[allowed] = self.target.ask(x[allowed])
        return labels
