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
from unrelu.thresholds.slab import tangent_basis

__all__ = ["FacetConfig", "FacetSearch", "Polyhedron", "bisect_lines"]

Outside = Callable[[FloatArray], BoolArray]


@dataclasses.dataclass(frozen=True)
class FacetConfig:
    """Tolerances of the facet search; lengths in units of the inputs.

    Attributes
    ----------
    radius_factor
        A ray is followed to ``radius_factor * sqrt(n)``. A facet at distance t
        is met at about ``t * sqrt(n) / sqrt(2 log k)``; facets farther than
        this have no Gaussian mass to speak of.
    base_bits
        Bisections for the first crossing, from that radius down to 1e-8.
    probe
        Offset of the lines that give the rough normal: far above the base
        crossing's error, small enough to stay on one facet.
    probe_bits
        Bisections per line for the rough normal, about 1 % per coordinate.
    spread
        Offset of the lines that give the final normal; its error is the
        crossings' error divided by this.
    bracket
        Half-width of the final bracket over the offset: the largest slope that
        the rough normal may be wrong by.
    bits
        Bisections per final line: ``bracket * spread * 2**-bits`` is below the
        rounding of the crossing itself.
    shrink, attempts
        A verification that fails retries with offsets divided by ``shrink``.
    checks
        Points on the new facet verified on both sides.
    tolerances
        Distances from the facet at which they are verified, finest first. A coarser one
        is tried only after every offset failed the finer: a bend that it would hide is
        left behind by shorter offsets, what the target's arithmetic blurs is not.
    margin
        Relative distance before a known crossing at which a ray is asked; more where the
        facet is known less well.
    aimed
        Rays aimed at Gaussian points of each facet, projected to it: where it is not the
        boundary all over, another one almost coincides with it.
    """

    radius_factor: float = 20.0
    base_bits: int = 34
    probe: float = 5e-3
    probe_bits: int = 9
    spread: float = 0.25
    bracket: float = 0.25
    bits: int = 43
    shrink: float = 5.0
    attempts: int = 5
    checks: int = 6
    tolerances: tuple[float, ...] = (1e-10, 1e-7, 1e-4)
    margin: float = 1e-6
    aimed: int = 16


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


def bisect_lines(
    outside: Outside,
    points: FloatArray,
    steps: FloatArray,
    low: FloatArray,
    high: FloatArray,
    bits: int,
) -> tuple[FloatArray, FloatArray]:
    """Halve the brackets of many lines at once, ``bits`` times.

    Line i is ``points[i] + tau * steps[i]``, inside at ``low[i]`` and outside at
    ``high[i]``. Returns the narrowed brackets; one batch per halving.
    """
    low, high = low.copy(), high.copy()
    for _ in range(bits):
        middle = 0.5 * (low + high)
        out = outside(points + middle[:, None] * steps)
        high = np.where(out, middle, high)
        low = np.where(out, low, middle)
    return low, high


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
        config: FacetConfig | None = None,
        expect: Callable[[int], None] = lambda facets: None,
    ) -> None:
        self.outside = outside
        self.expect = expect
        self.center = center
        self.rng = rng
        self.config = FacetConfig() if config is None else config
        self.n = len(center)
        self.radius = self.config.radius_factor * np.sqrt(self.n)
        self.known = Polyhedron(np.empty((0, self.n)), np.empty(0))
        self.precision: list[float] = []
        # Where each facet was measured, and how far apart: its error grows beyond.
        self._anchors = np.empty((0, self.n))
        self._spreads: list[float] = []
        self.unresolved = 0

    def search(self, rays: int, *, quiet: int, most: int) -> int:
        """Test ``rays`` more directions; learn every facet they show.

        Returns the number of rays since the last one that met an unknown
        facet; stops early when it reaches ``quiet``, at ``most`` facets, or
        where a boundary is not flat.
        """
        silence = 0
        while rays > 0 and silence < quiet:
            batch = min(rays, 128, quiet - silence)
            rays -= batch
            directions = self.rng.standard_normal((batch, self.n))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            learned = self._follow(directions, most)
            if learned is None:
                return 0
            silence = 0 if learned else silence + batch
        return silence

    def search_facets(self, *, most: int) -> bool | None:
        """Aim rays at every known facet; learn those that lie just before one.

        Returns whether any was learned; None at ``most`` facets, or where a boundary is
        not flat.
        """
        targets = [self.points_on(i, self.config.aimed) for i in range(len(self.precision))]
        rays = np.concatenate([*targets, np.empty((0, self.n))]) - self.center
        length = np.linalg.norm(rays, axis=1, keepdims=True)
        return self._follow((rays / length)[length[:, 0] > 0], most)

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
        before = nearest - np.maximum(self.config.margin * nearest, doubt)
        return np.asarray(np.where(met, np.maximum(before, 0.0), self.radius))

    def _follow(self, directions: FloatArray, most: int) -> bool | None:
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
            if self.unresolved or len(self.precision) >= most:
                return None
            open_rays = open_rays[1:]
        return learned

    def _learn(self, ray: FloatArray, reach: float) -> bool:
        """Add the facet through which ``ray`` leaves before ``reach``."""
        cfg = self.config
        low, high = bisect_lines(
            self.outside,
            self.center[None],
            ray[None],
            np.zeros(1),
            np.array([reach]),
            cfg.base_bits,
        )
        base = self.center + 0.5 * (low[0] + high[0]) * ray
        finest = min(self.precision, default=cfg.tolerances[0])
        for tolerance in (value for value in cfg.tolerances if value >= finest):
            probe, spread = cfg.probe, cfg.spread
            for _ in range(cfg.attempts):
                rough = self._rough_normal(base, ray, probe)
                if rough is not None:
                    plane = self._plane(base, rough, spread)
                    if plane is not None and self._verify(*plane, tolerance):
                        return self._add(*plane, tolerance)
                probe, spread = probe / cfg.shrink, spread / cfg.shrink
        return False

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
        for _ in range(6):  # brackets of 2, 8, ..., 2048 offsets: slopes up to 2048
            width = half[pending, None]
            below = self.outside(points[pending] - width * steps[pending])
            above = self.outside(points[pending] + width * steps[pending])
            pending = pending[below | ~above]
            if len(pending) == 0:
                break
            half[pending] *= 4.0
        else:
            return None
        low, high = bisect_lines(self.outside, points, steps, -half, half, cfg.probe_bits)
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
        for attempt in range(2 * cfg.attempts):
            points = base + offsets[pending, None] * tangents[pending]
            half = cfg.bracket * np.abs(offsets[pending])[:, None]
            clear = ~self.outside(points - half * rough) & self.outside(points + half * rough)
            pending = pending[~clear]
            if len(pending) == 0:
                break
            offsets[pending] *= -1.0 if attempt % 2 == 0 else 1.0 / cfg.shrink
        else:
            return None
        points = base + offsets[:, None] * tangents
        half = cfg.bracket * np.abs(offsets)
        steps = np.broadcast_to(rough, points.shape)
        low, high = bisect_lines(self.outside, points, steps, -half, half, cfg.bits)
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
        mix *= spread / np.where(length > 1e-9, length, np.inf)  # one input: nothing beside
        points = origin + mix
        return bool(
            self.outside(points + tolerance * normal).all()
            and not self.outside(points - tolerance * normal).any()
        )
