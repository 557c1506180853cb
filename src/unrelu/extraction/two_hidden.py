"""Two hidden layers from coarse answers: float32 values, softmax or single probabilities.

Setting
-------
Black-box access to ``f(x) = U relu(V relu(W x + b) + c) + e`` on all of R^d, or to its
probabilities, computed in single precision (double precision goes the same way).

Assumptions
-----------
``k1 <= d`` with W of full row rank; typical inputs are standard Gaussian; every first-layer
hyperplane passes the region of typical inputs.

Guarantee
---------
RECOVERED: the network agreed with every held-out answer within what the noise of the answers
allows, and no answer of the run contradicts it.

The algorithm
-------------
1. Kinks on lines of a random plane, by answers at equidistant points
   (:func:`~unrelu.extraction.two_hidden_lines.line_kinks`). Those of a first-layer unit lie on
   one straight line (:func:`~unrelu.extraction.two_hidden_lines.find_traces`).
2. The normal of each trace, from gradients on both sides at two places: a first-layer unit's is
   the same at both (:func:`~unrelu.extraction.two_hidden_rows.measure_normal`). More planes,
   until two show nothing new.
3. Rows from many crossings of their hyperplanes
   (:func:`~unrelu.extraction.two_hidden_rows.sharpen_rows`); signs
   (:func:`~unrelu.extraction.two_hidden_rows.turn_rows`).
4. The layers above as a network in a box of heights
   (:class:`~unrelu.extraction.two_hidden_top.TopTarget`,
   :class:`~unrelu.extraction.box_explore.Exploration`).
5. One fit of all parameters (:func:`~unrelu.core.fit.fit_network`), certificate; held-out
   answers that disagree become data for another fit, and a fresh certificate ends that.

Why so: in single precision a gradient's jump tells a normal to some 1e-4 at best, and layers
cannot be told apart by extending a hyperplane far out. Straight traces need positions only,
which come out to 1e-6; most of the queries of earlier trials went to gradients on lines.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import scipy.linalg

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray
from unrelu.core.answers import look_for_probabilities
from unrelu.core.breakdown import Breakdown, as_breakdown
from unrelu.core.explain import explained
from unrelu.core.price import Price
from unrelu.core.record import Remembered, remembered, with_plan
from unrelu.core.run import reported_stage
from unrelu.errors import BudgetExhausted
from unrelu.extraction.box_explore import Exploration
from unrelu.extraction.box_fit import fit_all
from unrelu.extraction.box_points import BoxInputs
from unrelu.extraction.box_target import RowNoise, measure_noise, read_probabilities
from unrelu.extraction.box_units import network_in, without_skip
from unrelu.extraction.two_hidden_lines import Segments, Trace, find_traces, line_kinks
from unrelu.extraction.two_hidden_rows import (
    CLOSE,
    Rows,
    measure_normal,
    missing_change,
    sharpen_rows,
    turn_rows,
)
from unrelu.extraction.two_hidden_top import TopTarget, stacked
from unrelu.networks import ReLUNetwork
from unrelu.progress import Progress, as_progress
from unrelu.result import Certificate, Provenance, RecoveryResult, StageReport, Status

__all__ = ["TwoHiddenConfig", "TwoHiddenResult", "extract_two_hidden"]


_SHOWN = 0.6
"""Part of the places on a hyperplane where a first-layer unit shows; elsewhere all that it feeds
is off, or another kink is near. A second-layer unit's hyperplane goes on in its region only."""
_NEARLY_STILL = 0.02
_STILL = 1e-3
"""Change on units' off sides over that on their on sides up to which no row is missing: before
and after rows are sharpened, whose errors cause it too."""
_SAME = 1e-2
"""Distance below which two measured hyperplanes are one: many times their error."""


@dataclasses.dataclass(frozen=True)
class TwoHiddenConfig:
    """Sizes of the extraction of two hidden layers from coarse answers."""

    lines: int = 9
    points: int = 128
    """Lines of a plane, and points on each: a kink needs three straight points on either side,
    so some tens of kinks a line can be read."""
    radius: float = 1.2
    """Radius of the disc that lines cross, over the length of a typical input."""
    planes: int = 10
    """Planes looked at, at most."""
    probes: int = 600
    """Probes of the layers above that must be explained."""
    rounds: int = 4
    """Rounds of fitting and exploring, and certificates, at most."""
    accept: float = 30.0
    """Deviations of an answer by which a prediction may be off (as in a box)."""
    held_out: int = 2000
    """Held-out inputs."""
    exact: float = 1e-5
    """Noise over the answers' spread up to which agreement within it is called exact."""


@dataclasses.dataclass(frozen=True, repr=False)
class TwoHiddenResult(RecoveryResult):
    """A network with two hidden layers.

    Attributes
    ----------
    first_width, second_width
        Units found; carriers of an affine term counted in the second.
    noise
        Measured deviation of an answer, as it was read.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    """

    first_width: int = 0
    second_width: int = 0
    noise: float = 0.0
    answers: str = "values"


def price_two_hidden(d: int, m: int, first: float, second: float) -> Price:
    """Return the price: lines, normals, crossings, the layers above, the certificate."""
    lines = 5 * 1300.0
    rows = first * (4.0 * 2.0 * (d + 1.0) + 8.0 * (d + 6.0) + 40.0)
    above = second * (1.6 * first * (2.0 if m == 1 else 1.0) + 40.0) + 2000.0
    total = lines + rows + above + 4000.0
    return round(0.6 * total), round(2.0 * total)


def extract_two_hidden(
    oracle: Any,
    *,
    answers: Literal["auto", "values", "probabilities"] = "auto",
    rng: RandomState = None,
    budget: int | None = None,
    progress: Progress | None = None,
    config: TwoHiddenConfig | None = None,
) -> TwoHiddenResult:
    """Recover a network with two hidden layers from answers of any precision.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    answers
        ``"probabilities"`` are read as logits; ``"auto"`` looks at a few answers.
    rng
        Seed or generator; the same seed gives the same result.
    budget
        Queries that may be asked.
    progress
        Receives updates while it runs.
    config
        Sizes.
    """
    target = remembered(oracle)
    if budget is not None:
        target.meter.budget = budget
    run = TwoHiddenRun(
        target, as_generator(rng), as_progress(progress), config or TwoHiddenConfig()
    )
    run.provenance = Provenance(
        algorithm="extract_two_hidden",
        seed=rng if isinstance(rng, int) else None,
        options={"answers": answers},
        target=target.identity,
    )
    try:
        with as_breakdown():
            run.look(answers)
            result = run.searched()
    except BudgetExhausted as error:
        message = f"{error}; what was found until then is returned"
        result = run.result(Status.BUDGET_EXHAUSTED, message)
    except Breakdown as error:
        result = run.result(Status.NUMERICAL_FAILURE, str(error))
    return with_plan(explained(target, result, result.answers), target, oracle)


class TwoHiddenRun:
    """One run: what it knows, and its stages."""

    provenance: Provenance

    def __init__(
        self,
        target: Remembered,
        rng: np.random.Generator,
        progress: Progress,
        config: TwoHiddenConfig,
    ) -> None:
        self.target, self.rng, self.progress, self.config = target, rng, progress, config
        self.dimension, self.outputs = target.input_dim, target.output_dim
        self.stages: list[StageReport] = []
        self.probabilities = self.single = False
        self.noise = RowNoise(0.0, 1.0)
        self.rows = Rows(np.empty((0, self.dimension)), np.empty(0))
        self.network: ReLUNetwork | None = None
        self.row_error = 0.0

    def stage(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Charge and time what happens inside; details may be filled in."""
        self.progress.update(name, 0)
        return reported_stage(self.target, self.stages, name)

    # ----------------------------------------------------------------- asking

    def draw(self, n: int) -> FloatArray:
        """Draw typical inputs."""
        return self.rng.standard_normal((n, self.dimension))

    def read(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ask; returns inputs as asked, values read, and their deviations."""
        if self.single:
            x = x.astype(np.float32).astype(np.float64)
        return x, *self.judge(self.target(x))

    def judge(self, answers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Read answers; returns values and their deviations, infinite where unread."""
        values, coarseness = answers, np.zeros(len(answers))
        if self.probabilities:
            values, coarseness = read_probabilities(answers)
        return values, self.noise.at(values, coarseness)

    def look(self, answers: str) -> None:
        """Find out what the answers are and how exact."""
        with self.stage("calibration") as details:
            found, seen = look_for_probabilities(self.target, self.draw, ways_out=())
            self.probabilities = answers == "probabilities" or (answers == "auto" and found)
            self.single = bool((seen == seen.astype(np.float32)).all())
            self.noise = measure_noise(_Around(self), self.rng)
            details |= {"noise": self.noise.level, "float32": self.single}

    # ------------------------------------------------------------ first layer

    def first_layer(self) -> bool:
        """Look at planes until no row is missing; False if planes end before.

        Along ``W^+ e_j`` on the off side of unit j nothing changes, if all rows are known.
        """
        config, quiet = self.config, 0
        for _ in range(config.planes):
            with self.stage("lines") as details:
                plane, base, segments, step = self.look_at_plane(inside=quiet % 2 == 0)
                traces = find_traces(segments)
            with self.stage("gradients"):
                new = sum(self.take_trace(t, plane, base, segments, step) for t in traces)
            details |= {"traces": len(traces), "new rows": new}
            quiet = 0 if new else quiet + 1
            if self.rows.count and self.left() < _NEARLY_STILL:
                self.sharpen()
                if self.left() < _STILL:
                    return True
        return False

    def left(self) -> float:
        """Return how much changes where nothing does if all rows are known."""
        with self.stage("signs") as details:
            details["left"] = missing_change(self.read, self.rows, self.rng)
        return float(details["left"])

    def look_at_plane(self, *, inside: bool) -> tuple[FloatArray, FloatArray, Segments, float]:
        """Scan lines of a random plane; ``inside`` one on which known rows do not change.

        There all kinks are of rows that are missing, or of the second layer. But one that
        depends little on such inputs lies far away there.
        """
        config, d, rng = self.config, self.dimension, self.rng
        directions = rng.standard_normal((d, 2))
        free = scipy.linalg.null_space(self.rows.weights) if self.rows.count else np.eye(d)
        if inside and free.shape[1] > 1:
            directions = free @ rng.standard_normal((free.shape[1], 2))
        elif inside and free.shape[1] == 1:
            directions[:, :1] = free  # one row is missing at most
        plane = np.linalg.qr(directions)[0].T
        base = self.draw(1)[0]
        base = base - plane.T @ (plane @ base)
        radius = config.radius * np.sqrt(d)
        angle = np.pi * (np.arange(config.lines) + rng.random(config.lines)) / config.lines
        direction = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        off = radius * rng.uniform(-0.6, 0.6, config.lines)  # all of the disc is crossed
        half = np.sqrt(radius**2 - off**2)
        across = np.stack([-direction[:, 1], direction[:, 0]], axis=1)
        starts = across * off[:, None] - direction * half[:, None]
        steps = 2.0 * half / (config.points - 1)
        t = steps[:, None] * np.arange(config.points)
        flat = starts[:, None] + t[:, :, None] * direction[:, None]
        _, y, deviation = self.read(base + flat.reshape(-1, 2) @ plane)
        y = y.reshape(config.lines, config.points, -1)
        deviation = deviation.reshape(config.lines, -1)
        kinks = []
        for line in range(config.lines):
            found = line_kinks(y[line], deviation[line], float(steps[line]))
            x = base + (starts[line] + np.outer(found[:, 0], direction[line])) @ plane
            known = np.abs(self.rows.heights(x)).min(axis=1, initial=np.inf) < 0.1 * steps[line]
            kinks.append(found[~known])
        segments = Segments(starts, direction, 2.0 * half, kinks)
        return plane, base, segments, float(steps.min())

    def take_trace(
        self,
        trace: Trace,
        plane: FloatArray,
        base: FloatArray,
        segments: Segments,
        step: float,
    ) -> bool:
        """Measure the normal of a trace and take it as a row, if it is one."""
        member, _ = segments.hits(
            trace.normal[None], np.array([trace.offset]), np.array([0.05 * step])
        )
        flat = [segments.crossings(line)[k] for line, k in enumerate(member[0]) if k >= 0]
        if len(flat) < 2:
            return False
        places = base + np.array(flat[:6]) @ plane
        found = measure_normal(self.read, trace, plane, places, step)
        if found is None:
            return False
        trial = self.rows.with_row(*found)
        trial, seen = sharpen_rows(self.read, trial, self.rng, only=trial.count - 1)
        if seen < _SHOWN:
            return False
        if self.rows.apart(trial, trial.count - 1) < _SAME:
            return False
        self.rows = trial
        return True

    def sharpen(self) -> None:
        """Sharpen all rows once more, away from all others; drop those that are none."""
        with self.stage("crossings") as details:
            keep = np.ones(self.rows.count, dtype=bool)
            for j in range(self.rows.count):
                self.rows, seen = sharpen_rows(self.read, self.rows, self.rng, only=j, reach=CLOSE)
                keep[j] = (
                    seen >= _SHOWN
                    and self.rows.kept(keep & (np.arange(len(keep)) < j)).apart(self.rows, j)
                    > _SAME
                )
            self.rows = self.rows.kept(keep)
            details |= {"rows": self.rows.count}

    # -------------------------------------------------------------- the rest

    def layers_above(self) -> bool:
        """Recover the layers above as a network in a box of heights."""
        config = self.config
        inputs = self.draw(10_000)
        high = np.maximum(self.rows.heights(inputs).max(axis=0), 1.0)
        top = TopTarget(self.read, self.rows, high, self.outputs)
        data = np.clip(top.cube(inputs), 0.0, 1.0)
        noise = measure_noise(top, self.rng)
        noise = RowNoise(max(noise.level, self.row_error), noise.size)
        search = Exploration(top, BoxInputs(self.rows.count, data), noise, self.rng)
        self.search = search
        search.begin()
        done = search.explore(config.probes, 64 * config.lines)
        for _ in range(config.rounds):
            before = search.units
            search.balance()
            search.sharpen(config.accept)
            done = search.explore(config.probes, 64 * config.lines)
            if done and search.units == before:
                break
        above = network_in(search.network, np.zeros(len(high)), high)
        above, _ = without_skip(above, search.relative_error())
        self.network = stacked(self.rows, above, inputs)
        return done

    def fit(self) -> None:
        """Fit all parameters to answers of the whole run, and fresh ones."""
        assert self.network is not None
        wanted = 4 * self.network.parameters // self.outputs
        with self.stage("fit"):
            self.read(self.draw(max(wanted, 300)))
        x, answers = self._recorded(3 * wanted + 300)
        values, deviation = self.judge(answers)
        fine = np.isfinite(deviation)
        x, values, deviation = x[fine], values[fine], deviation[fine]
        for factor in (30.0, 1.0):
            self.network = fit_all(self.network, x, values, factor * deviation)

    def _recorded(self, most: int) -> tuple[FloatArray, FloatArray]:
        """Return answers of the run: the latest, and others drawn from all."""
        batches = [b for b in self.target.record.batches() if b.stage != "certificate"]
        x = np.concatenate([b.points for b in batches])
        y = np.concatenate([b.answers for b in batches])
        if len(x) <= most:
            return x, y
        late = len(x) - most // 2
        chosen = np.append(self.rng.permutation(late)[: most - most // 2], np.arange(late, len(x)))
        return x[chosen], y[chosen]

    def searched(self) -> TwoHiddenResult:
        """Run all stages."""
        self.first_layer()
        if self.rows.count == 0 or self.rows.count > self.dimension:
            return self.result(
                Status.ASSUMPTION_VIOLATED,
                f"{self.rows.count} first-layer hyperplanes were found for {self.dimension} "
                "inputs; this method needs one or more, and no more than inputs. Try "
                "extract_three_layer, or learn_from_queries",
            )
        with self.stage("signs"):
            self.rows, self.row_error = turn_rows(self.read, self.rows, self.rng)
        k = float(self.rows.count)
        self.target.allowance.plan(price_two_hidden(self.dimension, self.outputs, k, 4.0 * k))
        with self.stage("layers above"):
            self.layers_above()
        result = self.result(Status.PARTIAL, "not certified")
        for _ in range(self.config.rounds):
            self.fit()
            result = self.certify()
            if result.success or result.status is Status.APPROXIMATED:
                return result
            self.target.meter.rebook("certificate", "fit", self.stages[-1].queries)
        return result

    def certify(self) -> TwoHiddenResult:
        """Compare with fresh answers at typical inputs, some of them wider."""
        assert self.network is not None
        config = self.config
        x = self.draw(config.held_out)
        x[::4] *= self.rng.uniform(0.8, 1.4, (len(x[::4]), 1))
        with self.stage("certificate"):
            x, values, deviation = self.read(x)
        off = np.abs(values - self.network(x)).max(axis=1)
        read = np.isfinite(deviation)
        if not read.any():
            return self.result(Status.NUMERICAL_FAILURE, "no held-out answer can be read")
        over = read & (off > config.accept * deviation)
        noise = float(np.median(deviation[read]))
        spread = float(np.std(values[read], axis=0).max())
        certificate = Certificate.from_deviations(
            off[read],
            scale=spread,
            tolerance=max(3.0 * float(off[read & ~over].max(initial=0.0)), 5.0 * noise),
        )
        if over.any():
            return self.result(
                Status.PARTIAL,
                f"{int(over.sum())} of {int(read.sum())} held-out inputs deviate by up to "
                f"{float(off[over].max()):.2g}, where the noise allows "
                f"{config.accept * noise:.2g}; try another seed",
                certificate,
            )
        widths = "-".join(map(str, self.network.hidden_widths))
        if noise <= config.exact * spread:
            return self.result(
                Status.RECOVERED, f"hidden layers {widths}; {certificate}", certificate
            )
        return self.result(
            Status.APPROXIMATED,
            f"hidden layers {widths}; {certificate}; coarse answers",
            certificate,
        )

    def result(
        self, status: Status, message: str, certificate: Certificate | None = None
    ) -> TwoHiddenResult:
        """Return what is known now."""
        widths = (0, 0) if self.network is None else self.network.hidden_widths
        return TwoHiddenResult(
            status=status,
            message=message,
            queries=self.target.queries,
            provenance=self.provenance,
            network=self.network,
            certificate=certificate,
            stages=tuple(self.stages),
            first_width=self.rows.count,
            second_width=widths[1],
            noise=self.noise.level,
            answers="log-odds" if self.probabilities else "values",
        )


class _Around:
    """Typical inputs as a cube, for measuring the noise."""

    def __init__(self, run: TwoHiddenRun) -> None:
        self.run, self.dimension, self.outputs = run, run.dimension, run.outputs

    def ask(self, cube: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Ask at ``4 cube - 2``: uniform points there are as long as Gaussian ones."""
        x = 4.0 * cube - 2.0
        answers = self.run.target(x)
        if self.run.probabilities:
            return cube, *read_probabilities(answers)
        return cube, answers, np.zeros(len(answers))
