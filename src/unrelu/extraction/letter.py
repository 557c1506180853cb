"""The algorithms of Daniely & Granot to the letter: ``faithful=True`` of both extractions.

Reference
---------
A. Daniely and E. Granot, *An Exact Poly-Time Membership-Queries Algorithm for
Extracting a Three-Layer ReLU Network*, 2021.

Setting
-------
Black-box access to a network of equation (1) or (3) with one output, and the paper's delta.
The numbers are those of the oracle: an :class:`~unrelu.oracles.ExactOracle` is asked, and
everything computed, in rationals, and the network comes back bit for bit. Any other oracle is
asked in float64, as far as its digits carry steps of delta^2.

Assumptions
-----------
The target is delta-regular (Definition 1; ``general_position`` measures it); in depth three also
``d1 <= d`` with W of full row rank, no zero partial derivative of the top layer, and at least two
rows.

Guarantee
---------
RECOVERED: the network agreed with every answer of the run and with 1000 held-out ones; exactly,
where answers are exact. For delta-regular targets of Theorems 1 and 2 that is certain, for those
of Theorem 3 it has probability ``1 - 2^-d`` over the draws of Algorithm 7.

Map to the paper
----------------
==========================================  =====================================
FIND_CP, Algorithm 1                        :func:`unrelu.extraction.letter_boxes.find_cp`
AFFINE, Algorithm 2                         :func:`unrelu.extraction.letter_boxes.affine`
FIND_HP, Algorithm 3                        :func:`unrelu.extraction.letter_boxes.find_hp`
IS_CONVEX, Algorithm 4                      :func:`unrelu.extraction.letter_boxes.is_convex`
IS_GENERAL, Algorithm 5                     :func:`unrelu.extraction.letter_boxes.is_general`
3.2.2, all critical points of an axis       :func:`unrelu.extraction.letter_boxes.critical_points`
Algorithm 6, Theorems 1 and 4               :func:`unrelu.extraction.letter_two.recover_depth_two`
Theorem 2: all half-axes                    ``recover_depth_two(orthant=True)``
3.5.1, the list L                           ``candidate_hyperplanes``
3.5.2, Algorithm 7, lines 1 and 2           :func:`unrelu.extraction.letter_three.spread_of`
3.5.2, Algorithm 7, lines 3 to 8            :func:`unrelu.extraction.letter_three.is_first_layer`
3.5.3, identifying directions               :func:`unrelu.extraction.letter_three.find_directions`
3.5.4, top two layers by a right inverse    :func:`unrelu.extraction.letter_three.top_layers`
Theorem 3                                   ``recover_depth_three``
==========================================  =====================================

Deviations
----------
- Algorithm 1, line 3, as printed finds the critical point ``a`` again: ``AFFINE(x_L)``, left of
  a, differs from every map to its right. As long as ``x_L <= a`` the map at ``a + delta / 2`` is
  compared instead, which lies on the piece after a. So nothing left of a is asked either, as
  Theorem 2 needs for ``a = 0``.
- Algorithms 3 and 4 step along the first axis; in the orthant along the axis on which the point
  lies (proof of Theorem 2): along another one half of the points would be outside.
- Algorithm 7, line 4, reads ``d(z, P) > R`` for a point of P; the proof of Lemma 11 needs
  ``d(z, P_k) > R``.
- Algorithm 7, line 4, has no such point where P_k is parallel to P: such k are left out. A
  second-layer hyperplane is parallel to the row that alone is on there; another row still
  separates it, so two rows are needed.
- Algorithm 7, line 1, needs ``d1 + d2``, which the paper calls unknown: the caller bounds it.
- Gaussians are drawn in float64 and taken as rationals.
- Rows have a largest weight of one instead of unit norm, which is irrational.
- 3.5.3 asks on both sides, so that a zero derivative is a status and no wrong sign.
- Beyond the paper, units are turned over where that explains the affine term (equation 2 leaves
  their signs open); what affine term remains in depth three is carried by two units.
- Held-out answers are compared at the end, since a caller's delta may be too large.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._numbers import whole_number
from unrelu._random import RandomState
from unrelu._types import ArrayLike
from unrelu.core.run import Run
from unrelu.errors import InvalidInput
from unrelu.extraction.letter_run import (
    Ended,
    FaithfulThreeLayerResult,
    FaithfulTwoLayerResult,
    Letter,
    as_target,
)
from unrelu.extraction.letter_three import (
    DepthThree,
    most_queries_depth_three,
    recover_depth_three,
)
from unrelu.extraction.letter_two import DepthTwo, most_queries_depth_two, recover_depth_two
from unrelu.lines.domains import as_domain
from unrelu.progress import Progress

__all__ = [
    "FaithfulThreeLayerResult",
    "FaithfulTwoLayerResult",
    "extract_three_layer_as_printed",
    "extract_two_layer_as_printed",
]


# ----------------------------------------------------------------- Theorems 1, 2


def extract_two_layer_as_printed(
    oracle: Any,
    *,
    delta: Any,
    domain: str | tuple[ArrayLike, ArrayLike] = "all",
    rng: RandomState = None,
    progress: Progress | None = None,
) -> FaithfulTwoLayerResult:
    """Algorithm 6 (Theorem 1), or Theorem 2 with ``domain="nonnegative"``.

    Parameters
    ----------
    oracle
        An :class:`~unrelu.oracles.ExactOracle` or a :class:`~unrelu.rational.RationalNetwork` for
        exact arithmetic, or what :func:`~unrelu.oracles.as_oracle` takes.
    delta
        The target is delta-regular for this one: a Fraction, a number, or a text ``"1/4095"``.
    """
    run = Run(
        as_target(oracle),
        algorithm="extract_two_layer",
        rng=rng,
        options={"faithful": True, "delta": str(delta), "domain": str(domain)},
        progress=progress,
    )
    area = as_domain(domain, run.target.input_dim)
    if area.kind == "box":
        raise InvalidInput("faithful=True is for all of space or the orthant, as the paper is")
    letter, orthant = Letter(run, delta, area), area.kind == "nonnegative"
    found: list[DepthTwo] = []

    def recover() -> list[Any]:
        depth_two = recover_depth_two(
            letter.function, letter.number(letter.delta), draw=letter.draw, orthant=orthant
        )
        found.append(depth_two.with_signs() if letter.function.exact else depth_two)
        return _layers_of_two(found[0])

    def result(ended: Ended) -> FaithfulTwoLayerResult:
        d, width = run.target.input_dim, len(found[0].signs) if found else 0
        most = most_queries_depth_two(
            d, (d if orthant else 1) * width, letter.delta, orthant=orthant
        )
        return FaithfulTwoLayerResult(
            **letter.facts(ended),
            width=width,
            signs_determined=bool(found and found[0].turned),
            most_queries=most,
        )

    def steps() -> FaithfulTwoLayerResult:
        letter.look()
        return result(letter.ended(recover))

    return run.ended(
        steps, lambda status, message: result(Ended(status, message)), letter.explained
    )


def _layers_of_two(found: DepthTwo) -> list[Any]:
    """Return weights, biases and skip of equation (2)."""
    skip = None if found.turned else found.linear[None]
    return [
        [found.weights, np.array([found.signs], dtype=object)],
        [found.biases, [found.constant]],
        skip,
    ]


# -------------------------------------------------------------------- Theorem 3


def extract_three_layer_as_printed(
    oracle: Any,
    *,
    delta: Any,
    units: int | None,
    rng: RandomState = None,
    progress: Progress | None = None,
) -> FaithfulThreeLayerResult:
    """Section 3.5 (Theorem 3); see :func:`extract_two_layer_as_printed`.

    Parameters
    ----------
    units
        ``d1 + d2`` of Algorithm 7's first line, or more.
    """
    if units is None:
        raise InvalidInput(
            "faithful=True needs units, a bound on d1 + d2, as line 1 of Algorithm 7 does"
        )
    units = whole_number(units, "units", least=2)
    run = Run(
        as_target(oracle),
        algorithm="extract_three_layer",
        rng=rng,
        options={"faithful": True, "delta": str(delta), "units": units},
        progress=progress,
    )
    letter = Letter(run, delta, as_domain("all", run.target.input_dim))
    found: list[DepthThree] = []

    def recover() -> list[Any]:
        depth_three = recover_depth_three(
            letter.function, letter.number(letter.delta), units, rng=run.rng, stage=run.stage
        )
        if letter.function.exact:
            top = depth_three.top.with_signs()
            depth_three = dataclasses.replace(depth_three, top=top)
        found.append(depth_three)
        return _layers_of_three(depth_three)

    def result(ended: Ended) -> FaithfulThreeLayerResult:
        d = run.target.input_dim
        if not found:
            return FaithfulThreeLayerResult(**letter.facts(ended))
        first = np.asarray(found[0].weights, dtype=np.float64)
        widths = len(first), len(found[0].top.signs)
        # A second-layer unit crosses the axis at most once in each of d1 + 1 states.
        met = widths[0] + widths[1] * (widths[0] + 1)
        most = most_queries_depth_three(d, widths, met, letter.delta)
        return FaithfulThreeLayerResult(
            **letter.facts(ended),
            first_width=widths[0],
            second_width=widths[1],
            first_weights=first,
            first_biases=np.asarray(found[0].biases, dtype=np.float64),
            first_signed=True,
            condition=float(np.linalg.cond(first)),
            starts=1,
            most_queries=most,
        )

    def steps() -> FaithfulThreeLayerResult:
        letter.look()
        return result(letter.ended(recover))

    return run.ended(
        steps, lambda status, message: result(Ended(status, message)), letter.explained
    )


def _layers_of_three(found: DepthThree) -> list[Any]:
    """Return weights and biases; what affine term there is, in two units that are never off."""
    top, zero = found.top, 0 * found.top.linear
    rows, biases, outputs = list(top.weights), list(top.biases), list(top.signs)
    for sign in (1, -1):  # <v, h> = relu(<v+, h>) - relu(<v-, h>), as h >= 0
        part = np.maximum(sign * top.linear, zero)
        if (part != 0).any():
            rows.append(part)
            biases.append(0 * top.constant)
            outputs.append(sign)
    return [
        [found.weights, np.array(rows), np.array([outputs], dtype=object)],
        [found.biases, np.array(biases), [top.constant]],
    ]
