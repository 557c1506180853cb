"""Constants and signs of Daniely & Granot, each changed once: the named test must then fail."""

from __future__ import annotations

__all__ = ["MUTATIONS"]

_BOXES = "src/unrelu/extraction/letter_boxes.py"
_TWO = "src/unrelu/extraction/letter_two.py"
_THREE = "src/unrelu/extraction/letter_three.py"
_RUN = "src/unrelu/extraction/letter_run.py"
_POSITION = "src/unrelu/extraction/general_position.py"
_PLANES = "src/unrelu/extraction/critical_hyperplanes.py"
_CHANCES = "src/unrelu/extraction/regular_chances.py"
_IN_BOXES = "tests/extraction/test_letter_boxes.py::"
_LETTER = "tests/extraction/test_letter.py::"
_GENERAL = "tests/extraction/test_general_position.py::"

MUTATIONS: list[tuple[str, str, str, str]] = [
    # Algorithm 1
    (_BOXES, "math.ceil(2 / Fraction(delta) ** 2)", "math.ceil(1 / Fraction(delta) ** 2)",
     _IN_BOXES + "test_halvings_are_the_least_power_of_two"),
    (_BOXES, "range(halvings(delta) + 1)", "range(halvings(delta))",
     _IN_BOXES + "test_find_cp_gives_the_critical_points_from_left_to_right"),
    (_BOXES, "epsilon = delta * delta", "epsilon = delta",
     _IN_BOXES + "test_find_cp_gives_the_critical_points_from_left_to_right"),
    (_BOXES, "start = left if a is None or left > a else a + delta / 2", "start = left",
     _IN_BOXES + "test_find_cp_gives_the_critical_points_from_left_to_right"),
    (_BOXES, "last: Any | None = f.number(0) if positive else None",
     "last: Any | None = None",
     _IN_BOXES + "test_on_the_half_axis_nothing_outside_is_asked"),
    (_BOXES, "not left - off <= x <= right + off", "not left - off <= x",
     _IN_BOXES + "test_a_delta_that_is_too_large_is_told"),
    # Algorithm 2
    (_BOXES, "bias = values[0] - weights @ x", "bias = values[0] + weights @ x",
     _IN_BOXES + "test_affine_is_exact_near_a_general_point"),
    (_BOXES, "(values[1:] - values[0]) / epsilon", "(values[1:] - values[0]) / (2 * epsilon)",
     _IN_BOXES + "test_affine_is_exact_near_a_general_point"),
    # Algorithm 3
    (_BOXES, "epsilon = (delta / 2) ** 2", "epsilon = delta**2",
     _IN_BOXES + "test_find_hp_steps_by_half_of_delta_and_its_square"),
    (_BOXES, "step = delta / 2 * f.axis(axis)", "step = delta * f.axis(axis)",
     _IN_BOXES + "test_find_hp_steps_by_half_of_delta_and_its_square"),
    (_BOXES, "return first.minus(second)", "return first",
     _IN_BOXES + "test_find_hp_and_is_convex_give_a_unit_up_to_sign"),
    # Algorithms 4 and 5
    (_BOXES, "if bend > off:", "if bend < -off:",
     _IN_BOXES + "test_find_hp_and_is_convex_give_a_unit_up_to_sign"),
    (_BOXES, "(ahead - here) - (here - behind)", "(ahead - here) + (here - behind)",
     _IN_BOXES + "test_find_hp_and_is_convex_give_a_unit_up_to_sign"),
    # Algorithm 6, Theorem 2
    (_TWO, "range(f.dimension) if orthant else range(1)", "range(1)",
     _LETTER + "test_theorem_two_stays_in_the_orthant"),
    (_TWO, "x = t * f.axis(axis)\n            hyperplane = find_hp(f, delta, x, axis)",
     "x = t * f.axis(axis)\n            hyperplane = find_hp(f, delta, x)",
     _LETTER + "test_theorem_two_stays_in_the_orthant"),
    (_TWO, "if hyperplane.equals(other):", "if False:",
     _LETTER + "test_a_unit_met_on_several_half_axes_is_one_unit"),
    (_TWO, "return searches * each_search + met * each_unit + d + 1",
     "return searches * each_search + met * each_unit",
     _LETTER + "test_what_the_boxes_ask_is_counted"),
    (_TWO, "subset_that_sums(parts[:, :-1], -self.linear)",
     "subset_that_sums(parts[:, :-1], self.linear)",
     _LETTER + "test_theorem_one_gives_the_network_back_bit_for_bit"),
    # Algorithm 7
    (_THREE, "2 ** (2 * units)", "2**units",
     _LETTER + "test_lines_one_and_two_of_algorithm_seven"),
    (_THREE, "HALF_PI_ROOT = Fraction(5, 4)", "HALF_PI_ROOT = Fraction(4, 3)",
     _LETTER + "test_lines_one_and_two_of_algorithm_seven"),
    (_THREE, "2 ** (f.dimension + 1) * met**2", "2 ** (f.dimension + 1) * met",
     _LETTER + "test_lines_one_and_two_of_algorithm_seven"),
    (_THREE, "math.sqrt(-2.0 * math.log(chance))", "math.sqrt(-math.log(chance))",
     _LETTER + "test_lines_one_and_two_of_algorithm_seven"),
    (_THREE, "* (-1 if here > 0 else 1)", "* (1 if here > 0 else -1)",
     _LETTER + "test_algorithm_seven_goes_beyond_each_hyperplane"),
    (_THREE, "aim = far * abs(other.weights).sum()", "aim = far * abs(other.weights).sum() / 9",
     _LETTER + "test_algorithm_seven_goes_beyond_each_hyperplane"),
    (_THREE, "        if is_general(f, spread.step, z):  # Algorithm 7, line 6\n"
     "            return False\n    return True",
     "        return not is_general(f, spread.step, z)\n    return True",
     _LETTER + "test_algorithm_seven_tells_the_layers_apart"),
    (_THREE, "z = z + project(gaussian, plane.weights)", "z = z + gaussian",
     _LETTER + "test_algorithm_seven_tells_the_layers_apart"),
    # 3.5.3 and 3.5.4
    (_THREE, "        if behind:  #", "        if ahead:  #",
     _LETTER + "test_directions_and_the_top_layers"),
    (_THREE, "(points - biases) @ inverse.T", "(points + biases) @ inverse.T",
     _LETTER + "test_directions_and_the_top_layers"),
    (_THREE, "        if ahead == behind:\n", "        if ahead and behind:\n",
     _LETTER + "test_no_direction_shows_where_the_top_is_flat"),
    (_RUN, "beyond = (off != 0).any(axis=1)", "beyond = (off > 1).any(axis=1)",
     _LETTER + "test_a_delta_that_is_too_large_gives_no_false_recovery"),
    # Definition 1
    (_POSITION, "far.append((1.0 / max(", "far.append((2.0 / max(",
     _GENERAL + "test_critical_points_near_zero_and_far_out"),
    (_POSITION, "gap.append((float(other.t - one.t), names))",
     "gap.append((float(other.t + one.t), names))",
     _GENERAL + "test_a_short_piece"),
    (_POSITION, "np.linalg.norm(normals + row, axis=1) / 2.0",
     "np.linalg.norm(normals + row, axis=1)",
     _GENERAL + "test_angles_between_hyperplanes_and_with_axes"),
    (_POSITION, "np.abs(float(t) * normals[:, i] + offsets)",
     "np.abs(float(t) * normals[:, i] - offsets)",
     _GENERAL + "test_a_hyperplane_near_a_critical_point"),
    (_POSITION, "return len(maps) < len(pairs)", "return len(maps) > len(pairs)",
     _GENERAL + "test_two_pieces_with_one_map_are_not_nice"),
    (_POSITION, "delta**2 <= t % grid <= grid - delta**2", "0 <= t % grid",
     _GENERAL + "test_the_grid_keeps_its_distance"),
    (_POSITION, "Fraction(0) if found.parallel else delta", "delta",
     _GENERAL + "test_in_depth_three_rows_have_parallels"),
    (_POSITION, "abs(offsets[j] - sign * offsets[i])", "abs(offsets[j] + sign * offsets[i])",
     _GENERAL + "test_parallel_hyperplanes_are_irregular_as_printed_only"),
    (_PLANES, "any(v[j, i] * c[j] < 0 for i in on)", "any(v[j, i] * c[j] > 0 for i in on)",
     _GENERAL + "test_depth_three_counts_the_axis_exactly"),
    (_POSITION, "b_ub=-c[seen]", "b_ub=c[seen]",
     _GENERAL + "test_flat_tops_and_missing_right_inverses_are_named"),
    # Lemmas 2, 6, 7, 15
    (_CHANCES, "d * q * delta * size * 2 * power,", "d * q * delta * size * power,",
     _GENERAL + "test_lemma_six_item_by_item"),
    (_CHANCES, "d**1.5 * q**2 * delta * size * power / 2", "d**1.5 * q**2 * delta * size * power",
     _GENERAL + "test_lemma_six_item_by_item"),
    (_CHANCES, "_items(d, q**2, d * most**2 + 2.0, delta)",
     "_items(d, q, d * most**2 + 2.0, delta)",
     _GENERAL + "test_lemma_six_item_by_item"),
    (_CHANCES, "(10 * (most + 1) ** 2", "(5 * (most + 1) ** 2",
     _GENERAL + "test_lemma_two_follows_from_six_and_seven"),
    (_CHANCES, "(20 * (d * most**2 + 2) ** 2", "(20 * (d * most**2 + 2)",
     _GENERAL + "test_lemma_two_follows_from_six_and_seven"),
    (_CHANCES, "for i in range(d1 + 2)", "for i in range(d1 + 1)",
     _GENERAL + "test_theorem_five_bounds_how_often_tops_are_flat"),
]  # fmt: skip
