"""Learn a deep network in two halves, cut at a layer of high-threshold units.

Goel & Panigrahy 2018, Appendix E: where the units X_1, ..., X_k of a layer are rarely on
together, f = P(X_1, ..., X_k) looks like a sum of them to whoever correlates with it. The
part below the cut is then learned from f alone, whatever P is, and P afterwards, as a
function of units that are known by then.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Any, Literal

import numpy as np

from unrelu._random import RandomState
from unrelu._types import ArrayLike, FloatArray
from unrelu.core.moments import to_numpy
from unrelu.errors import InvalidInput
from unrelu.progress import Progress, as_progress
from unrelu.result import Certificate, Provenance, RecoveryResult, StageReport, Status
from unrelu.samples import SampleSource, as_source
from unrelu.thresholds.algorithm import ThresholdConfig, recover_lowest_layer
from unrelu.thresholds.passes import rows_held_out

__all__ = ["ModularResult", "learn_modular"]


@dataclasses.dataclass(frozen=True, repr=False)
class ModularResult(RecoveryResult):
    """Both parts of a network.

    Attributes
    ----------
    directions, thresholds
        The lower part: unit rows ``(k, n)`` and ``(k,)``.
    exponents, coefficients
        The upper part as a polynomial of the units: ``(m, k)`` and ``(m,)``.
    activation
        "sign" or "relu".
    """

    directions: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    thresholds: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    exponents: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    coefficients: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    activation: str = "sign"

    def units(self, x: ArrayLike) -> FloatArray:
        """Return the outputs of the cut layer, ``(m, k)``."""
        heights = np.asarray(x, dtype=np.float64) @ self.directions.T - self.thresholds
        if self.activation == "sign":
            return (heights > 0).astype(np.float64)
        return np.maximum(heights, 0.0)

    def predict(self, x: ArrayLike) -> FloatArray:
        """Return what the whole network answers, ``(m,)``."""
        return np.asarray(_monomials(self.units(x), self.exponents) @ self.coefficients)


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
    activation
        Of the cut layer.
    degree
        Of the polynomial that stands for the upper part. With sign units a
        polynomial of degree k is any function of them; those of which more than
        ``degree`` are on together are rare.

    Notes
    -----
    RECOVERED says what :func:`unrelu.recover_lowest_layer` says of the lower part; the
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
    lower = recover_lowest_layer(
        samples, activation=activation, rng=rng, config=config, progress=progress
    )
    provenance = Provenance(
        "goel-panigrahy/modular",
        rng if isinstance(rng, int) else None,
        {"activation": activation, "degree": degree},
    )
    k = len(lower.directions)
    draft = ModularResult(
        status=lower.status,
        message=lower.message,
        queries=lower.queries,
        provenance=provenance,
        stages=lower.stages,
        directions=lower.directions,
        thresholds=lower.thresholds,
        exponents=_exponents(k, degree, powers=activation == "relu"),
        activation=activation,
    )
    if k == 0:
        return draft
    begin = time.perf_counter()
    # The rows that the lower part was not learned from either.
    held_out = rows_held_out(samples, ThresholdConfig() if config is None else config)
    fitted, certificate = _fit_upper(draft, samples, max(held_out, 1), progress)
    report = StageReport(
        "upper part",
        seconds=time.perf_counter() - begin,
        message=f"a polynomial of degree {degree} with {len(fitted.coefficients)} terms",
        details={"held-out rms over spread": certificate.rms_deviation / certificate.scale},
    )
    message = lower.message
    if lower.status is Status.RECOVERED:
        message += (
            f" Above them a polynomial of degree {degree}, off by "
            f"{certificate.rms_deviation / certificate.scale:.1%} of the labels' spread."
        )
    return dataclasses.replace(
        fitted, message=message, stages=(*lower.stages, report), certificate=certificate
    )


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
    scale = float(labels.std()) or 1.0
    certificate = Certificate.from_deviations(
        fitted.predict(points) - labels, scale=scale, tolerance=0.05 * scale
    )
    return fitted, certificate
