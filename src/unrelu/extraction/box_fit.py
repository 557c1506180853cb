"""The one fit of the house, for a network over the unit cube."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg

from unrelu._types import FloatArray
from unrelu.core.fit import FitConfig, Layered, fit_network
from unrelu.networks import ReLUNetwork

__all__ = ["fit_all", "fit_outputs"]


def fit_all(
    network: ReLUNetwork,
    points: FloatArray,
    values: FloatArray,
    deviation: FloatArray,
    *,
    steps: int | None = None,
) -> ReLUNetwork:
    """Fit all parameters to values ``(n, m)`` of deviation ``(n,)``; ``steps`` limits the work."""
    if len(network.biases[0]) == 0:
        return network
    config = FitConfig()
    if steps is not None:
        config = dataclasses.replace(config, steps=steps)
    start = Layered(network.weights, network.biases, network.skip)
    fitted = fit_network(start, points, values, deviation=deviation[:, None], config=config)
    net = fitted.network
    skip = None if net.skip is None else np.asarray(net.skip)
    return ReLUNetwork(list(net.weights), list(net.biases), skip)


def fit_outputs(
    network: ReLUNetwork, points: FloatArray, values: FloatArray, deviation: FloatArray
) -> ReLUNetwork:
    """Fit what the values depend on linearly, the hyperplanes kept: outputs and affine part.

    The correction of least norm is taken: what no row determines stays.
    """
    (rows, outputs), (biases, constant) = network.weights, network.biases
    active = np.maximum(points @ rows.T + biases, 0.0)
    columns = np.column_stack([active, points, np.ones(len(points))]) / deviation[:, None]
    size = np.linalg.norm(columns, axis=0)
    size = np.where(size > 0, size, 1.0)  # a unit that is off at all points stays as it is
    left = (values - network(points)) / deviation[:, None]
    change = scipy.linalg.lstsq(columns / size, left, check_finite=False)[0] / size[:, None]
    k = len(biases)
    assert network.skip is not None
    return ReLUNetwork(
        [rows, outputs + change[:k].T],
        [biases, constant + change[-1]],
        network.skip + change[k:-1].T,
    )
