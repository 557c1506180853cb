r"""What each unit's activation is, from its profile along its dual direction.

On the line :math:`x_0 + t\,\delta_j` with :math:`w_i \delta_j = 0` for :math:`i \ne j` unit j
changes alone: the answers are :math:`u\,\varphi(st + c)` plus an affine function of t. Each
known activation is fitted to that: its place and scale on a grid, then by the same fit as the
whole layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.activations import SMOOTH, Activation, activation
from unrelu.smooth.fit import fit_layer
from unrelu.smooth.rows import Rows
from unrelu.smooth.run import SmoothRun

__all__ = [
    "Profile",
    "UnitFit",
    "bending_part",
    "fit_profile",
    "measure_profiles",
    "rank_activations",
]

_SCALES = np.geomspace(0.08, 12.0, 24)  # of preactivations over typical inputs
_CENTRES = np.linspace(-1.5, 1.5, 31)  # of a unit, over the line's half length
_STARTS = 2  # best places on the grid that are fitted


@dataclasses.dataclass(frozen=True)
class Profile:
    """Answers on a unit's line.

    Attributes
    ----------
    points
        Where they were asked, ``(n, d)``.
    positions
        t, ``(n,)``.
    answers
        ``(n, m)``.
    values
        The part of the answers that bends, ``(n, 1)``, over its deviation.
    direction
        The unit's direction, ``(d,)``: ``points @ direction`` is t plus ``offset``.
    offset
        See there.
    """

    points: FloatArray
    positions: FloatArray
    answers: FloatArray
    values: FloatArray
    direction: FloatArray
    offset: float


@dataclasses.dataclass(frozen=True)
class UnitFit:
    """A unit as one activation explains its profile: ``phi(scale t + shift)``.

    ``misfit`` is the root mean square residual over the deviation of an answer.
    """

    scale: float
    shift: float
    misfit: float


def measure_profiles(run: SmoothRun, rows: Rows) -> list[Profile]:
    """Ask on every unit's line."""
    count, reach = run.config.profile, run.config.reach
    # Denser in the middle, where typical inputs lie.
    t = reach * np.sinh(np.linspace(-1.0, 1.0, count) * 1.5) / np.sinh(1.5)
    base = run.draw(1)[0]
    base = base - rows.basis.T @ (rows.basis @ base)  # t = 0 is the middle of typical inputs
    places = base + t[None, :, None] * rows.duals[:, None, :]
    answers = run.ask(places.reshape(-1, len(base))).reshape(len(places), count, -1)
    profiles = []
    for direction, points, seen in zip(rows.directions, places, answers, strict=True):
        good = np.isfinite(seen).all(axis=1)
        scaled = seen[good] / run.noise
        values = bending_part(t[good], scaled)
        offset = -float(direction @ base)
        profiles.append(Profile(points[good], t[good], seen[good], values, direction, offset))
    return profiles


def bending_part(t: FloatArray, answers: FloatArray) -> FloatArray:
    """Return the combination of outputs that is farthest from straight, ``(n, 1)``."""
    straight = np.column_stack([np.ones_like(t), t])
    rest = answers - straight @ np.linalg.lstsq(straight, answers, rcond=None)[0]
    _, _, right = np.linalg.svd(rest, full_matrices=False)
    return np.asarray(answers @ right[0][:, None])


def _grid_starts(t: FloatArray, y: FloatArray, phi: Activation) -> list[tuple[float, float]]:
    """Return the best places ``(scale, shift)`` on a grid: least squares with a straight part."""
    scales = np.concatenate([_SCALES, -_SCALES]) if phi.mirror is None else _SCALES
    reach = float(np.abs(t).max())
    s, centre = (a.ravel() for a in np.meshgrid(scales, _CENTRES * reach, indexing="ij"))
    z = s[None, :] * (t[:, None] - centre[None, :])
    straight, _ = np.linalg.qr(np.column_stack([np.ones_like(t), t]))
    bent = phi(z)
    bent = bent - straight @ (straight.T @ bent)
    rest = y[:, 0] - straight @ (straight.T @ y[:, 0])
    norms = np.linalg.norm(bent, axis=0)
    fine = norms > np.finfo(np.float64).eps ** 0.5 * np.sqrt(len(t))
    gain = np.where(fine, (rest @ bent) / np.where(fine, norms, 1.0), 0.0) ** 2
    best = np.argsort(-gain, kind="stable")[:_STARTS]
    return [(float(s[i]), float(-s[i] * centre[i])) for i in best]


def fit_profile(profile: Profile, phi: Activation) -> UnitFit:
    """Fit one activation to one unit's profile."""
    t, y = profile.positions, profile.values
    best = UnitFit(1.0, 0.0, np.inf)
    if len(t) < 6:  # as many as it has parameters, and one more
        return best
    for scale, shift in _grid_starts(t, y, phi):
        start = np.array([[scale]]), np.array([shift])
        fit = fit_layer(t[:, None], y, np.ones(len(t)), *start, phi, skip=True)
        if fit.rms < best.misfit:
            best = UnitFit(float(fit.layer.weights[0, 0]), float(fit.layer.biases[0]), fit.rms)
    return best


def rank_activations(
    profiles: list[Profile], names: Sequence[str] = SMOOTH
) -> list[tuple[Activation, list[UnitFit]]]:
    """Fit every known activation to all profiles; the likeliest for all of them first.

    One activation serves all units: misfits are compared by their geometric mean, which is
    the likelihood where each unit's residual has a deviation of its own.
    """
    found = []
    for name in names:
        phi = activation(name)
        units = [fit_profile(profile, phi) for profile in profiles]
        misfits = np.log([max(unit.misfit, np.finfo(np.float64).tiny) for unit in units])
        found.append((float(np.mean(misfits)), phi, units))
    found.sort(key=lambda item: item[0])
    return [(phi, units) for _, phi, units in found]
