r"""How likely a perturbed network is regular (Daniely & Granot, Lemmas 2, 4, 6, 7, Theorem 5).

Each weight gets a uniform number of ``[-2^-d, 2^-d]`` added; q is the number of neurons and M a
bound on the weights. The chances returned are those of a violation, capped at nothing: above one
they say nothing.

Deviations
----------
- Item 5 of Lemma 6 is stated with :math:`\delta q^2 \sqrt d\, \delta (M+1) 2^{d+1}`; its proof
  and the sum in the proof of Lemma 2 have :math:`\delta q^2 \sqrt d\, d (M+1)^2 2^{d+1}`, which
  is used. Item 5 of Lemma 7 likewise squares :math:`dM^2 + 2`.
- Item 5 of Lemma 7 overlooks parallel hyperplanes, and Lemma 2 in depth three pieces on which the
  top layer is flat (:mod:`unrelu.extraction.general_position`).
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["lemma_seven", "lemma_six", "lemma_two_delta", "theorem_five"]


def lemma_six(d: int, q: int, most: float, delta: float) -> tuple[float, ...]:
    """Return ``p_1, ..., p_6`` of Lemma 6: chances that a depth-2 network violates each item."""
    return _items(d, q, most + 1.0, delta)


def lemma_seven(d: int, q: int, most: float, delta: float) -> tuple[float, ...]:
    """Return ``p_1, ..., p_7`` of Lemma 7, for a depth-3 network."""
    # Its proof: q^2 hyperplanes, as of neurons with weights up to d M^2 + 1.
    items = _items(d, q**2, d * most**2 + 2.0, delta)
    return (*items, sum(lemma_six(d, q, most, delta)))


def _items(d: int, q: int, size: float, delta: float) -> tuple[float, ...]:
    """Return the six chances for q hyperplanes with weights below ``size``."""
    power = 2.0**d
    return (
        d * q * delta * size * 2 * power,  # Lemma 6, item 1
        d * power * q**2 * delta * size,  # Lemma 6, item 2
        3 * d * q * delta,  # Lemma 6, item 3
        d**1.5 * q**2 * delta * size * power / 2,  # Lemma 6, item 4
        delta * q**2 * d**1.5 * size**2 * 2 * power,  # Lemma 6, item 5
        d * q * delta * power,  # Lemma 6, item 6
    )


def lemma_two_delta(d: int, q: int, most: float, depth: int) -> float:
    """Return the delta of Lemma 2, for which a violation has chance ``2^-d`` at most.

    Parameters
    ----------
    depth
        2 or 3.
    """
    if depth == 2:
        return float(1.0 / (10 * (most + 1) ** 2 * q**2 * d**1.5 * 2.0 ** (2 * d)))
    return float(1.0 / (20 * (d * most**2 + 2) ** 2 * q**4 * d**1.5 * 2.0 ** (2 * d)))


def theorem_five(d1: int, d2: int) -> Fraction:
    """Return the chance of Lemma 15, and so of Theorem 5, that a random top layer is flat.

    Sauer's sum itself, over the orthants: the paper's ``(e d2 / d1)^(d1 + 1)`` bounds it from
    ``d2 > d1`` on.
    """
    return Fraction(sum(math.comb(d2, i) for i in range(d1 + 2)), 2**d2)
