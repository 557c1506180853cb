"""Constants of Chen, Klivans & Meka, each changed once: the named test must then fail.

``(file, old, new, test)``: in ``file``, the one place that reads ``old`` is made to read ``new``.
"""

from __future__ import annotations

__all__ = ["MUTATIONS"]

_CONFIG = "src/unrelu/learner/config.py"
_FORMULAS = "src/unrelu/learner/formulas.py"
_BOXES = "src/unrelu/learner/boxes.py"
_LETTER = "tests/learner/test_learner_letter.py::"
_KERNELS = "tests/learner/test_learner_kernels.py::"

MUTATIONS: list[tuple[str, str, str, str]] = [
    (_CONFIG, "exponent: float = 4.5", "exponent: float = 4.0",
     _LETTER + "test_line_3_delta_is_the_power_9_2_of_epsilon_over_k_r"),
    (_FORMULAS, "(epsilon / (k * norm)) **", "epsilon **",
     _LETTER + "test_line_3_delta_is_the_power_9_2_of_epsilon_over_k_r"),
    (_CONFIG, "interval_power: float = 4.0", "interval_power: float = 3.0",
     _LETTER + "test_equation_12_the_length_of_an_interval"),
    (_FORMULAS, "delta_sep * delta**2 /", "1e4 * delta_sep * delta**2 /",
     _LETTER + "test_lemma_4_4_neurons_that_are_not_close_have_kinks_apart"),
    (_FORMULAS, "reach = bias / smallest +", "reach = 1.0 / smallest +",
     _LETTER + "test_equation_13_the_range_as_the_proof_of_lemma_4_3_has_it"),
    (_FORMULAS, "constants.range * k * spread / delta * reach",
     "constants.range * k * spread * reach",
     _LETTER + "test_lemma_4_3_kinks_lie_within_the_range_but_for_odds_of_delta"),
    (_FORMULAS, "(4.0 * k * math.sqrt(d) + k * log)", "(2.0 * k * math.sqrt(d) + k * log)",
     _LETTER + "test_lemma_4_10_the_step_of_a_gradient"),
    (_FORMULAS, "return delta * r / (4.0", "return 40.0 * r / (4.0",
     _LETTER + "test_lemma_4_10_no_kink_lies_within_the_step_of_a_midpoint"),
    (_FORMULAS, "delta_sep * k**2 * norm * log", "delta_sep * k * norm * log",
     _LETTER + "test_equations_14_and_21_bounds_on_neurons_and_coefficients"),
    (_FORMULAS, "math.sqrt(count) + k * (norm + bias)", "count + k * (norm + bias)",
     _LETTER + "test_equations_14_and_21_bounds_on_neurons_and_coefficients"),
    (_BOXES, "y0 - s * middle[:, None]", "y0 + s * middle[:, None]",
     _LETTER + "test_get_bias_is_the_intercept_of_the_piece"),
    (_BOXES, "v = (y[:, 1:] - y[:, :1]) / alpha", "v = (y[:, 1:] - y[:, :1]) / (2 * alpha)",
     _LETTER + "test_get_gradient_is_exact_inside_a_piece"),
    (_BOXES, "intercepts - gradients @ x0", "intercepts",
     _LETTER + "test_get_neurons_lists_every_neuron_up_to_sign"),
    (_BOXES, "bounds.width, bounds.norm, bounds.bias)\n    inside",
     "1, 0.1, bounds.bias)\n    inside",
     _LETTER + "test_get_neurons_lists_every_neuron_up_to_sign"),
    (_BOXES, "neurons = pieces[i] - pieces[j]", "neurons = pieces[i] + pieces[j]",
     _LETTER + "test_algorithms_1_to_4_learn_small_networks"),
    ("src/unrelu/learner/regression.py", "if np.linalg.norm(coefficients) > bound:\n            #",
     "if False:\n            #",
     _KERNELS + "test_bounded_least_squares_is_plain_inside_and_on_the_sphere_outside"),
    ("src/unrelu/learner/evidence.py", "assumed = count * request.norm_bound",
     "assumed = request.norm_bound",
     _LETTER + "test_theorem_1_1_what_may_hide_is_k_times_r_and_what_was_found"),
    (_FORMULAS, "return 0.25 * total", "return 0.125 * total",
     _LETTER + "test_theorem_1_1_what_may_hide_is_k_times_r_and_what_was_found"),
    (_FORMULAS, "(slope * width) * (slope * width) / 12.0",
     "(slope * width) * (slope * width) / 3.0",
     _KERNELS + "test_bump_loss_against_a_planted_bump"),
    (_FORMULAS, "GAUSSIAN_AT_ONE = GAUSSIAN_PEAK * math.exp(-0.5)",
     "GAUSSIAN_AT_ONE = GAUSSIAN_PEAK * math.exp(0.5)",
     _KERNELS + "test_samples_to_see_keeps_its_odds"),
    (_CONFIG, "share: float = 1.0 / 3.0", "share: float = 1.0 / 2.0",
     _LETTER + "test_bumps_count_from_a_third_of_epsilon_squared_and_inputs_from_twice_epsilon"),
    ("src/unrelu/learner/neurons.py", "(np.linalg.norm(apart[:, :-1], axis=1) <= angle)",
     "(np.linalg.norm(apart[:, :-1], axis=1) <= 0.01 * angle)",
     _KERNELS + "test_close_groups_finds_clusters_up_to_sign_and_nothing_else"),
]  # fmt: skip
