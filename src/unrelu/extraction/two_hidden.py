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
from typing import Any

import numpy as np

from unrelu._random import RandomState
from unrelu._types import AnswerKind, FloatArray
from unrelu.core.explain import contradictions_of, explained
from unrelu.core.fit import FitConfig
from unrelu.core.price import Price
from unrelu.core.run import Run
from unrelu.extraction.box_explore import Exploration
from unrelu.extraction.box_fit import fit_all
from unrelu.extraction.box_points import BoxInputs
from unrelu.extraction.box_target import measure_noise
from unrelu.extraction.box_units import network_in, without_skip
from unrelu.extraction.held_out import compare_held_out
from unrelu.extraction.two_hidden_answers import Reader, TwoHiddenConfig
from unrelu.extraction.two_hidden_first import FirstLayer
from unrelu.extraction.two_hidden_rows import Rows
from unrelu.extraction.two_hidden_top import TopTarget, balanced_rows, parted, stacked
from unrelu.networks import ReLUNetwork
from unrelu.progress import Progress
from unrelu.result import Certificate, RecoveryResult, Status

__all__ = ["TwoHiddenConfig", "TwoHiddenResult", "extract_two_hidden"]


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
    answers: AnswerKind = "auto",
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
    run = Run(
        oracle,
        algorithm="extract_two_hidden",
        rng=rng,
        options={"answers": answers},
        budget=budget,
        progress=progress,
    )
    search = TwoHiddenRun(run, TwoHiddenConfig() if config is None else config)

    def steps() -> TwoHiddenResult:
        search.reader.look(answers)
        return search.searched()

    return run.ended(
        steps, search.result, lambda result: explained(run.target, result, result.answers)
    )


class TwoHiddenRun:
    """One run: what it knows, and its stages."""

    def __init__(self, run: Run, config: TwoHiddenConfig) -> None:
        self.run, self.config, self.rng = run, config, run.rng
        self.reader = Reader(run)
        self.first = FirstLayer(self.reader, config)
        self.network: ReLUNetwork | None = None
        self.hopeless = False  # whether it missed most held-out answers

    @property
    def rows(self) -> Rows:
        """Rows of the first layer."""
        return self.first.rows

    # -------------------------------------------------------------- the rest

    def layers_above(self, failed: FloatArray) -> None:
        """Recover the layers above as a network in a box of heights.

        Where a network is known that explains all but ``failed`` inputs ``(n, d)``, the search
        goes on from there: its rows are better than those that crossings gave.
        """
        config, known = self.config.above, None
        if self.network is not None and not self.hopeless:
            self.first.rows, known = parted(self.network)
        inputs = self.reader.draw(10_000)
        high = self.rows.heights(np.concatenate([inputs, failed])).max(axis=0, initial=1.0)
        top = TopTarget(self.reader.read, self.rows, high, self.reader.outputs)
        data = np.clip(top.cube(inputs), 0.0, 1.0)
        noise = measure_noise(top, self.rng, single=self.reader.single)
        if known is None:
            noise = dataclasses.replace(noise, level=max(noise.level, self.first.error))
        search = Exploration(top, BoxInputs(self.rows.count, data), noise, self.rng)
        if known is not None:
            start = ReLUNetwork([known.weights[0] * high, known.weights[1]], known.biases,
                                np.zeros((self.reader.outputs, len(high))))  # fmt: skip
            search.begin(start)
            search.take(search.ask(top.cube(failed), keep=False))
            search.explore(len(search.probes.points))
            if search.network is start:
                return
        else:
            search.begin()
            search.explore(config.probes)
        for _ in range(config.rounds):
            before = search.units
            search.balance()
            search.sharpen(config.accept)
            search.explore(config.probes)
            if search.units == before:
                break  # what is left unexplained may be the rows' fault: all are fitted next
        above = network_in(search.network, np.zeros(len(high)), high)
        above, _ = without_skip(above, search.relative_error())
        self.network = stacked(self.rows, above, inputs)

    def fit(self, failed: FloatArray) -> None:
        """Fit all parameters to answers of the run, and fresh ones.

        Fresh inputs are typical ones, such as switch units that few of them do, and neighbours
        of ``failed`` ones ``(n, d)``: what is seldom on together shows beside them only.
        """
        assert self.network is not None
        wanted = max(300, 4 * self.network.parameters // self.reader.outputs)
        pool = self.reader.draw(16 * wanted)
        fresh = pool[balanced_rows(self.network, pool, wanted)]
        if len(failed):
            near = np.resize(self.rng.permutation(failed), (wanted // 2, failed.shape[1]))
            spread = self.rng.uniform(0.0, 0.3, (len(near), 1))
            fresh = np.concatenate([fresh, near + spread * self.reader.draw(len(near))])
        with self.run.stage("fit"):
            self.reader.read(fresh)
        x, answers = self.recorded(4 * wanted)
        values, deviation = self.reader.judge(answers)
        fine = np.isfinite(deviation)
        x, values, deviation = x[fine], values[fine], deviation[fine]
        off = np.abs(values - self.network(x)).max(axis=1) / deviation
        far = max(1.0, float(off.max()) / FitConfig.outlier)
        for factor in (far, np.sqrt(far), 1.0):
            self.network = fit_all(self.network, x, values, factor * deviation)

    def recorded(self, most: int) -> tuple[FloatArray, FloatArray]:
        """Return answers of the run: those that the network misses, the latest, and others."""
        assert self.network is not None
        batches = [b for b in self.run.target.record.batches() if b.stage != "certificate"]
        x = np.concatenate([b.points for b in batches])
        y = np.concatenate([b.answers for b in batches])
        if len(x) <= most:
            return x, y
        values, deviation = self.reader.judge(y)
        off = np.abs(values - self.network(x)).max(axis=1) / deviation
        first = self.rng.permutation(len(x))
        first = first[np.argsort(~(off[first] > self.config.above.accept), kind="stable")]
        late = np.arange(len(x) - most // 2, len(x))
        return x[chosen := np.union1d(first[: most // 2], late)], y[chosen]

    def searched(self) -> TwoHiddenResult:
        """Run all stages."""
        self.first.find()
        if self.rows.count == 0 or self.rows.count > self.reader.dimension:
            return self.result(
                Status.ASSUMPTION_VIOLATED,
                f"{self.rows.count} first-layer hyperplanes were found for "
                f"{self.reader.dimension} inputs; this method needs one or more, and no more "
                "than inputs. Try extract_three_layer, or learn_from_queries",
            )
        k = float(self.rows.count)
        self.run.target.allowance.plan(
            price_two_hidden(self.reader.dimension, self.reader.outputs, k, 4.0 * k)
        )
        failed = np.empty((0, self.reader.dimension))
        for last in np.arange(self.config.above.rounds) == self.config.above.rounds - 1:
            with self.run.stage("layers above"):
                self.layers_above(failed)
            self.fit(failed)
            result, failed = self.certify()
            if last or (result.success and len(failed) == 0):
                break
            self.run.target.meter.rebook("certificate", "fit", self.run.stages[-1].queries)
        return result

    def certify(self) -> tuple[TwoHiddenResult, FloatArray]:
        """Compare with fresh answers at typical inputs, some of them wider.

        Returns also inputs at which answers of the run disagree.
        """
        assert self.network is not None
        config = self.config.above
        x = self.reader.draw(config.held_out)
        x[::4] *= self.rng.uniform(0.8, 1.4, (len(x[::4]), 1))
        parts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        with self.run.stage("certificate"):
            for part in np.split(x, [len(x) // 4]):  # a network that misses much fails soon
                parts.append(self.reader.read(part))
                points, values, deviation = (np.concatenate(p) for p in zip(*parts, strict=True))
                predicted = self.network(points)
                over = np.abs(values - predicted).max(axis=1) > config.accept * deviation
                if over.any():
                    break
        x = points
        if not np.isfinite(deviation).any():
            return self.result(Status.NUMERICAL_FAILURE, "no held-out answer can be read"), x
        seen = compare_held_out(values, predicted, deviation, over)
        self.hopeless = bool(2 * np.count_nonzero(over) > len(over))
        if seen.over.any():
            result = self.result(
                Status.PARTIAL,
                f"{int(seen.over.sum())} of {seen.certificate.samples} held-out inputs deviate by "
                f"up to {float(seen.off[seen.over].max()):.2g}, where "
                f"{seen.certificate.tolerance:.2g} was expected; try another seed",
                seen.certificate,
            )
            return result, x[seen.over]
        message = f"hidden layers {'-'.join(map(str, self.network.hidden_widths))}; "
        message += str(seen.certificate)
        if not seen.exact:
            message += "; the answers are coarse"
            return self.result(Status.APPROXIMATED, message, seen.certificate), x[:0]
        result = self.result(Status.RECOVERED, message, seen.certificate)
        found = contradictions_of(self.run.target, result, result.answers)
        return result, found.points.reshape(-1, self.reader.dimension)

    def result(
        self, status: Status, message: str, certificate: Certificate | None = None
    ) -> TwoHiddenResult:
        """Return what is known now."""
        widths = (0, 0) if self.network is None else self.network.hidden_widths
        return TwoHiddenResult(
            status=status,
            message=message,
            queries=self.run.target.queries,
            provenance=self.run.provenance,
            network=self.network,
            certificate=certificate,
            stages=tuple(self.run.stages),
            first_width=self.rows.count,
            second_width=widths[1],
            noise=self.reader.noise.level,
            answers="log-odds" if self.reader.probabilities else "values",
        )
