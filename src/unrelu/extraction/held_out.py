"""Held-out answers that have a deviation each, compared with a network: one certificate."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.explain import EXACT_NOISE
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.result import Certificate

__all__ = ["HeldOut", "compare_held_out"]


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """What a network does at held-out answers.

    Attributes
    ----------
    certificate
        In the units of the target's answers.
    off
        Largest deviation of each answer, ``(n,)``.
    over
        Where the noise does not explain it.
    exact
        Whether the noise is small beside the answers' spread, and the deviations beside the
        noise.
    """

    certificate: Certificate
    off: FloatArray
    over: BoolArray
    exact: bool


def compare_held_out(
    values: FloatArray,
    predicted: FloatArray,
    deviation: FloatArray,
    over: BoolArray,
    *,
    distribution: str = "standard Gaussian",
    level: float = 1.0,
) -> HeldOut:
    """Compare answers with predictions, both ``(n, m)``.

    ``deviation`` ``(n,)`` is that of each answer, infinite where it cannot be read; ``over`` says
    which ones the noise does not explain; ``level`` is what the answers were divided by.
    """
    useful = TwoLayerConfig.useful
    off = np.abs(values - predicted).max(axis=1)
    read = np.isfinite(deviation)
    seen = values[read]
    spread = float((seen - seen[0]).std(axis=0).max())  # a constant varies by nothing
    noise = float(np.median(deviation[read]))
    if spread <= noise:  # a constant is judged by its size
        spread = max(float(np.abs(seen).max()), noise / useful)
    tolerance = max(3.0 * float(off[read & ~over].max(initial=0.0)), 5.0 * noise)
    certificate = Certificate.from_deviations(
        off[read] * level,
        scale=spread * level,
        tolerance=tolerance * level,
        distribution=distribution,
    )
    exact = noise <= useful * spread and tolerance <= EXACT_NOISE * noise
    return HeldOut(certificate, off, over & read, exact)
