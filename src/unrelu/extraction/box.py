"""Exact extraction of a network with one hidden layer that may only be asked in a box.

Setting
-------
``f(x) = A x + c + sum_j u_j relu(<w_j, x> + b_j)`` on ``low <= x <= high``, with m >= 1
outputs; the answers are values, a softmax's probabilities or a single probability, in double or
single precision. Only the function in the box is asked for: a unit that is on, or off, in all
of it belongs to the affine part.

Assumptions
-----------
Corners of random density, uniform points and the data (if given) switch every unit that
matters; hyperplanes are far enough apart to be told apart at the noise of the answers.

Guarantee
---------
RECOVERED: the network agreed with every held-out answer (uniform points, corners of random
density, data) within what the noise of the answers allows, that noise is far below their
spread, and no answer of the run contradicts it. APPROXIMATED: the same with coarse answers.

The algorithm
-------------
1. Measure the noise (:func:`~unrelu.extraction.box_target.measure_noise`), and the affine
   function around one point (``Exploration.start``).
2. Predict probes: corners of random density, uniform points, data, points on chords between
   them. Where the prediction fails, follow the chord from the nearest explained probe to the
   first unknown hyperplane (:func:`~unrelu.extraction.box_follow.find_first_kink`), measure the
   unit behind it by a one-sided star on the residual
   (:func:`~unrelu.extraction.box_follow.measure_star`), add it, and predict again
   (``Exploration.explore``). Probes are asked once: predicting them again costs nothing.
3. Fit all parameters to all answers, with enough of them on both sides of every unit
   (``BoxRun.settle``); what counts as explained shrinks to the noise. Explore again, until
   nothing is left.
4. Units that do not switch in the box, or say nothing beyond the noise, are dropped; the
   signs of the others are resolved where they are determined.
5. Certificate at fresh inputs. What fails there becomes probes for another round, and a fresh
   certificate ends that.

Why so: lines alone meet few of the units, as most chords of a box are short and sums of many
coordinates concentrate; a gradient measured on the residual may step across every unit that is
known already, so steps are long, and long steps are what coarse answers need.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from unrelu._random import RandomState
from unrelu._types import AnswerKind, ArrayLike, FloatArray
from unrelu.core.answers import look_for_probabilities
from unrelu.core.explain import explained
from unrelu.core.levels import Levelled, output_levels, unlevelled_network
from unrelu.core.noise import answer_grid
from unrelu.core.price import Price
from unrelu.core.run import Run
from unrelu.errors import InvalidInput
from unrelu.extraction.box_config import BoxConfig
from unrelu.extraction.box_explore import Answers, Exploration
from unrelu.extraction.box_fit import fit_all
from unrelu.extraction.box_points import BoxInputs
from unrelu.extraction.box_target import BoxTarget, measure_noise
from unrelu.extraction.box_units import network_in, without_skip
from unrelu.extraction.held_out import HeldOut, compare_held_out
from unrelu.lines.domains import Domain, as_domain
from unrelu.networks import ReLUNetwork
from unrelu.progress import Progress
from unrelu.result import Certificate, RecoveryResult, Status

__all__ = ["BoxConfig", "BoxResult", "extract_in_box"]


@dataclasses.dataclass(frozen=True, repr=False)
class BoxResult(RecoveryResult):
    """A network that equals the target in a box.

    Attributes
    ----------
    width
        Units that switch in the box.
    signs_determined
        Whether the network has no skip term: its units point the right way.
    noise
        Measured deviation of an answer, as it was read.
    answers
        ``"values"`` or ``"log-odds"``: what the network computes.
    low, high
        The box, ``(d,)`` each.
    """

    width: int = 0
    signs_determined: bool = False
    noise: float = 0.0
    answers: str = "values"
    low: FloatArray | None = None
    high: FloatArray | None = None


def price_in_box(d: int, m: int, units: float) -> Price:
    """Return the price of a box: stars and chords, probes, the fit, the certificate."""
    stars = units * (1.6 * d * (2.0 if m == 1 else 1.0) + 40.0)
    low = 1500.0 + 3.0 * d + stars + 4000.0
    return round(0.6 * low), round(2.0 * low)


def extract_in_box(
    oracle: Any,
    *,
    domain: tuple[ArrayLike, ArrayLike] | None = None,
    data: ArrayLike | None = None,
    answers: AnswerKind = "auto",
    rng: RandomState = None,
    budget: int | None = None,
    progress: Progress | None = None,
    config: BoxConfig | None = None,
) -> BoxResult:
    """Recover a network with one hidden layer in a box of inputs.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.Oracle`, or anything that
        :func:`~unrelu.oracles.as_oracle` takes.
    domain
        ``(low, high)``, numbers or arrays of length d; None: the oracle's own box.
    data
        Rows like those the target is meant for, ``(n, d)``; parts outside the box are moved to
        its faces.
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
    run = Run(
        oracle,
        algorithm="extract_in_box",
        rng=rng,
        options={"answers": answers, "data": data is not None},
        budget=budget,
        progress=progress,
    )
    target = run.target
    if domain is None and target.box is None:
        raise InvalidInput("give the box: domain=(low, high), or connect(..., input_range=...)")
    area = as_domain(target.box if domain is None else domain, target.input_dim)  # type: ignore[arg-type]
    if area.kind != "box":
        raise InvalidInput("extract_in_box needs a box (low, high)")
    search = BoxRun(run, area, config or BoxConfig())

    def steps() -> BoxResult:
        search.look(answers, data)
        return search.searched()

    return run.ended(
        steps, search.result, lambda result: explained(target, result, result.answers)
    )


class BoxRun:
    """The search: what it knows, and its stages."""

    def __init__(self, run: Run, area: Domain, config: BoxConfig) -> None:
        self.run, self.area, self.config = run, area, config
        self.probabilities = False
        self.levels = np.ones(run.target.output_dim)  # what the outputs are divided by
        self.search: Exploration | None = None
        self.signs = False  # whether units are turned so that no affine term is left
        self.cube: BoxTarget | None = None

    def look(self, answers: str, data: ArrayLike | None) -> None:
        """Find out what the answers are and how exact."""
        low, high = self.area.low, self.area.high
        with self.run.stage("calibration") as details:
            found, seen = look_for_probabilities(
                self.run.target, lambda n: self.area.draw(n, self.run.rng), ways_out=()
            )
            record = self.run.target.record
            precision, step = answer_grid(record.first_rows(len(record))[1])
            self.probabilities = answers == "probabilities" or (answers == "auto" and found)
            single = bool(precision > np.finfo(np.float64).eps)
            if not self.probabilities:
                self.levels = output_levels(seen)
            self.cube = cube = BoxTarget(
                Levelled(self.run.target, self.levels),
                self.area,
                probabilities=self.probabilities,
                single=single,
            )
            step = 0.0 if self.probabilities else step / float(self.levels.min())
            noise = measure_noise(cube, self.run.rng, single=single, grid=step)
            details |= {"noise": noise.level, "float32": single}
        if not math.isfinite(noise.level):
            return
        rows = None
        if data is not None:
            x = np.asarray(data, dtype=np.float64).reshape(-1, len(low))
            rows = (np.clip(x, low, high) - low) / (high - low)
        inputs = BoxInputs(len(low), rows)
        self.search = Exploration(cube, inputs, noise, self.run.rng)

    def searched(self) -> BoxResult:
        """Explore, settle and certify, until a certificate passes or rounds end."""
        search, config = self.search, self.config
        if search is None:
            return self.result(Status.NUMERICAL_FAILURE, _UNREAD)
        with self.run.stage("exploration"):
            search.begin()
            search.explore(config.probes)
        d, m = search.target.dimension, search.target.outputs
        self.run.target.allowance.plan(price_in_box(d, m, float(search.units)))
        for turn in range(config.rounds):
            done = self.settle()
            if not done:
                break
            self.turn()
            status, message, certificate, failed = self.certify()
            result = self.result(status, message, certificate)
            if failed is None or turn == config.rounds - 1:
                return result
            self.run.target.meter.rebook("certificate", "exploration", self.run.stages[-1].queries)
            search.take(failed)
        return self.result(Status.PARTIAL, self.stalled())

    def settle(self) -> bool:
        """Fit and explore in turn until all probes agree within the noise."""
        search, config = self.search, self.config
        assert search is not None
        for _ in range(config.rounds):
            before = search.units
            with self.run.stage("fit") as details:
                search.balance()
                search.sharpen(config.accept)
                details |= {"units": search.units, "explained within": search.slack}
            with self.run.stage("exploration"):
                done = search.explore(config.probes)
            if done and search.units == before and search.slack <= 2.0 * config.accept:
                return True
        return False

    def turn(self) -> None:
        """Turn units over so that the affine term vanishes, where that is determined.

        What was left of it belongs to the units: they are fitted again without it.
        """
        search = self.search
        assert search is not None
        before, rows = search.network, search.nearly_explained(1.0)
        turned, self.signs = without_skip(before, search.relative_error())
        if not self.signs:
            return
        failing = np.count_nonzero(search.misses(rows) > search.slack)
        with self.run.stage("fit"):
            fitted = fit_all(turned, rows.points, rows.values, rows.deviation)
        none = np.zeros((fitted.output_dim, fitted.input_dim))
        search.network = ReLUNetwork(fitted.weights, fitted.biases, none)
        if np.count_nonzero(search.misses(rows) > search.slack) > failing:
            search.network, self.signs = before, False

    def stalled(self) -> str:
        """Say what is left unexplained."""
        search = self.search
        assert search is not None
        miss = search.misses(search.probes)
        bad, found = int(np.count_nonzero(miss > search.slack)), f"{search.units} units were found"
        if bad == 0:
            return (
                f"{found} and all {len(miss)} probes of the box agree within {miss.max():.2g} "
                f"deviations of an answer, but the fit did not come to rest at the noise: it "
                f"explains {search.slack:.2g} deviations where {self.config.accept:.2g} are "
                "allowed. Try another seed, or more probes"
            )
        return (
            f"{found}, but {bad} of {len(miss)} probes of the box still disagree, by up to "
            f"{miss.max():.2g} deviations of an answer; the target may have more than one hidden "
            "layer, or units too close together for its precision. Try another seed, or "
            "learn_from_queries"
        )

    def certify(self) -> tuple[Status, str, Certificate, Answers | None]:
        """Compare with fresh answers: uniform points, corners, data."""
        search, config = self.search, self.config
        assert search is not None
        n, inputs = config.held_out, search.inputs
        kinds = [inputs.uniform(n, self.run.rng), inputs.corners(2 * n, self.run.rng)]
        if inputs.data is not None:
            kinds.append(inputs.likely(n, self.run.rng))
        with self.run.stage("certificate"):
            held = search.ask(np.concatenate(kinds), keep=False)
        usual = "uniform and corner" if inputs.data is None else "uniform, corner and data"
        seen = self.compared(held, usual)
        if seen.over.any():
            message = (
                f"{int(seen.over.sum())} of {seen.certificate.samples} held-out inputs deviate by "
                f"up to {float(seen.off[seen.over].max()):.2g}, where "
                f"{seen.certificate.tolerance:.2g} was expected: a unit that no probe switched; "
                "raise BoxConfig.probes, or give data"
            )
            return Status.PARTIAL, message, seen.certificate, held
        message = f"{search.units} hidden units; {seen.certificate}"
        if seen.exact:
            return Status.RECOVERED, message, seen.certificate, None
        return Status.APPROXIMATED, f"{message}; the answers are coarse", seen.certificate, None

    def compared(self, held: Answers, distribution: str) -> HeldOut:
        """Compare the model with held-out answers."""
        search = self.search
        assert search is not None
        return compare_held_out(
            held.values,
            search.network(held.points),
            held.deviation,
            search.misses(held) > max(self.config.accept, search.slack),
            distribution=distribution,
            level=float(self.levels.max()),
        )

    def beyond(self, x: FloatArray) -> Answers:
        """Ask at inputs ``(n, d)`` that may lie outside the box."""
        search = self.search
        assert search is not None
        assert self.cube is not None
        unit = (x - self.area.low) / (self.area.high - self.area.low)
        points, values, coarseness = self.cube.ask(unit, inside=False)
        return Answers(points, values, search.noise.at(values, coarseness))

    def result(
        self, status: Status, message: str, certificate: Certificate | None = None
    ) -> BoxResult:
        """Return what is known now."""
        search = self.search
        network: ReLUNetwork | None = None
        if search is not None:
            network = network_in(search.network, self.area.low, self.area.high)
            if self.signs:
                network = ReLUNetwork(network.weights, network.biases)
            network = unlevelled_network(network, self.levels)
        return BoxResult(
            status=status,
            message=message,
            queries=self.run.target.queries,
            provenance=self.run.provenance,
            network=network,
            certificate=certificate,
            stages=tuple(self.run.stages),
            width=0 if search is None else search.units,
            signs_determined=self.signs,
            noise=0.0 if search is None else search.noise.level * float(self.levels.max()),
            answers="log-odds" if self.probabilities else "values",
            low=self.area.low,
            high=self.area.high,
        )


_UNREAD = (
    "the probabilities underflow to 0 or 1 at nearly all inputs of the box, where their "
    "logarithms cannot be read; give a smaller box, or ask the target for logits"
)
