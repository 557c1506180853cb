"""The steps of peeling, and what they share: lines asked, rows found, layers known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.levels import output_levels
from unrelu.core.noise import NoiseModel
from unrelu.core.run import reported_stage
from unrelu.extraction.deep_answers import AnswerConfig, Recorder, Saturated, usable_line
from unrelu.extraction.deep_layers import floored
from unrelu.extraction.deep_polish import polish
from unrelu.extraction.peel_lines import (
    Crossings,
    Pieces,
    Traced,
    joined,
    known_kinks,
    measure_pieces,
    measure_points,
)
from unrelu.extraction.peel_rows import (
    Row,
    group_rows,
    onto_surface,
    read_rows,
    refit_row,
    test_surface,
)
from unrelu.extraction.peel_signs import Orientation, orient_rows
from unrelu.extraction.peel_top import Closed, close_layers
from unrelu.extraction.peel_weights import complete_row
from unrelu.extraction.prefix import Prefix
from unrelu.lines.domains import as_domain
from unrelu.lines.survey import SurveyLine, calibrate, scan_line
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.progress import Progress
from unrelu.result import Certificate, StageReport

__all__ = ["Layer", "Peeling"]

REACH = 100.0
"""Half-length of a line over the length of typical inputs: of the surfaces that a line crosses
one in about so many lies beyond, and the farther a crossing the less precise a bias."""
STARTS = (0.5, 1.0, 2.0, 4.0)
EACH = 25
"""Inputs of so many times the typical length, and how many of each, from which places on
surfaces are looked for; nothing is asked at them."""
FIRST_LOOK, SECOND_LOOK = 2, 4
"""Places at which a row is tested: those of the first look reject most that are none."""
BELIEVED = 0.6
"""Part of the places at which a row must show. Rows show at 0.9 of them or more, units of
layers farther up at 0.2 or less: they bend where a unit between switches."""
TURNS = 0.2
"""Part of the other rows that must switch between the places where a row showed."""
MOVED = 1e-5
"""Change of a row after which the layer above it is found anew."""
OFTEN = 3
"""Crossings of a row that shows at every place after which it is believed in any case: where
layers are narrow few other rows switch anywhere on its surface."""
DOUBTFUL = 4
"""Rows that might bend, completed in one pass to be followed farther."""
HUNTS, NEAREST = 2, 8
"""Ways traced in a round from inputs that fit to inputs that do not, and among how many of the
nearest ones each of them starts."""
FITTING = 1e-7
"""Deviation over the spread of answers above which the network does not explain one."""
TRUSTED = 30.0
"""Answers farther out than this many typical inputs are not used by the polish."""
RICH = 6
"""Gradients asked in one go for signs that lines did not tell."""


@dataclasses.dataclass
class Layer:
    """A layer being found: its rows, and what was refused.

    Attributes
    ----------
    rows
        Believed ones.
    signs
        Of the rows, 0 where not known.
    refused
        Readings that were tested and are no row, by their anchor: of how many crossings.
    confirmed, places
        Places asked where rows predicted a kink, and how many there were in all.
    explains
        Part of the gradients that the rows explain.
    tried
        How often each missing weight was asked for in vain.
    below
        Rows and signs of the layer below, in which the rows are written.
    """

    rows: list[Row] = dataclasses.field(default_factory=list)
    signs: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    refused: dict[bytes, int] = dataclasses.field(default_factory=dict)
    confirmed: int = 0
    places: int = 0
    explains: float = 0.0
    tried: dict[tuple[bytes, int], int] = dataclasses.field(default_factory=dict)
    below: list[tuple[Row, float]] = dataclasses.field(default_factory=list)

    def fits(self, below: Layer) -> bool:
        """Make room for units that the layer below has got; False where it has changed more."""
        if not self.rows:
            return True
        width = len(self.rows[0].theta) - 1
        now = list(zip(below.rows, below.signs, strict=True))
        if len(now) < width:
            return False
        for (row, sign), (old, before) in zip(now, self.below, strict=False):
            same = np.append(row.theta[: len(old.theta) - 1], row.theta[-1])
            if sign != before or np.abs(same - old.theta)[old.known].max() > MOVED:
                return False
        more = len(now) - width
        if more:  # what was refused may have been read or tested where a new unit is on
            self.refused, self.tried = {}, {}
        for i, row in enumerate(self.rows):
            theta = np.insert(row.theta, width, np.zeros(more))
            known = np.insert(row.known, width, np.zeros(more, dtype=bool))
            self.rows[i] = dataclasses.replace(row, theta=theta, known=known)
        return True

    def stands_on(self, below: Layer) -> None:
        """Remember which units the rows are written in."""
        self.below = list(zip(below.rows, below.signs, strict=True))

    @property
    def oriented(self) -> bool:
        """Whether every sign is known."""
        return len(self.signs) == len(self.rows) > 0 and bool((self.signs != 0.0).all())

    @property
    def missing(self) -> int:
        """Weights that are not known."""
        return sum(int((~r.known).sum()) for r in self.rows)

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Return weights ``(n, w)`` and biases ``(n,)``, with the signs that are known."""
        theta = np.stack([r.theta for r in self.rows])
        sign = np.where(self.signs == 0.0, 1.0, self.signs) if self.oriented else 1.0
        theta = theta * np.reshape(sign, (-1, 1))
        return theta[:, :-1], theta[:, -1]


class Peeling:
    """State and steps of an extraction of any depth."""

    def __init__(self, oracle: Oracle, rng: np.random.Generator, progress: Progress) -> None:
        self.oracle = Recorder(oracle)
        self.rng, self.progress = rng, progress
        self.domain = as_domain("all", oracle.input_dim)
        self.answers = AnswerConfig()
        self.noise: NoiseModel | None = None
        self.traced: list[Traced] = []
        self.gradients: list[Pieces] = []
        self.layers: list[Layer] = []
        self.prefix = self.deepest = Prefix(oracle.input_dim)
        self.network: ReLUNetwork | None = None
        self.certificate: Certificate | None = None
        self.reference = 0
        self.stages: list[StageReport] = []

    def stage(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Charge and time what happens inside; details may be filled in."""
        return reported_stage(self.oracle, self.stages, name)

    # ---------------------------------------------------------------- asking

    def look(self, view: LogOdds | None) -> None:
        """Take log-odds for probabilities; else learn how large each output is."""
        if view is not None:
            single = view.inner.output_dim == 1
            high = self.answers.highest_single if single else self.answers.deepest
            self.oracle = Recorder(view, low=-self.answers.deepest, high=high)
            self.reference = view.reference
        elif self.oracle.output_dim > 1:
            with self.stage("calibration"):
                typical = self.domain.draw(self.answers.balance, self.rng)
                levels = output_levels(self.oracle.inner(typical))
                self.oracle = Recorder(self.oracle.inner, units=levels)

    def _ask_line(self, points: FloatArray) -> FloatArray:
        answers = self.oracle(points)
        if np.isnan(answers).any():
            raise Saturated
        return answers

    def trace_line(self) -> Traced | None:
        """Trace a line through typical inputs."""
        return self.trace(self.domain.line(self.rng, REACH))

    def trace_until(self, count: int, layer: Layer) -> None:
        """Trace lines until there are enough to look for a layer of which nothing is known."""
        if layer.rows or len(self.traced) >= count:
            return
        self.deepest = self.prefix
        for _ in range(count - len(self.traced)):
            self.trace_line()

    def trace(self, line: SurveyLine) -> Traced | None:
        """Find the kinks of a line, and the jumps at those that no known unit explains."""
        try:
            with self.stage("calibration"):
                line = usable_line(self.oracle, line, self.answers)
                noise, seeds = calibrate(self._ask_line, line, near=10.0 * self.domain.scale)
                noise = floored(self.oracle, noise, self.domain.dimension, self.rng)
            with self.stage("lines") as details:
                scan, noise = scan_line(self._ask_line, line, noise, seeds)
                details["kinks"] = len(scan.kinks)
            if self.noise is None:
                self.noise = noise
            self.noise = NoiseModel(
                np.maximum(self.noise.absolute, noise.absolute),
                np.maximum(self.noise.growth, noise.growth),
            )
            if not scan.complete:
                return None
            known = known_kinks(line.points(scan.kinks), scan.kink_std, self.deepest)
            with self.stage("gradients") as details:
                traced = measure_pieces(
                    self._ask_line, line, scan, noise, self.prefix, wanted=~known, rng=self.rng
                )
                details |= {"kinks": len(known), "new": int(np.count_nonzero(~known))}
        except Saturated:
            return None
        self.traced.append(traced)
        return traced

    def between(self, bad: FloatArray, good: FloatArray) -> None:
        """Trace the way from an input that fits to one that does not: it crosses what is missing.

        Parameters
        ----------
        bad, good
            ``(n, d)`` each; the bad ones are taken in turn, each with a near good one.
        """
        for x in bad[self.rng.permutation(len(bad))[:HUNTS]]:
            near = np.argsort(np.linalg.norm(good - x, axis=1))[:NEAREST]
            base = good[self.rng.choice(near)]
            length = float(np.linalg.norm(x - base))
            if length > 0.0:
                direction = (x - base) / length
                self.trace(SurveyLine(base, direction, -0.1 * length, 1.1 * length, np.inf))

    def crossings(self) -> Crossings:
        """Return all kinks whose jump was measured."""
        every = Crossings(*joined([t.crossings for t in self.traced]))
        return every.kept(np.isfinite(every.errors))

    def pieces(self) -> Pieces:
        """Return all pieces that lines or gradients were asked in."""
        return Pieces(*joined([t.pieces for t in self.traced] + self.gradients))

    def unexplained(self, prefix: Prefix) -> tuple[int, int]:
        """Return how many kinks of all lines no known unit explains, and how many there are."""
        count = total = 0
        for t in self.traced:
            known = known_kinks(t.crossings.points, t.scan.kink_std, prefix)
            count, total = count + int(np.count_nonzero(~known)), total + len(known)
        return count, total

    def starts(self, row: Row | None = None) -> FloatArray:
        """Return inputs from which places on surfaces are looked for, some near a row's own."""
        d, scale = self.domain.dimension, self.domain.scale
        wide = [self.domain.draw(EACH, self.rng) * s for s in STARTS]
        if row is not None:
            for s in STARTS:
                around = row.places[self.rng.integers(len(row.places), size=EACH)]
                near = 0.25 * s * (np.linalg.norm(around, axis=1) + scale)
                aside = self.rng.standard_normal((EACH, d)) / np.sqrt(d)
                wide.append(around + near[:, None] * aside)
        return np.concatenate(wide)

    # ---------------------------------------------------------------- layers

    def layer(self, number: int) -> Layer:
        """Return a layer as far as it is known, over the units of the one below it."""
        if len(self.layers) == number:
            self.layers.append(Layer())
        layer = self.layers[number]
        if number:
            if not layer.fits(self.layers[number - 1]):
                layer = self.layers[number] = Layer()
            layer.stands_on(self.layers[number - 1])
        return layer

    def settle(self) -> None:
        """Take what a pass has found as known, its last layer included."""
        last = self.layers[self.prefix.depth]
        self.deepest = self.prefix.with_layer(*last.arrays()) if last.rows else self.prefix

    def open_kinks(self, number: int, layer: Layer, closed: Closed | None) -> float:
        """Return the part of all kinks that no unit up to this layer explains, and tell."""
        left, total = self.unexplained(self.prefix.with_layer(*layer.arrays()))
        share = 0.0 if closed is None else closed.share
        self.progress.update(
            f"hidden layer {number + 1}",
            total - left,
            total,
            f"{len(layer.rows)} units, {layer.missing} weights missing, {left} of {total} kinks "
            f"open, regression explains {share:.3f}",
        )
        return left / max(1, total)

    # ------------------------------------------------------------------ rows

    def find_rows(self, layer: Layer, prefix: Prefix) -> int:
        """Read rows from crossings and test them; returns how many are new."""
        crossings = self.crossings()
        spread = np.zeros(len(crossings))
        known = known_kinks(crossings.points, spread, prefix)
        known |= known_kinks(crossings.points, spread, self.deepest)
        open_ones = crossings.kept(~known)
        readings = read_rows(open_ones, prefix)
        grouped = group_rows(readings, layer.rows)
        layer.rows = [
            row if row is old else refit_row(row, prefix)
            for row, old in zip(grouped, layer.rows, strict=False)
        ]
        fresh = [
            r
            for r in grouped[len(layer.rows) :]
            if r.members > layer.refused.get(r.anchor.tobytes(), 0)
        ]
        believed = self.test_rows(layer, fresh, prefix)
        layer.rows += believed
        return len(believed)

    def test_rows(self, layer: Layer, rows: Sequence[Row], prefix: Prefix) -> list[Row]:
        """Return the rows that show a kink at most places where they predict one.

        A row that shows, but only at places between which no other row switches, is completed
        and tested again: the more of its weights are known the farther it can be followed.
        """
        believed, doubtful = self._tested(layer, rows, prefix)
        doubtful = [r for r in doubtful if not r.known.all()]
        doubtful.sort(key=lambda r: (-r.members, -int(r.known.sum())))
        if doubtful and prefix.depth and not believed:  # else more is known in the next pass
            with self.stage("weights"):
                longer = [self._completed(layer, r, prefix) for r in doubtful[:DOUBTFUL]]
            longer = group_rows([], longer)
            believed, _ = self._tested(layer, longer, prefix)
        taken = {r.anchor.tobytes() for r in believed}
        for row in rows:
            if row.anchor.tobytes() not in taken:
                layer.refused[row.anchor.tobytes()] = row.members
        return believed

    def _completed(self, layer: Layer, row: Row, prefix: Prefix) -> Row:
        assert self.noise is not None
        return complete_row(
            self.oracle, row, prefix, self.noise, self.starts(row), tried=layer.tried, rng=self.rng
        )

    def _tested(
        self, layer: Layer, rows: Sequence[Row], prefix: Prefix
    ) -> tuple[list[Row], list[Row]]:
        """Return the rows that are believed, and those that show but might bend."""
        assert self.noise is not None
        places = [self._places(row, prefix) for row in rows]
        alive = [i for i, (x, _) in enumerate(places) if len(x) >= FIRST_LOOK]
        there: list[list[FloatArray]] = [[] for _ in rows]
        asked = np.zeros(len(rows), dtype=int)
        for part in (slice(0, FIRST_LOOK), slice(FIRST_LOOK, None)):
            if not alive:
                break
            x = np.concatenate([places[i][0][part] for i in alive])
            n = np.concatenate([places[i][1][part] for i in alive])
            owner = np.concatenate([np.full(len(places[i][0][part]), i) for i in alive])
            with self.stage("row tests"):
                found = test_surface(self.oracle, x, n, prefix, self.noise)
            np.add.at(asked, owner, 1)
            kinks = x + found.offsets[:, None] * n
            for i, point in zip(owner[found.there], kinks[found.there], strict=True):
                there[i].append(point)
            alive = [i for i in alive if there[i]]
        shown = [i for i in range(len(rows)) if len(there[i]) >= max(2, BELIEVED * asked[i])]
        straight = self._straight(
            layer.rows, [rows[i] for i in shown], [np.array(there[i]) for i in shown], prefix
        )
        believed: list[Row] = []
        doubtful: list[Row] = []
        for i, fine in zip(shown, straight, strict=True):
            row = refit_row(rows[i].seen_at(np.array(there[i])), prefix)
            whole = len(there[i]) == asked[i] > FIRST_LOOK
            often = row.members >= OFTEN and whole and bool(row.known.all())
            fine = (fine and len(there[i]) > FIRST_LOOK) or often
            (believed if fine else doubtful).append(row)
            layer.confirmed += len(there[i]) * fine
            layer.places += int(asked[i]) * fine
        return believed, doubtful

    def _places(
        self, row: Row, prefix: Prefix, count: int = FIRST_LOOK + SECOND_LOOK
    ) -> tuple[FloatArray, FloatArray]:
        """Choose places on a row's surface, far from where it was seen and from each other.

        What bends between them is seen to.
        """
        x, n = onto_surface(row, prefix, self.starts(row))
        if len(x) == 0:
            return x, n
        size = 1.0 + np.linalg.norm(x, axis=1)
        fine = size <= 10.0 * self.domain.scale
        x, n, size = (a[fine] if fine.sum() >= FIRST_LOOK else a for a in (x, n, size))
        way = np.linalg.norm(x - row.anchor, axis=1) / size
        chosen: list[int] = []
        for _ in range(min(len(x), count)):
            best = int(way.argmax())
            chosen.append(best)
            way = np.minimum(way, np.linalg.norm(x - x[best], axis=1) / size)
        return x[chosen], n[chosen]

    def _straight(
        self,
        believed: Sequence[Row],
        rows: Sequence[Row],
        there: Sequence[FloatArray],
        prefix: Prefix,
    ) -> list[bool]:
        """Tell which rows stay straight where other rows switch.

        A unit farther up shows only where no unit between switches.
        """
        every = [*believed, *rows]
        theta = np.stack([r.theta for r in every]) if every else np.empty((0, prefix.width + 1))
        turns = np.zeros((len(rows), len(every)), dtype=bool)
        for i, x in enumerate(there):
            z = prefix.heights(x) @ theta[:, :-1].T + theta[:, -1]
            turns[i] = (z > 0.0).any(axis=0) & (z < 0.0).any(axis=0)
            turns[i, len(believed) + i] = False
        fine = np.ones(len(rows), dtype=bool)
        while fine.any():  # the worst first: what is no row judges nobody
            judges = np.concatenate([np.ones(len(believed), dtype=bool), fine])
            others = np.count_nonzero(judges) - 1
            if others < 3:
                break
            share = np.where(fine, turns[:, judges].sum(axis=1) / others, np.inf)
            worst = int(share.argmin())
            if share[worst] >= TURNS:
                break
            fine[worst] = False
        return [bool(f) for f in fine]

    def complete(self, layer: Layer, prefix: Prefix) -> None:
        """Measure weights that no crossing has shown."""
        assert self.noise is not None
        if not prefix.depth:
            return
        with self.stage("weights") as details:
            before = layer.missing
            for i, row in enumerate(layer.rows):
                if not row.known.all():
                    layer.rows[i] = self._completed(layer, row, prefix)
            layer.rows = group_rows([], layer.rows)
            for i, row in enumerate(layer.rows):
                layer.rows[i] = self._firm(row, prefix)
            details |= {"missing": before, "left": layer.missing}

    def _firm(self, row: Row, prefix: Prefix) -> Row:
        """Find a row's surface at as many places as it has numbers, and a few more."""
        assert self.noise is not None
        more = int(row.known.sum()) + 2 - len(row.places)
        if more <= 0:
            return row
        x, n = self._places(row, prefix, more)
        found = test_surface(self.oracle, x, n, prefix, self.noise)
        kinks = x + found.offsets[:, None] * n
        return refit_row(row.seen_at(kinks[found.there]), prefix) if found.there.any() else row

    # ----------------------------------------------------------------- signs

    def orient(self, layer: Layer, prefix: Prefix) -> Orientation:
        """Tell the signs of a layer's rows, and whether they explain the gradients."""
        assert self.noise is not None
        found = orient_rows(self.pieces(), prefix, layer.rows, rng=self.rng)
        if (found.signs == 0.0).any() or found.asked == 0:
            points = self._rich_points(layer, prefix, found)
            if len(points):
                with self.stage("signs"):
                    more = measure_points(
                        self.oracle, points, self.noise, prefix, self.domain.scale, rng=self.rng
                    )
                self.gradients.append(more)
                found = orient_rows(self.pieces(), prefix, layer.rows, rng=self.rng)
        layer.signs = found.signs
        layer.explains = found.share if found.asked else 0.0
        return found

    def _rich_points(self, layer: Layer, prefix: Prefix, found: Orientation) -> FloatArray:
        """Choose inputs where the gradient tells most: the Jacobian has the highest rank."""
        x = np.concatenate([self.starts() for _ in range(4)])
        seen = prefix.view(x)
        known = np.stack([r.known for r in layer.rows])[:, :-1]
        told = ~(seen.on[:, None, :] & ~known[None]).any(axis=(1, 2))
        x, jacobian = x[told], seen.jacobian[told]
        if len(x) == 0:
            return x
        s = np.linalg.svd(jacobian, compute_uv=False)
        rank = np.count_nonzero(s > 1e-6 * s[:, :1], axis=1)
        weights, biases = (np.stack([r.theta for r in layer.rows])[:, k] for k in (slice(-1), -1))
        z = prefix.heights(x) @ weights.T + biases
        side = z * np.where(found.signs == 0.0, np.nan, found.signs)
        off = np.count_nonzero(side < 0.0, axis=1)
        open_rows = np.flatnonzero(found.signs == 0.0)
        score = rank + off + 0.5 * self.rng.random(len(x))
        chosen: list[int] = list(np.argsort(-score)[:RICH])
        for k in open_rows:  # both sides of every row that is open
            for sign in (1.0, -1.0):
                there = np.flatnonzero(z[:, k] * sign > 0.0)
                chosen += list(there[np.argsort(-score[there])[:2]])
        return np.asarray(x[np.unique(chosen)])

    # ------------------------------------------------------------------ last

    def close(self, layer: Layer, prefix: Prefix) -> Closed | None:
        """Take a layer for the last hidden one."""
        pieces = self.pieces()
        return close_layers(prefix, layer.rows, pieces.points, pieces.values)

    def sharpen(self, closed: Closed) -> None:
        """Fit all parameters to all answers near typical inputs."""
        assert self.noise is not None
        self.network = closed.network
        x, y = self.oracle.stored()
        near = np.linalg.norm(x, axis=1) <= TRUSTED * self.domain.scale
        if self.network.skip is not None or near.sum() < self.network.parameters:
            return
        with self.stage("polish") as details:
            polished = polish(
                self.network, x[near], y[near], self.noise.at(x[near]), free=closed.free
            )
            details |= {"before": polished.before, "after": polished.after}
        self.network = polished.network

    def contradicted(self) -> tuple[FloatArray, FloatArray]:
        """Return the inputs whose answers the network does not explain, and those it does."""
        assert self.network is not None
        x, y = self.oracle.stored()
        norms = np.linalg.norm(x, axis=1)
        spread = y[norms <= TRUSTED * self.domain.scale].std(axis=0)
        # What is exact near typical inputs grows with the input elsewhere.
        allowed = FITTING * np.maximum(1.0, norms / self.domain.scale)[:, None] * spread
        over = (np.abs(self.network(x) - y) > allowed).any(axis=1)
        return x[over], x[~over]
