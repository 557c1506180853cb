"""Find the facets of a convex region by asking on which side of it points lie.

A ray from an inside point leaves the region through one facet. Bisection gives
the crossing, crossings on lines beside it a rough normal, and crossings far
apart along that normal the hyperplane to machine precision. Further rays are
asked just before the known facets' crossing: "outside" there means a facet that
is not known yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.lines.boundary import GROWTH, halve_brackets
from unrelu.thresholds.config import EPS, ThresholdConfig
from unrelu.thresholds.slab import tangent_basis

__all__ = ["FacetSearch", "Polyhedron"]

Outside = Callable[[FloatArray], BoolArray]

TOLERANCES = tuple(EPS ** (k / 16) for k in (10, 7, 4))
"""Distances at which a facet is verified, finest first: 2e-10 to 1e-4. A coarser one is tried only
after every offset failed the finer: a bend that it would hide is left behind by shorter offsets,
what the target's arithmetic blurs is not."""


@dataclasses.dataclass(frozen=True)
class Polyhedron:
    """``{x : directions @ x <= thresholds}``; ``directions`` is ``(k, n)``."""

    directions: FloatArray
    thresholds: FloatArray

    def crossings(self, origin: FloatArray, rays: FloatArray) -> FloatArray:
        """Return how far each ray ``(b, n)`` goes before each facet, ``(b, k)``."""
        speed = rays @ self.directions.T
        gap = self.thresholds - self.directions @ origin
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(speed > 0, gap / speed, np.inf))


class FacetSearch:
    """Facets of the region around ``center``, found one ray at a time.

    Parameters
    ----------
    outside
        Answers ``(m, n)`` points with ``(m,)`` booleans.
    center
        A point inside.
    expect
        Told how many facets there will be, before the next one is measured.
    """

    def __init__(
        self,
        outside: Outside,
        center: FloatArray,
        *,
        rng: np.random.Generator,
        config: ThresholdConfig,
        expect: Callable[[int], None] = lambda facets: None,
    ) -> None:
        self.outside = outside
        self.expect = expect
        self.center = center
        self.rng = rng
        self.config = config
        self.n = len(center)
        self.radius = config.radius * np.sqrt(self.n)
        self.known = Polyhedron(np.empty((0, self.n)), np.empty(0))
        self.precision: list[float] = []
        # Where each facet was measured, and how far apart: its error grows beyond.
        self._anchors = np.empty((0, self.n))
        self._spreads: list[float] = []
        self.unresolved = 0

    def search(self) -> int:
        """Follow random rays until ``quiet_rays`` in a row met no unknown facet.

        Returns the number of rays since the last one that met one; 0 at ``most_facets``
        facets, or where a boundary is not flat.
        """
        silence, quiet = 0, self.config.quiet_rays
        while silence < quiet:
            # Few at a time while facets are many: each that is learned saves others a query.
            batch = min(max(silence, self.config.checks), quiet - silence)
            directions = self.rng.standard_normal((batch, self.n))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            learned = self._follow(directions)
            if learned is None:
                return 0
            silence = 0 if learned else silence + batch
        return silence

    def search_facets(self) -> bool | None:
        """Aim rays at every known facet; learn those that lie just before one.

        Returns whether any was learned; None at ``most_facets`` facets, or where a boundary
        is not flat.
        """
        targets = [self.points_on(i, self.config.checks) for i in range(len(self.precision))]
        rays = np.concatenate([*targets, np.empty((0, self.n))]) - self.center
        length = np.linalg.norm(rays, axis=1, keepdims=True)
        return self._follow((rays / length)[length[:, 0] > 0])

    def points_on(self, facet: int, count: int) -> FloatArray:
        """Gaussian points projected to a facet, those that no other facet cuts off."""
        w, t = self.known.directions, self.known.thresholds
        points = self.rng.standard_normal((4 * count, self.n))
        points -= np.outer(points @ w[facet] - t[facet], w[facet])
        others = np.arange(len(t)) != facet
        free = (points @ w[others].T < t[others]).all(axis=1)
        return np.asarray(points[free][:count])

    def error_at(self, points: FloatArray) -> FloatArray:
        """How far each known facet may be off at ``points`` ``(m, n)``: ``(m, k)``."""
        lever = np.linalg.norm(points[:, None] - self._anchors, axis=2)
        return np.asarray(np.array(self.precision) * (1.0 + lever / np.array(self._spreads)))

    def _reach(self, rays: FloatArray) -> FloatArray:
        """How far each ray may go and must still be inside, ``(b,)``."""
        if len(self.precision) == 0:
            return np.full(len(rays), self.radius)
        distances = self.known.crossings(self.center, rays)
        facet = distances.argmin(axis=1)
        rows = np.arange(len(rays))
        nearest = np.minimum(distances[rows, facet], self.radius)
        met = nearest < self.radius
        end = self.center + nearest[:, None] * rays
        speed = np.einsum("bn,bn->b", rays, self.known.directions[facet])
        doubt = self.error_at(end)[rows, facet] / np.where(met, speed, 1.0)
        before = nearest - np.maximum(np.sqrt(EPS) * nearest, doubt)
        return np.asarray(np.where(met, np.maximum(before, 0.0), self.radius))

    def _follow(self, directions: FloatArray) -> bool | None:
        """Ask each ray just before the known facets; learn where it is outside already."""
        open_rays = np.arange(len(directions))
        learned = False
        while len(open_rays):
            reach = self._reach(directions[open_rays])
            out = self.outside(self.center + reach[:, None] * directions[open_rays])
            open_rays, reach = open_rays[out], reach[out]
            if len(open_rays) == 0:
                break
            learned = True
            self.expect(len(self.precision) + 1)
            if not self._learn(directions[open_rays[0]], float(reach[0])):
                self.unresolved += 1
            if self.unresolved or len(self.precision) >= self.config.most_facets:
                return None
            open_rays = open_rays[1:]
        return learned

    def _learn(self, ray: FloatArray, reach: float) -> bool:
        """Add the facet through which ``ray`` leaves before ``reach``."""
        cfg = self.config
        low, high = self._bisect(
            self.center[None], ray[None], np.zeros(1), np.array([reach]), np.sqrt(EPS)
        )
        base = self.center + 0.5 * (low[0] + high[0]) * ray
        finest = min(self.precision, default=TOLERANCES[0])
        for tolerance in (value for value in TOLERANCES if value >= finest):
            spread = cfg.spacing
            for _ in range(cfg.tries + 1):
                rough = self._rough_normal(base, ray, spread / GROWTH**3)
                if rough is not None:
                    plane = self._plane(base, rough, spread)
                    if plane is not None and self._verify(*plane, tolerance):
                        return self._add(*plane, tolerance)
                spread /= GROWTH
        return False

    def _bisect(
        self,
        points: FloatArray,
        steps: FloatArray,
        low: FloatArray,
        high: FloatArray,
        finest: float | FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Halve the brackets of lines that leave the region."""
        return halve_brackets(lambda x, _: ~self.outside(x), points, steps, low, high, finest)

    def _add(
        self, normal: FloatArray, origin: FloatArray, spread: float, precision: float
    ) -> bool:
        """Keep a facet; in place of one that it coincides with, if it is the finer."""
        w, t = self.known.directions, self.known.thresholds
        precisions, spreads = self.precision, self._spreads
        anchors = self._anchors
        if len(precisions):
            ends = origin + spread * tangent_basis(normal).T
            points = np.vstack([origin, ends])
            apart = np.abs(points @ w.T - t)
            allowed = self.error_at(points) + precision
            same = np.flatnonzero((apart <= allowed).all(axis=0))
            finer = [i for i in same if precision / spread < precisions[i] / spreads[i]]
            if len(same) and not finer:
                return False  # the facet is known, and this ray found it elsewhere
            keep = ~np.isin(np.arange(len(t)), finer)
            w, t, anchors = w[keep], t[keep], anchors[keep]
            precisions = [p for p, kept in zip(precisions, keep, strict=True) if kept]
            spreads = [p for p, kept in zip(spreads, keep, strict=True) if kept]
        self.known = Polyhedron(np.vstack([w, normal]), np.append(t, normal @ origin))
        self._anchors = np.vstack([anchors, origin])
        self.precision, self._spreads = [*precisions, precision], [*spreads, spread]
        return True

    def _rough_normal(self, base: FloatArray, ray: FloatArray, offset: float) -> FloatArray | None:
        """Slopes of the boundary beside ``base``, measured along the ray."""
        cfg = self.config
        tangents = tangent_basis(ray).T
        points = base + offset * tangents
        steps = np.broadcast_to(ray, points.shape)
        m = len(points)
        half = np.full(m, 2.0 * offset)
        pending = np.arange(m)
        for _ in range(cfg.tries + 2):  # brackets of 2, 8, ..., 2048 offsets: slopes up to 2048
            width = half[pending, None]
            below = self.outside(points[pending] - width * steps[pending])
            above = self.outside(points[pending] + width * steps[pending])
            pending = pending[below | ~above]
            if len(pending) == 0:
                break
            half[pending] *= GROWTH
        else:
            return None
        # All coordinates together may be wrong by half of what the bracket of a plane allows.
        finest = cfg.spacing * offset / np.sqrt(self.n)
        low, high = self._bisect(points, steps, -half, half, finest)
        slopes = 0.5 * (low + high) / offset
        normal = ray - slopes @ tangents
        return np.asarray(normal / np.linalg.norm(normal))

    def _plane(
        self, base: FloatArray, rough: FloatArray, spread: float
    ) -> tuple[FloatArray, FloatArray, float] | None:
        """Hyperplane through n crossings found along the rough normal.

        Returns its normal, a point of it, and how far apart the crossings were.
        """
        cfg = self.config
        tangents = np.vstack([np.zeros(self.n), tangent_basis(rough).T])
        offsets = np.full(self.n, spread)
        pending = np.arange(self.n)
        # Each line may go either way, or less far, where another facet is near.
        for attempt in range(2 * cfg.tries + 2):
            points = base + offsets[pending, None] * tangents[pending]
            half = cfg.spacing * np.abs(offsets[pending])[:, None]
            clear = ~self.outside(points - half * rough) & self.outside(points + half * rough)
            pending = pending[~clear]
            if len(pending) == 0:
                break
            offsets[pending] *= -1.0 if attempt % 2 == 0 else 1.0 / GROWTH
        else:
            return None
        points = base + offsets[:, None] * tangents
        half = cfg.spacing * np.abs(offsets)
        steps = np.broadcast_to(rough, points.shape)
        finest = EPS * np.linalg.norm(points, axis=1)  # the rounding of a crossing itself
        low, high = self._bisect(points, steps, -half, half, finest)
        crossing = 0.5 * (low + high)
        slopes = (crossing[1:] - crossing[0]) / offsets[1:]
        normal = rough - slopes @ tangents[1:]
        normal = np.asarray(normal / np.linalg.norm(normal))
        origin = base + crossing[0] * rough
        return normal, origin, float(np.abs(offsets[1:]).min(initial=spread))

    def _verify(
        self, normal: FloatArray, origin: FloatArray, spread: float, tolerance: float
    ) -> bool:
        """Whether points of the plane change sides within ``tolerance``."""
        mix = self.rng.standard_normal((self.config.checks, self.n))
        mix -= np.outer(mix @ normal, normal)
        length = np.linalg.norm(mix, axis=1, keepdims=True)
        mix *= spread / np.where(
            length > np.sqrt(EPS), length, np.inf
        )  # one input: nothing beside
        points = origin + mix
        return bool(
            self.outside(points + tolerance * normal).all()
            and not self.outside(points - tolerance * normal).any()
        )
