"""Algorithm 2 in multiple precision: numbers of any length, by python-flint (``unrelu[exact]``).

A target that answers in float64 cannot be asked at points that differ in their hundredth digit.
So what is asked here is a function of such points, for example a planted network that computes
with as many digits (:func:`precise_labels`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu._types import BoolArray, FloatArray
from unrelu.errors import InvalidInput
from unrelu.span.config import SpanConfig
from unrelu.span.printed import PrintedNumbers, PrintedSpan, Vectors, adaptive_gradients

__all__ = ["ManyBits", "precise_labels", "recover_span_precisely"]


def _flint() -> Any:
    try:
        import flint
    except ImportError as error:  # pragma: no cover - depends on the installation
        raise InvalidInput(
            "multiple precision needs python-flint: pip install 'unrelu[exact]'"
        ) from error
    return flint


class ManyBits:
    """Numbers of so many bits.

    The midpoints of flint's balls: an algorithm that is to run as in exact arithmetic would
    drown in their radii, which grow with every step. Flint has one precision at a time: the
    last one made counts.
    """

    def __init__(self, bits: int) -> None:
        if bits < np.finfo(np.float64).nmant + 1:
            raise InvalidInput(f"bits must be at least those of float64, got {bits}")
        self.bits = bits
        self.flint = _flint()
        self.flint.ctx.prec = 2 * bits  # guard digits: a solve loses some

    def vectors(self, values: FloatArray) -> Vectors:
        """Return float64 numbers exactly, as an array of objects of the same shape."""
        found = np.empty(values.size, dtype=object)
        found[:] = [self.flint.arb(float(value)) for value in values.ravel()]
        return found.reshape(values.shape)

    def power(self, exponent: int) -> Any:
        """Return ``2 ** exponent``."""
        return self.flint.arb(2) ** exponent

    def root(self, value: Any) -> Any:
        """Return the square root."""
        return value.mid().sqrt().mid()

    def solve(self, rows: Vectors, right: Vectors) -> Vectors:
        """Return y with ``rows @ y = right``, by elimination with pivots in midpoints."""
        matrix = self.flint.arb_mat([[entry.mid() for entry in row] for row in rows])
        column = self.flint.arb_mat([[entry.mid()] for entry in right])
        found = np.empty(len(right), dtype=object)
        found[:] = [entry.mid() for entry in matrix.solve(column).entries()]
        return found


def precise_labels(
    weights: Sequence[FloatArray], activation: str, threshold: float, arithmetic: ManyBits
) -> Callable[[Vectors], BoolArray]:
    """Return M of Section 4 in many digits: whether a network reaches its threshold.

    Parameters
    ----------
    weights
        Matrices from the first to the last, which has one row; no biases, as in the paper.
    activation
        A method of flint's ``arb``, ``"tanh"`` say, that maps 0 to 0 (Assumption 1).
    threshold
        What the paper scales to 1.
    """
    layers = [arithmetic.vectors(np.asarray(w, dtype=np.float64)) for w in weights]
    cut = arithmetic.vectors(np.array([threshold]))[0]

    def beyond(points: Vectors) -> BoolArray:
        labels = []
        for point in points:
            h = np.array([entry.mid() for entry in point])
            for layer in layers[:-1]:
                h = np.array([getattr(z.mid(), activation)().mid() for z in layer @ h])
            labels.append(bool((layers[-1] @ h)[0].mid() >= cut))
        return np.array(labels)

    return beyond


def recover_span_precisely(
    labels: Callable[[Vectors], BoolArray],
    n: int,
    rank: int,
    *,
    arithmetic: ManyBits,
    eta: float | None = None,
    rng: RandomState = None,
    config: SpanConfig | None = None,
) -> PrintedSpan:
    """Run Algorithm 2 as printed with as many digits as its own numbers ask for.

    Parameters
    ----------
    labels
        Tells of points ``(p, n)`` of the arithmetic whether they lie beyond the threshold.
    n, rank
        Inputs, and k.
    arithmetic
        Its bits decide N: the largest with ``3 N^2`` below them.
    eta
        Least slope of Assumption 4; ``2^-N`` where it is not given.

    Returns
    -------
    PrintedSpan
        Fewer than ``rank`` directions where Assumption 3 fails, whatever the precision.
    """
    config = SpanConfig() if config is None else config
    return adaptive_gradients(
        labels,
        n,
        rank,
        numbers=PrintedNumbers.carried(arithmetic.bits, eta),
        arithmetic=arithmetic,
        rng=as_generator(rng),
        draws=config.held_out,
        checks=config.probes,
    )
