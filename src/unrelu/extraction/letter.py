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
As printed; in practice; how the two deviate; the tests that fail where the line is broken.

==============================  ==================================================================
Theorems 1, 4; Algorithm 6      ``recover_depth_two``; in practice ``first_line``;
                                deviates: a random line, one gradient a piece;
                                test_theorem_one_gives_the_network_back_bit_for_bit,
                                test_what_the_boxes_ask_is_counted
Theorem 2, section 3.4.1        ``recover_depth_two(orthant=True)``; in practice
                                ``UnitSearch.cover``, and ``OrthantSearch`` over a first layer;
                                deviates: the residual is searched, so that no unit is met twice;
                                test_theorem_two_stays_in_the_orthant,
                                test_a_unit_met_on_several_half_axes_is_one_unit
Theorem 3, section 3.5          ``recover_depth_three``; in practice
                                :func:`unrelu.extraction.three_layer.extract_three_layer`;
                                deviates: rows in a random subspace, all sharpened at the end;
                                test_theorem_three_gives_the_network_back_bit_for_bit,
                                test_units_that_never_switch_end_in_the_affine_term
Algorithm 1, FIND_CP, Lemma 13  ``find_cp``; in practice ``find_kinks``; deviates: line 3 starts
                                behind a, practice intersects neighbouring pieces;
                                test_find_cp_gives_the_critical_points_from_left_to_right,
                                test_line_three_as_printed_would_find_its_own_start_again
3.2.2, nice functions           ``critical_points``; in practice ``scan_line``;
                                test_the_grid_must_keep_its_distance,
                                test_on_the_half_axis_nothing_outside_is_asked,
                                test_steps_on_the_grid_end_within_half_of_delta
Algorithm 2, AFFINE, Lemma 12   :func:`unrelu.extraction.letter_boxes.affine`; in practice
                                ``measure_gradients``; deviates: steps as long as the piece
                                allows;
                                test_affine_is_exact_near_a_general_point
Algorithm 3, FIND_HP, Lemma 14  ``find_hp``; in practice ``solve_pieces``, and ``measure_rows`` in
                                depth three; deviates: both sides share their gradients with the
                                neighbours; test_find_hp_and_is_convex_give_a_unit_up_to_sign,
                                test_find_hp_steps_by_half_of_delta_and_its_square
Algorithm 4, IS_CONVEX          ``is_convex``; in practice ``_output_vectors``; deviates: the sign
                                of the jump of slope that the line showed;
                                test_find_hp_and_is_convex_give_a_unit_up_to_sign
Algorithm 5, IS_GENERAL         ``is_general``; in practice ``_second_differences``; deviates: at
                                two widths, against the noise;
                                test_find_hp_and_is_convex_give_a_unit_up_to_sign
3.5.1, the list L               ``candidate_hyperplanes``; in practice ``search_line``; deviates:
                                a random line; test_the_list_holds_every_row
Algorithm 7, 1-2; Lemmas 9-11   ``spread_of``; in practice ``LayerTestConfig``; deviates: widths
                                from the noise, no probability;
                                test_lines_one_and_two_of_algorithm_seven
Algorithm 7, 3-8; Lemma 8       ``is_first_layer``; in practice ``find_first_layer``; deviates:
                                two far sides instead of all k, which the bound 1 - 2^-d does not
                                cover; test_algorithm_seven_tells_the_layers_apart,
                                test_algorithm_seven_goes_beyond_each_hyperplane
3.5.3, identifying directions   ``find_directions``; in practice ``orient_rows``; deviates:
                                several places, where the first is flat;
                                test_directions_and_the_top_layers,
                                test_no_direction_shows_where_the_top_is_flat
3.5.4, the top two layers       ``top_layers``; in practice ``TopOracle``; deviates: the orthant
                                is entered by a hair; test_directions_and_the_top_layers,
                                test_without_a_right_inverse_there_are_no_directions
Equation (2), signs left open   ``DepthTwo.with_signs``; in practice ``resolve_signs``; deviates:
                                signs are resolved where determined;
                                test_the_one_subset_with_a_sum,
                                test_theorem_one_gives_the_network_back_bit_for_bit
Definition 1, section 3.3       ``general_position``; in practice none, steps come from the noise;
                                deviates: parallel hyperplanes count by their distance;
                                test_critical_points_near_zero_and_far_out, test_a_short_piece,
                                test_angles_between_hyperplanes_and_with_axes,
                                test_a_hyperplane_near_a_critical_point,
                                test_two_pieces_with_one_map_are_not_nice,
                                test_the_grid_keeps_its_distance,
                                test_depth_three_counts_the_axis_exactly
Lemmas 1 and 5, measure zero    ``GeneralPosition.as_printed``; in practice none; deviates: items
                                1 and 4 fail in depth three, and it says so;
                                test_parallel_hyperplanes_are_irregular_as_printed_only,
                                test_in_depth_three_rows_have_parallels,
                                test_in_depth_three_flat_pieces_repeat_a_map
Lemma 2, perturbed networks     ``lemma_two_delta``; in practice none;
                                test_lemma_two_follows_from_six_and_seven,
                                test_perturbed_networks_are_regular_for_the_lemmas_delta
Lemmas 6 and 7, item by item    ``lemma_six``, ``lemma_seven``; in practice none; deviates: item 5
                                as its proof has it; test_lemma_six_item_by_item
Lemma 3, W is surjective        ``GeneralPosition.surjective``; in practice ``row_rank``;
                                test_flat_tops_and_missing_right_inverses_are_named
Lemma 4, Lemma 15, Theorem 5    ``theorem_five``, ``GeneralPosition.flat``; in practice none, flat
                                spots are left for others; deviates: Sauer's sum itself;
                                test_theorem_five_bounds_how_often_tops_are_flat,
                                test_flat_tops_and_missing_right_inverses_are_named
==============================  ==================================================================

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
    FaithfulThreeLayerResult,
    FaithfulTwoLayerResult,
    Letter,
    PrintedEnd,
    as_target,
    check_answers,
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
    answers: str = "values",
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
    check_answers(answers)
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

    def result(ended: PrintedEnd) -> FaithfulTwoLayerResult:
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
        steps, lambda status, message: result(PrintedEnd(status, message)), letter.explained
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
    answers: str = "values",
    rng: RandomState = None,
    progress: Progress | None = None,
) -> FaithfulThreeLayerResult:
    """Section 3.5 (Theorem 3); see :func:`extract_two_layer_as_printed`.

    Parameters
    ----------
    units
        ``d1 + d2`` of Algorithm 7's first line, or more.
    """
    check_answers(answers)
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

    def result(ended: PrintedEnd) -> FaithfulThreeLayerResult:
        own = _facts_of_three(found[0], run.target.input_dim, letter) if found else {}
        return FaithfulThreeLayerResult(**letter.facts(ended), **own)

    def steps() -> FaithfulThreeLayerResult:
        letter.look()
        return result(letter.ended(recover))

    return run.ended(
        steps, lambda status, message: result(PrintedEnd(status, message)), letter.explained
    )


def _facts_of_three(found: DepthThree, d: int, letter: Letter) -> dict[str, Any]:
    """Return the fields of a depth-3 result."""
    first = np.asarray(found.weights, dtype=np.float64)
    d1, d2 = len(first), len(found.top.signs)
    # A second-layer unit crosses the axis at most once in each of d1 + 1 states.
    most = most_queries_depth_three(d, (d1, d2), d1 + d2 * (d1 + 1), letter.delta)
    return {
        "first_width": d1,
        "second_width": d2,
        "first_weights": first,
        "first_biases": np.asarray(found.biases, dtype=np.float64),
        "first_signed": True,
        "condition": float(np.linalg.cond(first)),
        "starts": 1,
        "most_queries": most,
    }


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
