"""Constants of Jayaram, Woodruff & Zhang, each changed once: the named test must then fail.

``(file, old, new, test)``: in ``file``, the one place that reads ``old`` is made to read ``new``.
"""

from __future__ import annotations

__all__ = ["MUTATIONS"]

_PRINTED = "src/unrelu/span/printed.py"
_ASSUMPTIONS = "src/unrelu/span/assumptions.py"
_LETTER = "tests/span/test_span_letter.py::"

MUTATIONS: list[tuple[str, str, str, str]] = [
    (_ASSUMPTIONS, "return float(k + top +", "return float(top +",
     _LETTER + "test_assumption_1_orthogonal_rows_have_gamma_1_and_correlated_ones_less"),
    (_ASSUMPTIONS, "correlation = unit @ unit.T", "correlation = np.eye(len(unit))",
     _LETTER + "test_lemma_3_1_wide_random_matrices_meet_assumption_1"),
    (_ASSUMPTIONS, "product = (product * on) @ matrix", "product = product @ matrix",
     _LETTER + "test_assumption_2_products_that_hide_a_row"),
    (_ASSUMPTIONS, "dead |= ~x.any(axis=1)", "dead |= ~x.all(axis=1)",
     _LETTER + "test_assumption_2_the_share_of_silence"),
    (_ASSUMPTIONS, "math.log2(16.0 * depth / (delta * gamma))", "math.log2(4.0 / delta)",
     _LETTER + "test_lemma_3_1_random_layers_of_its_width_meet_assumption_2"),
    (_ASSUMPTIONS, "0.5 * rank * 8.0 * math.log", "0.01 * rank * 8.0 * math.log",
     _LETTER + "test_theorem_3_4_half_of_the_span_where_the_assumptions_hold"),
    (_ASSUMPTIONS, "g = g[function(g) >= 1.0]", "g = g[function(g) >= 0.0]",
     _LETTER + "test_assumptions_3_and_4_of_a_linear_threshold"),
    (_ASSUMPTIONS, "/ (2.0 * step * length)", "/ (2.0 * step)",
     _LETTER + "test_assumptions_3_and_4_of_a_linear_threshold"),
    (_ASSUMPTIONS, "g -= (g @ basis.T) @ basis", "g -= 0.0",
     _LETTER + "test_what_stops_algorithm_2_is_assumption_3"),
    (_PRINTED, "math.isqrt((bits - 1) // 3)", "math.isqrt((bits - 1) // 2)",
     _LETTER + "test_line_1_the_numbers_that_an_arithmetic_carries"),
    (_PRINTED, "return -(self.size**2) + 2 * self.epsilon_log2",
     "return -(self.size**2) + self.epsilon_log2",
     _LETTER + "test_line_1_the_numbers_that_an_arithmetic_carries"),
    (_PRINTED, "numbers.epsilon_log2 - numbers.size)\n    low", "0)\n    low",
     _LETTER + "test_algorithm_2_as_printed_in_float64"),
    (_PRINTED, "u = u * arithmetic.power(-numbers.size) - x", "u = u - x",
     _LETTER + "test_algorithm_2_as_printed_in_float64"),
    (_PRINTED, "b = np.array([1 / value for value in c])", "b = np.array([value for value in c])",
     _LETTER + "test_lines_5_to_9_give_a_gradient"),
    (_PRINTED, "finest = arithmetic.power(numbers.beta_log2 - numbers.size)",
     "finest = arithmetic.power(numbers.epsilon_log2 - numbers.size)",
     _LETTER + "test_lines_5_to_9_give_a_gradient"),
    (_PRINTED, "labels(points - (points @ basis.T) @ basis if len(basis) else points)",
     "labels(points)", _LETTER + "test_what_stops_algorithm_2_is_assumption_3"),
    ("src/unrelu/span/from_labels.py", "search.angle = min(estimate, seen)",
     "search.angle = max(estimate, seen)",
     _LETTER + "test_a_rank_that_is_too_small_is_not_vouched_for"),
    ("src/unrelu/span/subspace.py", "floor = float(np.sqrt(count) + np.sqrt(n))",
     "floor = 1e-3 * float(np.sqrt(count) + np.sqrt(n))",
     "tests/span/test_span_subspace.py::test_pure_noise_has_rank_zero"),
    ("src/unrelu/span/values.py", "taken = moved[diagonal, diagonal] - x",
     "taken = 2.0 * (moved[diagonal, diagonal] - x)",
     "tests/span/test_span_values.py::test_gradient_equals_the_exact_one_and_counts_its_queries"),
]  # fmt: skip
