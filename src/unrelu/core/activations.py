"""Elementwise activations of a layered network: value and slope, on any kind of array."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

__all__ = ["RELU", "Activation"]

Array = Any  # an array of any namespace that array_api_compat knows


@dataclasses.dataclass(frozen=True)
class Activation:
    """An elementwise function and its derivative.

    Attributes
    ----------
    name
        As users name it: "relu", "tanh".
    value, slope
        Functions of an array of any shape; both keep its dtype.
    homogeneous
        Whether ``value(c z) = c value(z)`` for ``c > 0``: rows may then be scaled freely.
    """

    name: str
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    homogeneous: bool = False


def _relu(z: Array) -> Array:
    if isinstance(z, np.ndarray):
        return np.maximum(z, z.dtype.type(0))
    xp = array_namespace(z)
    return xp.where(z > 0, z, xp.zeros_like(z))


def _step(z: Array) -> Array:
    if isinstance(z, np.ndarray):
        return (z > 0).astype(z.dtype)
    return array_namespace(z).astype(z > 0, z.dtype)


RELU = Activation("relu", _relu, _step, homogeneous=True)
