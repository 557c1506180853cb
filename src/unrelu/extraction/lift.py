"""Units found on a subspace, lifted to the whole space.

Restricted to a random subspace the target is a network of the same units with
fewer inputs, so a search there is cheap and can afford many lines. Where all
hyperplanes are known on the subspace, its roomiest points are known too; the
derivatives across the subspace, taken at such points with long steps, are
linear in what is still unknown of the units.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray
from unrelu.core.noise import NoiseModel
from unrelu.core.units import Units
from unrelu.extraction.refine import RefineConfig, candidate_points
from unrelu.lines.gates import design_rows, select_pieces, update
from unrelu.lines.gradients import measure_gradients
from unrelu.result import DOUBT

__all__ = ["Subspace", "lift_units"]


_EFFORT = 2.0
"""Equations per unknown: enough for a well-conditioned system, some gradients lost."""
_TAIL = float(scipy.special.ndtri(1.0 - 0.5 * DOUBT))
"""A random direction has at most this many times ``1 / sqrt(d)`` of its length along a given
normal, nearly always; a step that crosses all the same is caught by its check."""


class Subspace:
    """A random subspace of R^d through the origin, in coordinates of the same spread.

    A standard Gaussian of the subspace's coordinates maps to points as long as
    standard Gaussian inputs: ``x = scale * y @ rows``, rows orthonormal.
    """

    def __init__(self, dimension: int, inputs: int, rng: np.random.Generator) -> None:
        q, _ = np.linalg.qr(rng.standard_normal((inputs, dimension)), mode="complete")
        self.rows = np.ascontiguousarray(q[:, :dimension].T)
        self.across = np.ascontiguousarray(q[:, dimension:].T)
        self.scale = float(np.sqrt(inputs / dimension))

    def points(self, y: FloatArray) -> FloatArray:
        """Map coordinates ``(n, s)`` to inputs ``(n, d)``."""
        return np.asarray(self.scale * (y @ self.rows))

    def normals(self, weights: FloatArray) -> FloatArray:
        """Map rows that act on coordinates, ``(k, s)``, to rows on inputs, ``(k, d)``."""
        return np.asarray(weights @ self.rows / self.scale)


def lift_units(
    ask: Callable[[FloatArray], FloatArray],
    units: Units,
    covariance: FloatArray,
    noise: NoiseModel,
    subspace: Subspace,
    draw: Callable[[int], FloatArray],
    *,
    rng: np.random.Generator,
    refine: RefineConfig,
    readable: Callable[[FloatArray], BoolArray] | None = None,
) -> tuple[Units, FloatArray] | None:
    """Return units on R^d and their covariance, or None if no point is roomy enough.

    Parameters
    ----------
    ask
        The target on R^d.
    units, covariance
        As found on the subspace, in its coordinates.
    noise
        Of the answers, on R^d.
    draw
        Draws typical coordinates.
    readable
        Tells of values ``(n, m)`` whether answers there can be read, ``(n,)``; None: all can.
    """
    m, k = len(units.outputs), units.count
    d = subspace.rows.shape[1]
    count = int(np.ceil(_EFFORT * (m + k) / m))
    pool, clearance = candidate_points(
        units, covariance, draw, 4 * count + refine.candidates, noise.at, rng=rng, config=refine
    )
    if readable is not None:
        fine = readable(units(pool))
        pool, clearance = pool[fine], clearance[fine]
    if len(pool) < (m + k) / m:
        return None
    # Rows are as long on the subspace's coordinates as on the inputs, on average.
    norms = np.maximum(np.linalg.norm(units.weights, axis=1), np.finfo(np.float64).tiny)
    room = (clearance / norms).min(axis=1, initial=np.inf)  # no bound where there is no unit
    steps = refine.safety * room * np.sqrt(d) / _TAIL
    x = subspace.points(pool)
    steps = np.minimum(steps, np.linalg.norm(x, axis=1))
    variances = 2.0 * (noise.at(x) / steps[:, None]) ** 2
    rows = design_rows(units.gates(pool), units.outputs)
    size = np.linalg.norm(units.outputs, axis=0)
    usual = float(np.median(size)) if k else 1.0
    # For all units alike: a later fit needs every normal, those of nearly dead units too.
    wanted = design_rows(units.gates(pool), units.outputs / size * usual)
    slopes = norms if k else np.linalg.norm(units.linear, axis=1) + np.finfo(np.float64).tiny
    prior = float(np.mean(slopes**2)) / d * np.eye(m + k)
    chosen = select_pieces(wanted, np.sqrt(variances), _EFFORT)
    x, steps, rows = x[chosen], steps[chosen], rows[chosen]
    found = measure_gradients(ask, x, ask(x), steps, subspace.across, noise, rng=rng)
    good = found.ok
    if np.count_nonzero(good) * m < m + k:
        return None
    across, spread = update(
        # The prior only keeps the system solvable: a thousand times looser than any weight.
        1e6 * prior,
        rows[good].reshape(-1, m + k),
        found.derivatives[good].transpose(0, 2, 1).reshape(-1, len(subspace.across)),
        np.mean(found.std[good] ** 2, axis=1).reshape(-1),
    )
    return _lifted(units, across, subspace), spread + covariance / subspace.scale**2


def _lifted(units: Units, across: FloatArray, subspace: Subspace) -> Units:
    """Return units with their slopes across the subspace, ``(m + k, d - s)``."""
    m = len(units.outputs)
    return Units(
        weights=subspace.normals(units.weights) + across[m:] @ subspace.across,
        anchors=subspace.points(units.anchors),
        outputs=units.outputs,
        linear=subspace.normals(units.linear) + across[:m] @ subspace.across,
        base=subspace.points(units.base[None, :])[0],
        value=units.value,
        axes=subspace.points(units.axes) / subspace.scale,
    )
