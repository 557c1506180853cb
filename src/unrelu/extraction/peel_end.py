"""The end of peeling: the last layer closed, all fitted, and what contradicts it."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.extraction.deep_certify import Verdict, certify_network
from unrelu.extraction.deep_numbers import FINE, PRECISE, READ
from unrelu.extraction.deep_polish import polish
from unrelu.extraction.peel_layer import Layer
from unrelu.extraction.peel_run import Peeling
from unrelu.extraction.peel_top import Closed, close_layers
from unrelu.extraction.prefix import Prefix
from unrelu.networks import ReLUNetwork

__all__ = ["LAST", "MOSTLY", "certified", "close", "explaining"]

LAST, MOSTLY = 0.98, 0.5
"""Part of the answers that a regression on a layer must explain for it to be the last; where
nearly all kinks are explained, as many as gradients, most of the answers are enough."""
FITTING = FINE
"""Deviation over the spread of answers above which the network does not explain one."""
TRUSTED = 30.0
"""Answers farther out than this many typical inputs are not used by the fit."""


def close(run: Peeling, layer: Layer, prefix: Prefix) -> Closed | None:
    """Take a layer for the last hidden one."""
    pieces = run.pieces()
    return close_layers(prefix, layer.rows, pieces.points, pieces.values)


def sharpen(run: Peeling, closed: Closed) -> ReLUNetwork:
    """Fit all parameters to the answers near typical inputs, but for those that show a gap.

    A fit to answers that want another unit bends all others, and what it misses leads nowhere.
    """
    session, network = run.session, closed.network
    x, y = session.oracle.stored(TRUSTED * session.domain.scale)
    fits = ~_misses(run, network, x, y, READ)
    x, y = x[fits], y[fits]
    if network.skip is not None or len(x) < network.parameters:
        return network
    with session.stage("polish") as details:
        polished = polish(network, x, y, session.noise.at(x), free=closed.free)
        details |= {"before": polished.before, "after": polished.after}
    return polished.network


def contradicted(
    run: Peeling, network: ReLUNetwork, limit: float = FITTING
) -> tuple[FloatArray, FloatArray]:
    """Return the inputs whose answers the network does not explain, and those it does."""
    x, y = run.session.oracle.stored()
    return x[_misses(run, network, x, y, limit)], x[~_misses(run, network, x, y, FITTING)]


def _misses(
    run: Peeling, network: ReLUNetwork, x: FloatArray, y: FloatArray, limit: float
) -> BoolArray:
    """Tell which answers a network is off by more than a part of their spread, ``(n,)``."""
    norms, scale = np.linalg.norm(x, axis=1), run.session.domain.scale
    spread = y[norms <= TRUSTED * scale].std(axis=0)
    # What is exact near typical inputs grows with the input elsewhere.
    allowed = limit * np.maximum(1.0, norms / scale)[:, None] * spread
    return np.asarray((np.abs(network(x) - y) > allowed).any(axis=1))


def _without_idle(run: Peeling, closed: Closed) -> Closed:
    """Leave out units that count for nothing above them: what was taken for one is none."""
    for i in range(run.prefix.depth, -1, -1):
        layer, size = run.layers[i], np.linalg.norm(closed.network.weights[i + 1], axis=0)
        idle = size[: len(layer.rows)] <= PRECISE * size.max()
        if i < run.prefix.depth:  # a weight that is not known is no zero
            idle &= np.all([row.known[:-1] for row in run.layers[i + 1].rows], axis=0)
        units = np.flatnonzero(idle)
        if len(units) and not idle.all():
            closed = closed.without(i, units)
            layer.without(units)
            if i < run.prefix.depth:
                run.layers[i + 1].over_fewer(units)
    return closed


def explaining(
    run: Peeling, closed: Closed, *, fit: bool
) -> tuple[ReLUNetwork, FloatArray, FloatArray]:
    """Return the network, fitted where that helps, and the inputs that it misses and explains.

    Where it misses some by far a unit is missing: no fit brings that, and the way to these
    inputs crosses it. Most answers are typical of what is known, and a fit to them is taken if
    it misses no more.
    """
    far, good = contradicted(run, closed.network, READ)
    if len(far) and not fit:
        return closed.network, far, good
    if len(far) == 0:
        closed = _without_idle(run, closed)
    bad, good = contradicted(run, closed.network)
    if closed.share >= LAST:
        network = sharpen(run, closed)
        missed, explained_ones = contradicted(run, network)
        if len(missed) <= len(bad):  # what counts for nothing may show by the fit only
            fitted = _without_idle(run, dataclasses.replace(closed, network=network))
            return fitted.network, missed, explained_ones
    return closed.network, bad, good


def certified(run: Peeling, network: ReLUNetwork) -> Verdict:
    """Compare with the target at fresh points."""
    session = run.session
    with session.stage("certificate"):
        return certify_network(
            session.oracle, network, session.noise, rng=session.rng, units=session.oracle.units
        )
