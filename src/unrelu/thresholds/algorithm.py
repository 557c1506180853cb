"""Recover the lowest layer under high thresholds; learn halfspace intersections.

Reference
---------
Goel & Panigrahy 2018, *Recovering the Lowest Layer of Deep Networks with High
Threshold Activations*: Section 2 (Claims 1-2, Theorems 4-6, Algorithm 1),
Appendix B (Theorems 11-13, B.4, B.6, B.7). Section 3 is in ``detector``,
Section 4 in ``structured_layers``, Appendix E in :mod:`unrelu.modular`.

Setting
-------
f(x) = P(u(w_1 . x - t), ..., u(w_k . x - t)) for an unknown P, all the layers above;
x ~ N(0, I). Sought: the unit rows w_i and, where not given, the thresholds.

Assumptions
-----------
The thresholds are high: each unit is rarely on, two together hardly ever. P has a
linear term in each unit. For the refinement (sign and ReLU units) f differs from its
base value c_0 exactly where some unit is on: so it is for monotone P, and for P in
general position. The units are linearly independent for the landscape to show all at
once; units that it misses are sought among the points that the found ones leave
unexplained.

Guarantee
---------
RECOVERED, refined: held-out samples (or fresh queries) are on exactly where the
recovered units say so, up to label noise and the wedges that the stated standard
errors allow, and no positive point lies far below every unit. RECOVERED, not refined
(``refine=False``, or sigmoid units): the directions from two halves of the samples
agree to the stated errors; the bias of the products of units is in neither, and is
bounded by a small constant only where thresholds are high.

Paper to code
-------------
Each row: the function as printed; the one in practice, where it is another; the test that fails
if it breaks.

=============================  ==========================================================
Lemmas 1 and 2                 ``unrelu.thresholds.printed.lemma_one``; in practice
                               ``unrelu.thresholds.model.overlap_share``; deviates: printed, it
                               fails at acute angles; test
                               test_lemma_1_bounds_how_often_units_are_on_together
G(z), Claims 1 and 2           ``unrelu.thresholds.landscape.minimise_landscape``; tests
                               test_every_minimum_of_the_landscape_is_a_unit,
                               test_gradient_and_hessian_of_the_landscape
the same at the third order    ``unrelu.thresholds.search.find_directions(method="third")``;
                               test test_directions_from_exact_moments
G(W), B.4, Theorem 12          ``minimise_simultaneous(printed=True)``, ``method="printed"``;
                               in practice held orthonormal, any order: ``minimise_joint``;
                               test test_the_printed_penalty_holds_lengths_alone
EstimateTanAlpha, Lemmas 3-6   ``unrelu.thresholds.slab.estimate_tan_alpha``; test
                               test_tan_alpha_matches_its_closed_form
RefineEstimate, Algorithm 1,   ``unrelu.thresholds.refine.refine_estimate``; in practice
Lemma 7, Theorem 5
                               ``refine_hyperplanes``; deviates: the slab's gradient moves; test
                               test_algorithm_one_lowers_the_angle_and_records_each_accepted_step
the slab l(z, t, eps)          ``unrelu.thresholds.slab.slab_step`` (moves by its gradient);
                               test test_one_slab_step_removes_most_of_the_error
c_0, footnote 5                ``unrelu.thresholds.passes.find_base``; test
                               test_base_is_the_atom_or_the_median
Theorem 6                      :func:`learn_halfspaces` on samples; tests test_from_samples,
                               test_flipped_labels
B.6, Theorem 13                :func:`draw_biased_samples`, ``biased=True``; test
                               test_biased_sampler_keeps_in_proportion
B.7, ``E[f_uni H_4(z.x)]`` is  ``unrelu.thresholds.passes.Passes.moments``: only the numbers
``sum (q_i o u)_4 (z.w_i)^4``
                               (q_i o u)_k change; test
                               test_correlations_of_powers_are_sums_over_units
B.7, Lemmas 17 and 18          :func:`recover_lowest_layer` on powers and their products; test
                               test_units_are_recovered_under_powers_and_their_products
=============================  ==========================================================

Deviations
----------
- The default landscape is the third order's, all directions moved together and held
  orthonormal in whitened coordinates. u_4 of a sign unit is t^3 - 3t, nearly 0 near
  t = sqrt 3, and the bias of the products is several times smaller this way. The paper's
  objectives are ``method="fourth"`` and ``method="simultaneous"``.
- The simultaneous objective penalises V V' - I, not only its diagonal (see there);
  ``method="printed"`` does not.
- RefineEstimate's acceptance test is read as a decrease by a factor 1 - c/d, which
  Lemma 7 proves and Theorem 5 uses; the printed test asks for a hundredth of 1/d. Every
  twentieth rejection the angle is estimated anew, lest one that came out low stay unbeaten.
- The refinement moves by the slab's gradient: the labels that contradict the estimate
  point along the error, so one regression does what many random trials do, to an error
  of n / (samples per unit height). Points where other units are near are left out.
- The threshold is estimated where EstimateTanAlpha crosses one half, and refined with
  the direction.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from unrelu._numbers import real_number, whole_number
from unrelu._random import RandomState, as_generator
from unrelu.core.explain import EXACT
from unrelu.core.run import Run
from unrelu.errors import InvalidInput
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress, as_progress
from unrelu.result import Provenance, QueryStats
from unrelu.thresholds.config import ThresholdConfig
from unrelu.thresholds.fit import fit_landscape
from unrelu.thresholds.halfspaces import (
    HalfspacesResult,
    check_scalar,
    learn_halfspaces,
    read_source,
)
from unrelu.thresholds.layer_queries import Asked, LayerRun
from unrelu.thresholds.model import Activation, LowestLayerResult
from unrelu.thresholds.passes import Passes
from unrelu.thresholds.query import BiasedSamples, sample_biased
from unrelu.thresholds.search import Method
from unrelu.thresholds.union import fit_union, judge_union

__all__ = [
    "HalfspacesResult",
    "LowestLayerResult",
    "ThresholdConfig",
    "draw_biased_samples",
    "learn_halfspaces",
    "recover_lowest_layer",
]


ALGORITHM = "goel-panigrahy/lowest-layer"


def recover_lowest_layer(
    source: Any,
    y: Any = None,
    *,
    activation: Activation = "relu",
    threshold: float | None = None,
    refine: bool = True,
    method: Method = "joint",
    units: int | None = None,
    biased: bool = False,
    samples: int = 200_000,
    tolerance: float = EXACT,
    rng: RandomState = None,
    config: ThresholdConfig | None = None,
    progress: Progress | None = None,
) -> LowestLayerResult:
    """Recover the directions of the lowest layer under an unknown upper network.

    Parameters
    ----------
    source
        Samples x with ``y``, or anything that :func:`unrelu.samples.as_source`
        reads; or an oracle (or network) to query.
    activation
        "sign" and "relu" units are refined; "sigmoid" units are found in the
        landscape only.
    threshold
        t, where known; otherwise estimated, one for each unit.
    refine
        Whether step 2 follows step 1.
    method
        Which landscape: "joint", "third", "fourth" or "simultaneous"; "printed" is the last
        without the penalty that holds its rows apart.
    units
        k, where known; otherwise counted.
    biased
        The samples were kept with probability proportional to f (B.6); their
        labels are then not looked at.
    samples, tolerance
        With an oracle: queries for the landscape, and the error in radians to
        which the queried slabs refine.

    Examples
    --------
    >>> import numpy as np, unrelu
    >>> x = np.random.default_rng(0).standard_normal((50_000, 3))
    >>> y = np.maximum(x - 2.0, 0.0).sum(axis=1)  # three units, along the axes
    >>> unrelu.recover_lowest_layer(x, y, rng=0).directions.shape
    (3, 3)
    """
    cfg = ThresholdConfig() if config is None else config
    _check_choices(activation, threshold, method, units)
    options = {
        "activation": activation, "threshold": threshold, "refine": refine, "method": method,
        "units": units, "biased": biased,
    }  # fmt: skip
    if isinstance(source, (Oracle, ReLUNetwork)):
        if y is not None:
            raise InvalidInput("an oracle answers by itself: leave y out")
        if biased:
            raise InvalidInput("biased=True describes samples; an oracle needs none")
        whole_number(samples, "samples", least=1)
        real_number(tolerance, "tolerance", least=0.0)
        run = Run(source, algorithm=ALGORITHM, rng=rng, options=options, progress=progress)
        check_scalar(run.target)
        asked = Asked(activation, threshold, units, samples, tolerance)
        search = LayerRun(run, cfg, asked)
        return run.ended(lambda: search.steps(refine, method), search.result, search.explained)
    passes = Passes(read_source(source, y), lambda labels: labels, cfg)
    refined = refine and not biased and activation != "sigmoid"
    rng_, watch = as_generator(rng), as_progress(progress)
    if refined:
        found = fit_union(
            passes, method=method, units=units, threshold=threshold, rng=rng_, config=cfg,
            watch=watch,
        )  # fmt: skip
    else:
        found = fit_landscape(
            passes, method=method, units=units, threshold=threshold, biased=biased, rng=rng_,
            config=cfg, watch=watch,
        )  # fmt: skip
    return LowestLayerResult(
        status=found.status,
        message=found.message,
        queries=QueryStats(samples=passes.samples),
        provenance=Provenance(ALGORITHM, rng if isinstance(rng, int) else None, options),
        certificate=judge_union(found, passes) if refined else None,
        stages=tuple(found.stages),
        directions=found.directions,
        thresholds=found.thresholds,
        angle_errors=found.errors,
        landscape_directions=found.landscape,
        activation=activation,
    )


def draw_biased_samples(
    source: Any,
    count: int,
    *,
    bound: float | None = None,
    limit: int | None = None,
    rng: RandomState = None,
) -> BiasedSamples:
    """Draw Gaussian inputs and keep each with probability proportional to f (B.6).

    For units whose f is tiny almost everywhere (sigmoids) the kept points carry the
    moments. With queries this is not needed, since :func:`recover_lowest_layer` weights
    its answers by f; it serves to hand such samples on, or to simulate who has them.

    Parameters
    ----------
    source
        An oracle, or anything :func:`unrelu.connect` makes one of; one output, never
        negative.
    count
        Points to keep.
    bound
        An upper bound on f; by default twice the largest of a first batch.
    limit
        Queries at most, where not None; fewer points than ``count`` come back where it is
        reached.
    """
    oracle = as_oracle(source)
    check_scalar(oracle)
    if count < 1:
        raise InvalidInput(f"count must be at least 1, got {count}")
    with oracle.stage("biased sampler"):
        return sample_biased(
            lambda x: oracle(x)[:, 0],
            oracle.input_dim,
            count,
            rng=as_generator(rng),
            bound=bound,
            limit=limit,
        )


def _check_choices(
    activation: str, threshold: float | None, method: str, units: int | None
) -> None:
    if activation not in ("sign", "relu", "sigmoid"):
        raise InvalidInput(f"activation must be 'sign', 'relu' or 'sigmoid', got {activation!r}")
    if method not in get_args(Method):
        raise InvalidInput(f"method must be one of {get_args(Method)}, got {method!r}")
    if threshold is not None and not np.isfinite(threshold):
        raise InvalidInput(f"threshold must be a finite number, got {threshold}")
    if units is not None and units < 1:
        raise InvalidInput(f"units must be at least 1, got {units}")
