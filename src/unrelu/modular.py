"""Learn a deep network in two halves, cut at a layer of high-threshold units.

Goel & Panigrahy 2018, Appendix E: where the units X_1, ..., X_k of a layer are rarely on
together, f = P(X_1, ..., X_k) looks like a sum of them to whoever correlates with it. The
part below the cut is then learned from f alone, whatever P is, and P afterwards, as a
function of units that are known by then.

With Gaussian x the cut may be the lowest layer. A cut in the middle has inputs z = h(x) that
are not Gaussian; h is known, or was learned by another method from other labels (a second
output that shares the trunk, say), and the units are found in z.

============================================  ==========================================
Appendix E, cut at the lowest layer           ``unrelu.thresholds.union.fit_union``; test
                                              test_both_parts_are_learned
Appendix E, Remark 1: a cut at depth l        ``unrelu.thresholds.cut.fit_cut``; tests
                                              test_a_cut_in_the_middle,
                                              test_a_cut_behind_two_layers,
                                              test_a_trunk_learned_by_another_method
the property ``E[prod X] / E[X] < mu^|S|-1``  measured: ``overlap`` of ``ModularResult``; test
                                              test_a_cut_in_the_middle
"one would be left with learning P"           :func:`learn_modular`, a polynomial of the units;
                                              test test_both_parts_are_learned
============================================  ==========================================

Deviations: Remark 1's robust algorithm is left open by the paper; ``fit_cut`` separates each level
of f from c_0, then the labels next to each unit. Neither the remark nor the labels promise the
weights of a unit on inputs that do not vary next to its hyperplane (outputs of ReLUs that are
off there): the units may then explain every sample, and the status is PARTIAL.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import ArrayLike, FloatArray
from unrelu.core.moments import to_numpy
from unrelu.errors import InvalidInput
from unrelu.networks import Network
from unrelu.progress import Progress, as_progress
from unrelu.result import (
    Certificate,
    Provenance,
    QueryStats,
    RecoveryResult,
    StageReport,
    Status,
)
from unrelu.samples import SampleSource, as_source
from unrelu.thresholds.algorithm import ThresholdConfig, recover_lowest_layer
from unrelu.thresholds.cut import fit_cut
from unrelu.thresholds.model import LowestLayerResult
from unrelu.thresholds.passes import Passes, rows_held_out

__all__ = ["ModularResult", "learn_modular"]

Lower = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True, repr=False)
class ModularResult(RecoveryResult):
    """Both parts of a network.

    Attributes
    ----------
    directions, thresholds
        The cut layer: unit rows ``(k, n)`` over its inputs, and ``(k,)``.
    exponents, coefficients
        The upper part as a polynomial of the units: ``(m, k)`` and ``(m,)``.
    activation
        "sign" or "relu".
    overlap
        Share of the samples with a unit on at which two or more are: mu of Remark 1, measured.
    lower
        h, the part below the cut, where it is not the input itself. It is not saved with the
        rest: set it again on a result that was loaded.
    """

    directions: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    thresholds: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    exponents: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    coefficients: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    activation: str = "sign"
    overlap: float = float("nan")
    lower: Lower | None = None

    def _own_fields(self) -> dict[str, Any]:
        return {k: v for k, v in super()._own_fields().items() if k != "lower"}

    def units(self, x: ArrayLike) -> FloatArray:
        """Return the outputs of the cut layer, ``(m, k)``."""
        points = np.asarray(x, dtype=np.float64)
        z = points if self.lower is None else np.asarray(self.lower(points))
        heights = z @ self.directions.T - self.thresholds
        if self.activation == "sign":
            return (heights > 0).astype(np.float64)
        return np.maximum(heights, 0.0)

    def predict(self, x: ArrayLike) -> FloatArray:
        """Return what the whole network answers, ``(m,)``."""
        return np.asarray(_monomials(self.units(x), self.exponents) @ self.coefficients)


class _Through(SampleSource):
    """Samples seen behind the lower part, whitened: ``(h(x) - mean) @ inverse.T``."""

    def __init__(self, samples: SampleSource, lower: Lower) -> None:
        self._samples, self._lower = samples, lower
        self.count, self.restartable = samples.count, samples.restartable
        total, square, rows = np.zeros(0), np.zeros((0, 0)), 0
        for x, _ in samples.batches():
            z = self._seen(x)
            if rows == 0:
                total, square = np.zeros(z.shape[1]), np.zeros((z.shape[1],) * 2)
            total, square, rows = total + z.sum(axis=0), square + z.T @ z, rows + len(z)
        self.mean = total / max(rows, 1)
        values, vectors = np.linalg.eigh(square / max(rows, 1) - np.outer(self.mean, self.mean))
        # Inputs of the cut that do not vary tell nothing about its weights on them.
        least = len(values) * np.finfo(np.float64).eps * float(values[-1])
        kept = values > max(least, float(np.finfo(np.float64).tiny))
        if not kept.any():
            raise InvalidInput("the lower part gives the same output at every sample")
        self.inverse = (vectors[:, kept] / np.sqrt(values[kept])).T
        self.input_dim = len(self.inverse)

    def _seen(self, x: Any) -> FloatArray:
        z = np.asarray(self._lower(to_numpy(x)), dtype=np.float64)
        if z.ndim != 2 or len(z) != len(x):
            raise InvalidInput(
                f"lower must map (m, n) to (m, p), gave {z.shape} for {len(x)} rows"
            )
        return z

    def _pieces(self, rows: int) -> Iterator[Any]:
        for x, y in self._samples.batches(rows):
            yield (self._seen(x) - self.mean) @ self.inverse.T, y

    def unwhitened(self, rows: FloatArray, cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Hyperplanes of h's own outputs, with unit rows."""
        normals = rows @ self.inverse
        length = np.linalg.norm(normals, axis=1)
        return normals / length[:, None], (cuts + normals @ self.mean) / length


def _lower_part(lower: Lower | Network | RecoveryResult | None) -> tuple[Lower | None, str]:
    """Return h, and why it may not be exact; empty where it is."""
    if not isinstance(lower, RecoveryResult):
        return lower, ""
    if lower.network is None:
        raise InvalidInput(f"the lower part was not learned: {lower.message}")
    found = lower.network
    w, b = found.weights[0], found.biases[0]
    first = found.activations[0]
    doubt = "" if lower.success else f" The lower part is {lower.status.value}: {lower.message}."
    return (lambda x: np.asarray(first(x @ w.T + b))), doubt


def _exponents(k: int, degree: int, *, powers: bool) -> FloatArray:
    pick = itertools.combinations_with_replacement if powers else itertools.combinations
    chosen = [c for d in range(degree + 1) for c in pick(range(k), d)]
    table = np.zeros((len(chosen), k))
    for row, combination in enumerate(chosen):
        for i in combination:
            table[row, i] += 1.0
    return table


def _monomials(units: FloatArray, exponents: FloatArray) -> FloatArray:
    columns = np.ones((len(units), len(exponents)))
    for row, powers in enumerate(exponents):
        for i in np.flatnonzero(powers):
            columns[:, row] *= units[:, i] ** int(powers[i])
    return columns


def learn_modular(
    source: Any,
    y: Any = None,
    *,
    lower: Lower | Network | RecoveryResult | None = None,
    activation: Literal["sign", "relu"] = "sign",
    degree: int = 2,
    rng: RandomState = None,
    config: ThresholdConfig | None = None,
    progress: Progress | None = None,
) -> ModularResult:
    """Learn the part below a cut of high-threshold units, then the part above.

    Parameters
    ----------
    source, y
        Samples, as for :func:`unrelu.samples.as_source`; read more than once.
    lower
        The part below the cut, h: a function or network that maps ``(m, n)`` to the cut's
        inputs ``(m, p)``; or a result of another method, whose first hidden layer is h. None:
        the cut is the lowest layer, and x is Gaussian.
    activation
        Of the cut layer.
    degree
        Of the polynomial that stands for the upper part. With sign units a
        polynomial of degree k is any function of them; those of which more than
        ``degree`` are on together are rare.

    Notes
    -----
    RECOVERED says what :func:`unrelu.recover_lowest_layer` says of the lowest layer; of a cut in
    the middle, that the units explain every sample but about one next to each for each of its
    numbers; it says nothing about h. The
    certificate tells how well the upper one, fitted on top, predicts held-out samples.
    """
    if activation not in ("sign", "relu"):
        raise InvalidInput(f"activation must be 'sign' or 'relu', got {activation!r}")
    if degree < 1:
        raise InvalidInput(f"degree must be at least 1, got {degree}")
    samples = as_source(source, y)
    if not samples.restartable:
        raise InvalidInput(
            "the samples are read twice: pass arrays, a path, or a function that opens the stream"
        )
    h, doubt = _lower_part(lower)
    below, seen = _cut_layer(samples, h, activation, rng, config, progress)
    provenance = Provenance(
        "goel-panigrahy/modular",
        rng if isinstance(rng, int) else None,
        {"activation": activation, "degree": degree, "cut": "lowest" if h is None else "middle"},
    )
    k = len(below.directions)
    draft = ModularResult(
        status=Status.PARTIAL if doubt and below.success else below.status,
        message=below.message + doubt,
        queries=below.queries,
        provenance=provenance,
        stages=below.stages,
        directions=seen[0],
        thresholds=seen[1],
        exponents=_exponents(k, degree, powers=activation == "relu"),
        activation=activation,
        lower=h,
    )
    if k == 0:
        return draft
    begin = time.perf_counter()
    # The rows that the lower part was not learned from either.
    held_out = rows_held_out(samples, ThresholdConfig() if config is None else config)
    fitted, certificate = _fit_upper(draft, samples, max(held_out, 1), progress)
    off = certificate.rms_deviation / certificate.scale
    report = StageReport(
        "upper part",
        seconds=time.perf_counter() - begin,
        message=f"a polynomial of degree {degree} with {len(fitted.coefficients)} terms",
        details={"held-out rms over spread": off},
    )
    message = draft.message
    if draft.status is Status.RECOVERED:
        above = f" Above them a polynomial of degree {degree}, off by {off:.1%}"
        message += f"{above} of the labels' spread."
    return dataclasses.replace(
        fitted, message=message, stages=(*below.stages, report), certificate=certificate
    )


def _cut_layer(
    samples: SampleSource,
    h: Lower | None,
    activation: Literal["sign", "relu"],
    rng: RandomState,
    config: ThresholdConfig | None,
    progress: Progress | None,
) -> tuple[LowestLayerResult, tuple[FloatArray, FloatArray]]:
    """Find the cut's units in x itself, or behind h; their rows and thresholds there."""
    if h is None:
        found = recover_lowest_layer(
            samples, activation=activation, rng=rng, config=config, progress=progress
        )
        return found, (found.directions, found.thresholds)
    cfg = ThresholdConfig() if config is None else config
    behind = _Through(samples, h)
    passes = Passes(behind, lambda labels: labels, cfg)
    fit = fit_cut(
        passes, rng=as_generator(rng), config=cfg, watch=as_progress(progress),
        inputs=behind.inverse,
    )  # fmt: skip
    result = LowestLayerResult(
        status=fit.status,
        message=fit.message,
        queries=QueryStats(samples=passes.samples),
        provenance=Provenance("goel-panigrahy/cut"),
        stages=tuple(fit.stages),
        directions=fit.directions,
        thresholds=fit.thresholds,
        angle_errors=fit.errors,
    )
    return result, behind.unwhitened(fit.directions, fit.thresholds)


def _fit_upper(
    draft: ModularResult, samples: SampleSource, held_out: int, progress: Progress | None
) -> tuple[ModularResult, Certificate]:
    """Least squares of the labels on monomials of the units, by normal equations."""
    watch = as_progress(progress)
    m = len(draft.exponents)
    gram, moment = np.zeros((m, m)), np.zeros(m)
    held: list[tuple[FloatArray, FloatArray]] = []
    seen = 0
    for x_raw, y_raw in samples.batches():
        x, y = to_numpy(x_raw), to_numpy(y_raw)
        cut = min(max(held_out - seen, 0), len(x))
        if cut:
            held.append((x[:cut], y[:cut]))
        rows = _monomials(draft.units(x[cut:]), draft.exponents)
        gram += rows.T @ rows
        moment += rows.T @ y[cut:]
        seen += len(x)
        watch.update("upper part", seen, samples.count)
    # Products that never occurred have a zero row: the least-norm solution leaves them 0.
    coefficients = np.asarray(np.linalg.lstsq(gram, moment, rcond=1e-12)[0], dtype=np.float64)
    fitted = dataclasses.replace(draft, coefficients=coefficients)
    points = np.concatenate([x for x, _ in held])
    labels = np.concatenate([y for _, y in held])
    on = (fitted.units(points) > 0.0).sum(axis=1)
    overlap = int((on > 1).sum()) / max(int((on > 0).sum()), 1)
    fitted = dataclasses.replace(fitted, overlap=overlap)
    scale = float(labels.std()) or 1.0
    certificate = Certificate.from_deviations(
        fitted.predict(points) - labels, scale=scale, tolerance=0.05 * scale
    )
    return fitted, certificate
