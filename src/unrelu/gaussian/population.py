"""Algorithm 1 on exact Hermite coefficients, for those who study the method.

Reference, assumptions and the map from the paper to the code are in
:mod:`unrelu.gaussian.algorithm`; here the tensors are those of a given
network, in closed form (Lemma 3.5), so that only the algebra is at work.
"""

from __future__ import annotations

import time

import numpy as np

from unrelu._random import RandomState, as_generator
from unrelu.core.moment_fit import fit_moments, units_from_scalars
from unrelu.core.moments import HermiteMoments, pair_index
from unrelu.core.symmetric import SymmetricTensor
from unrelu.errors import InvalidInput
from unrelu.gaussian.awasthi import (
    RankOneUnits,
    Thresholds,
    check_order,
    fix_signs,
    population_tensors,
    robust_algorithm,
)
from unrelu.gaussian.config import PAIRS
from unrelu.gaussian.identifiability import unit_form
from unrelu.gaussian.result import SamplesResult
from unrelu.networks import ReLUNetwork
from unrelu.result import Provenance, QueryStats, StageReport, Status

__all__ = ["learn_from_population"]


def learn_from_population(
    network: ReLUNetwork,
    *,
    order: int = 1,
    rng: RandomState = None,
    refine: bool = True,
    pairs: int = PAIRS,
) -> SamplesResult:
    """Run Algorithm 1 on the exact Hermite coefficients of ``network``.

    Parameters
    ----------
    network
        Depth 2, one output, neither output bias nor skip term.
    order
        l: 1 recovers at most d units, signs included (Theorem 4.1); a higher one up to
        about d^l, up to sign (Theorem 4.2).
    rng
        Draws Jennrich's contractions.
    refine
        Whether to fit all of T2, T3, T4 once more from Algorithm 1's answer,
        which takes back what an ill-conditioned pair of contractions lost. Not above
        order 2: those tensors do not determine so many units.
    pairs
        Jennrich's algorithm keeps the best of so many pairs; 1 is as published.

    Returns
    -------
    SamplesResult
        RECOVERED if the answer has the same coefficients to 1e-9 of their size.
        ``moment_*`` hold Algorithm 1's own answer.
    """
    order = check_order(order, network.input_dim)
    form = unit_form(network)
    if form.constant != 0.0 or np.any(form.slope):
        raise InvalidInput("the network must not have an output bias or a skip term")
    generator = as_generator(rng)
    start = time.perf_counter()
    orders = tuple(range(2 * order + 3))
    tensors = population_tensors(form.w, form.a, form.b, orders)
    size = max(_size(tensors), float(np.finfo(np.float64).tiny))
    thresholds = Thresholds.exact(size)
    found = robust_algorithm(order, tensors, thresholds, generator, pairs=pairs)  # steps 1 to 5
    if order == 1 and len(found.w):  # step 6
        found = fix_signs(tensors[1], found)
    units = _refined(found, tensors) if refine and order <= 2 and len(found.w) else found
    again = population_tensors(units.w, units.a, units.b, orders)
    first = 0 if order == 1 else 2
    error = max(
        float(np.abs(again[k].entries - tensors[k].entries).max(initial=0.0))
        for k in orders[first:]
    )
    good = error <= 1e-9 * size
    d = network.input_dim
    hidden = (units.w, units.b, units.a) if len(units.w) else (
        np.zeros((1, d)), np.zeros(1), np.zeros(1)
    )  # fmt: skip
    return SamplesResult(
        status=Status.RECOVERED if good else Status.ILL_CONDITIONED,
        message=f"{len(units.w)} units reproduce the coefficients to {error:.1e}"
        + ("" if order == 1 else ", up to orientation")
        + ("" if good else "; try a higher order, or more pairs"),
        queries=QueryStats(),
        provenance=Provenance(
            algorithm="awasthi-tang-vijayaraghavan",
            seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
            options={"mode": "population", "order": order, "refine": refine, "pairs": pairs},
        ),
        network=ReLUNetwork([hidden[0], hidden[2][None, :]], [hidden[1], np.zeros(1)]),
        stages=(StageReport("algorithm 1", 0, time.perf_counter() - start, "", {"error": error}),),
        width=len(units.w),
        signs_determined=order == 1 and good,
        orientations=1 if order == 1 and good else 0,
        moment_weights=found.w,
        moment_outer=found.a,
        moment_biases=found.b,
    )


def _size(tensors: dict[int, SymmetricTensor]) -> float:
    """Return the largest entry of all tensors: what rounding is relative to."""
    return max(float(np.abs(tensor.entries).max(initial=0.0)) for tensor in tensors.values())


def _refined(units: RankOneUnits, tensors: dict[int, SymmetricTensor]) -> RankOneUnits:
    """Fit all of T2, T3, T4 at once, from Algorithm 1's answer."""
    dense = {k: tensors[k].dense() for k in range(5)}
    rows, cols = pair_index(units.w.shape[1])
    moments = HermiteMoments(
        float(dense[0]),
        dense[1],
        dense[2],
        dense[3][rows, cols],
        dense[4][rows, cols][:, rows, cols],
    )
    fitted = fit_moments(moments, units.w, tied=True, start=(units.a, units.b))
    a, b = units_from_scalars(fitted.alpha)
    xi = np.where(np.einsum("ij,ij->i", fitted.w, units.w) < 0.0, -1.0, 1.0)
    return RankOneUnits(xi[:, None] * fitted.w, a, xi * b)
