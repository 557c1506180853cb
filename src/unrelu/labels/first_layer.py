"""The first layer of a network that has more layers, from dual points alone.

A unit of the first layer bends the boundary wherever that crosses the unit's hyperplane. A unit of
a later layer does so on one piece of the layers below: its hyperplane there, followed across all
inputs, meets a boundary that is flat. So a hyperplane that two dual points share is one of the
first layer if the boundary bends at it everywhere, which labels tell at places that one chooses.

From a subspace to all inputs: normals on both sides of two such places, measured in all
directions, have the unit's row in their spans.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.labels.boundary import GROWTH, Crossings, find_crossings, locate, measure_normals
from unrelu.labels.charts import Chart
from unrelu.labels.config import TINY
from unrelu.labels.hyperplanes import Duals, Hyperplanes, pair_up
from unrelu.labels.run import LabelsRun
from unrelu.labels.search import ChartSearch
from unrelu.labels.walks import Precision

__all__ = ["FirstLayer"]

PLACES = np.array([-1.0, -0.5, 0.5, 1.0])
"""Steps across a hyperplane at which the boundary is found: two on each side make a line."""


@dataclasses.dataclass(frozen=True)
class _Bends:
    """Where the boundary meets a hyperplane.

    ``turn`` is how much it bends within a step, ``here`` whether at the hyperplane, ``(n,)``.
    """

    at: Crossings
    turn: FloatArray
    here: BoolArray

    def everywhere(self, least: int) -> bool:
        """Whether the boundary bends at the hyperplane, at all of at least so many places."""
        return len(self.at) >= least and bool(self.here.all())

    def in_part(self, ratio: float) -> bool:
        """Whether it bends in some places, and less than by ``ratio`` of that in others.

        Beside two classes: a unit may not act on the difference of two others.
        """
        for i in np.flatnonzero(self.here):
            same = (self.at.inside == self.at.inside[i]) & (self.at.outside == self.at.outside[i])
            if (self.turn[same] < ratio * self.turn[i]).any():
                return True
        return False


class FirstLayer:
    """Tests hyperplanes of subspaces, takes them to all inputs, and tests them there.

    What was found so far is ``run.first``: hyperplanes of the inputs, ``votes`` the places at
    which the boundary was seen to bend.
    """

    def __init__(self, run: LabelsRun) -> None:
        self.run, self.config, self.rng = run, run.config, run.rng
        self.later = 0
        self.waiting: list[tuple[Chart, FloatArray, float, Crossings]] = []

    @property
    def deeper(self) -> bool:
        """Whether there are hyperplanes that bend the boundary in part: of a later layer."""
        return self.later > 1  # one may be an accident

    def search(self) -> None:
        """Walk in further subspaces until as many have shown no more units as have."""
        run = self.run
        self._lift()
        fruitful = int(len(run.first) > 0)
        for turn in range(self.config.rounds):
            before = len(run.first)
            s = run.dimension()
            chart = Chart.through(run.target, run.target.examples[-s:], s, self.rng)
            self.test(chart, ChartSearch(run, chart, _in_chart(run.first, chart)).hyperplanes())
            self._lift()
            fruitful += len(run.first) > before
            if 2 * fruitful <= turn + 1:
                break

    def test(self, chart: Chart, planes: Hyperplanes) -> None:
        """Tell at which of a subspace's hyperplanes the boundary bends everywhere or in part."""
        few, known = self.config.starts, _in_chart(self.run.first, chart)
        least = 2.0**-self.config.bits
        with self.run.stage("first layer") as details:
            for row, offset in zip(planes.rows, planes.offsets.tolist(), strict=True):
                if len(known.joined(_single(row, offset))) == len(known):
                    continue
                seen = self._bends(chart, row, offset, few)
                if seen.in_part(least):  # or not known well enough to be met everywhere
                    self.later += self._turns(chart, row, seen.at, GROWTH**2).in_part(least)
                if seen.everywhere(few // 2):
                    at = seen.at.take(np.arange(few // 2))
                    self.waiting.append((chart, row, offset, at))
            details |= {"bend everywhere": len(self.waiting), "in part": self.later}

    def _lift(self) -> None:
        """Take hyperplanes to all inputs; keep those at which the boundary bends there as well."""
        many = 2 * self.config.starts
        with self.run.stage("first layer") as details:
            for chart, row, offset, at in self.waiting:
                known = _in_chart(self.run.first, chart)
                if len(known.joined(_single(row, offset))) == len(known):
                    continue
                lifted = self._lifted(chart, row, at)
                for whole, shift in zip(lifted.rows, lifted.offsets.tolist(), strict=True):
                    seen = self._bends(self.run.whole, whole, shift, many)
                    if seen.everywhere(many // 2):
                        one = _single(whole, shift, len(seen.at))
                        self.run.first = self.run.first.joined(one)
            self.waiting = []
            details["found"] = len(self.run.first)

    def _precision(self, chart: Chart) -> Precision:
        """Return the lengths of a search with twice its bits, as weak units count here."""
        noise = self.run.noise / chart.scale
        step = max(self.config.step, noise * 2.0**self.config.bits)
        return Precision(step, max(step * 4.0**-self.config.bits, 2.0 * noise), noise)

    def _bends(self, chart: Chart, row: FloatArray, offset: float, count: int) -> _Bends:
        """Look at ``count`` places of a hyperplane whether the boundary bends there."""
        y = chart.draw(4 * count, self.rng)
        y -= np.outer(y @ row + offset, row)
        coarse = self._precision(chart).step * 2.0**-self.config.bits
        at = find_crossings(chart, y, chart.ask(y), count, self.rng, coarse)
        return self._turns(chart, row, at, 1.0)

    def _turns(self, chart: Chart, row: FloatArray, at: Crossings, steps: float) -> _Bends:
        """Measure how much the boundary bends within so many steps of places of a hyperplane.

        It is found twice on either side; it bends at the hyperplane where the two lines meet
        between the inner points.
        """
        precision = self._precision(chart)
        step = steps * precision.step
        n, k = len(at), len(PLACES)
        each = np.repeat(np.arange(n), k)
        base = at.points[each] + step * np.tile(PLACES, n)[:, None] * row
        half = np.full(n * k, step)
        away, _ = locate(
            chart, base, at.directions[each], at.inside[each], at.outside[each],
            guess=np.zeros(n * k), half=half, finest=precision.finest,
            reach=2.0 * GROWTH**2 * half,
        )  # fmt: skip
        away = away.reshape(n, k)
        held: BoolArray = np.asarray(np.isfinite(away).all(axis=1))
        away, at = away[held], at.take(held)
        before, after = away[:, 1] - away[:, 0], away[:, 3] - away[:, 2]
        turn = np.abs(after - before)
        gap = away[:, 2] - after - away[:, 1] - before  # of both lines at the hyperplane
        clear = turn > self.config.margin * k * precision.finest
        return _Bends(at, turn, clear & (np.abs(gap) < turn))

    def _lifted(self, chart: Chart, row: FloatArray, at: Crossings) -> Hyperplanes:
        """Return the hyperplane of all inputs from normals beside some of its places."""
        whole, n = self.run.whole, len(at)
        precision, own = self._precision(whole), self._precision(chart)
        aside = GROWTH * own.step * np.repeat([-1.0, 1.0], n)[:, None] * row
        start = chart.inputs(np.tile(at.points, (2, 1)) + aside)
        directions = np.tile(at.directions @ chart.rows / chart.scale, (2, 1))
        inside, outside = np.tile(at.inside, 2), np.tile(at.outside, 2)
        half = np.full(2 * n, GROWTH * own.step * chart.scale)
        away, error = locate(
            whole, start, directions, inside, outside, guess=np.zeros(2 * n), half=half,
            finest=precision.finest, reach=GROWTH**2 * half,
        )  # fmt: skip
        held = np.isfinite(away)
        points = start + np.where(held, away, 0.0)[:, None] * directions
        beside = Crossings(points, directions, inside, outside, np.where(held, error, 0.0))
        step, finest = np.full(2 * n, precision.step), np.full(2 * n, precision.finest)
        normals, good = measure_normals(whole, beside, self.rng, step=step, finest=finest)
        good &= held
        angle = float(precision.angle(whole.dimension, step[:1], finest[:1])[0])
        duals = Duals.none(whole.dimension)
        for i in np.flatnonzero(good[:n] & good[n:]):
            before, after = normals[i], normals[n + i]
            sine = float(np.linalg.norm(after - (before @ after) * before))
            if sine > self.config.margin * angle:
                both = np.stack([before, after])  # planes, which meet on the hyperplane
                off = (both * (points[[i, n + i]] - points[i])).sum(axis=1)
                meet = points[i] + np.linalg.pinv(both) @ off
                duals = duals.with_one(meet, before, after, angle / sine)
        return pair_up(duals, self.config.margin)


def _single(row: FloatArray, offset: float, votes: int = 0) -> Hyperplanes:
    return Hyperplanes(row[None], np.array([offset]), np.array([votes]))


def _in_chart(found: Hyperplanes, chart: Chart) -> Hyperplanes:
    """Return hyperplanes of the inputs as those of a chart's coordinates."""
    rows = found.rows @ chart.rows.T
    length = np.maximum(np.linalg.norm(rows, axis=1), TINY)
    offsets = found.offsets + found.rows @ chart.origin
    return Hyperplanes(rows / length[:, None], offsets / length, found.votes)
