"""A copy of units whose activation is unknown: each unit's profile as a spline."""

from __future__ import annotations

import numpy as np

from unrelu.core.activations import Activation, spline
from unrelu.smooth.fit import Layer, solve_outputs
from unrelu.smooth.profiles import bending_part
from unrelu.smooth.rows import Rows
from unrelu.smooth.run import SmoothRun

__all__ = ["spline_copy"]


def spline_copy(run: SmoothRun, rows: Rows) -> tuple[Layer, Activation]:
    """Ask each unit's profile at many points, and return units that follow it.

    A unit with several outputs has one profile, that of the outputs in which it bends most.
    """
    reach, (k, d) = run.config.reach, rows.directions.shape
    knots = run.config.knots  # eight for each deviation of a typical input
    t = np.linspace(-reach, reach, knots)
    base = run.draw(1)[0]
    base = base - rows.basis.T @ (rows.basis @ base)
    with run.stage("copy"):
        places = base + t[None, :, None] * rows.duals[:, None, :]
        answers = run.ask(places.reshape(-1, d)).reshape(k, knots, -1)
        points = run.draw(4 * (k + d + 1))
        seen = run.ask(points)
    if not np.isfinite(answers).all():
        raise ValueError("some answers on the units' lines could not be read")
    values = np.stack([bending_part(t, unit / run.noise)[:, 0] for unit in answers])
    values /= np.maximum(np.ptp(values, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    phi = spline(np.full(k, -reach), np.full(k, reach), values)
    good = np.isfinite(seen).all(axis=1)
    fit = solve_outputs(
        points[good], seen[good], run.deviations(seen[good]), rows.directions, np.zeros(k), phi,
        skip=True,
    )  # fmt: skip
    return fit.layer, phi
