"""Turn second-layer units round, so that no affine term is left beside them.

On the orthant every unit is written so that it is off at the corner. A unit that
was on there, ``u relu(z) = u relu(-z) + u z``, leaves ``u z`` in the affine term:
which units were turned is a linear system in their signs.
"""

from __future__ import annotations

import numpy as np

from unrelu.core.signs import sign_patterns
from unrelu.extraction.deep_numbers import FAINT
from unrelu.networks import ReLUNetwork

__all__ = ["turn_units"]


def turn_units(
    network: ReLUNetwork, ordinary: int, *, tolerance: float = FAINT
) -> ReLUNetwork | None:
    """Return the same function without the units that carry an affine term.

    Parameters
    ----------
    network
        Of depth 3.
    ordinary
        Its first second-layer units; those after them are always on.
    tolerance
        Part of the units' slopes that may be left; the largest error of the slopes
        that an extraction accepts. A wrong pattern leaves about as much as a unit.

    Returns
    -------
    None where no choice of orientations explains the affine term: units that never
    switch are part of it.
    """
    w, v, u = network.weights
    b, c, a = network.biases
    slopes = u[:, None, :ordinary] * v[:ordinary].T[None, :, :]
    slopes = slopes.reshape(len(u) * v.shape[1], ordinary)  # there may be no such unit
    affine = u[:, ordinary:] @ v[ordinary:]
    found = sign_patterns(slopes, slopes.sum(axis=1) + 2.0 * affine.ravel(), keep=1)
    if found.remainders[0] > tolerance * float(np.linalg.norm(slopes)):
        return None
    turned = found.patterns[0] < 0
    sign = np.where(turned, -1.0, 1.0)
    constant = (
        a + u[:, ordinary:] @ c[ordinary:] + u[:, :ordinary][:, turned] @ c[:ordinary][turned]
    )
    return ReLUNetwork(
        [w, sign[:, None] * v[:ordinary], u[:, :ordinary]], [b, sign * c[:ordinary], constant]
    )
