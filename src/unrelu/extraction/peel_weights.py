"""Weights of a row that no crossing has shown yet.

A row is known at the units that were on where it was crossed. Its weight at another
unit k shows where both surfaces meet: a little beyond k's surface, the row's own is
displaced by what that weight adds. The place is predicted from what is known of
the row, two points on each side of it find the kink, two more beside it test it; so does
the kink that the weight then predicts where the unit is well on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_numbers import FAINT, PLAIN, TRIES
from unrelu.extraction.peel_refit import refit_row, unsure
from unrelu.extraction.peel_rows import (
    KNOWN_TO,
    NEWTON,
    PLACED,
    STEP,
    Row,
    onto_surface,
    test_surface,
)
from unrelu.extraction.prefix import Prefix

__all__ = ["complete_row"]

AskPoints = Callable[[FloatArray], FloatArray]

BEYOND = PLAIN
"""How far beyond a unit's surface its weight is measured, over the norm of the input: the
displacement is as precise as this is large, and other kinks are the rarer the less it is."""
WINDOW = 4.0
"""Weights up to this many times the row's largest are looked for."""
PLACES = TRIES
"""Places asked at in turn, until one is confirmed or two agree, and how often in vain; the same
where the unit is on by more."""
AGREE = FAINT
"""How well, over one and the weight."""


def _meeting(
    row: Row, unit: int, prefix: Prefix, starts: FloatArray, *, steps: int = NEWTON
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Find points on a row's surface a little beyond that of a unit of the last known layer.

    Returns
    -------
    points, directions, widths
        ``(n, d)`` twice and ``(n,)``: unit vectors across the row's surface along which the
        unit's height stays, and how far to look along them.
    """
    known = np.where(row.known[:-1], row.theta[:-1], 0.0)
    alone = np.zeros((len(starts), prefix.width))
    alone[:, unit] = 1.0
    x = starts.copy()
    for turn in range(steps + 1):
        z, states = prefix.states(x)
        on = states[-1]
        gate, slope = prefix.pulled(states, alone), prefix.pulled(states, np.where(on, known, 0.0))
        length = np.linalg.norm(gate, axis=1)
        above = BEYOND * length * (1.0 + np.linalg.norm(x, axis=1))
        off = np.stack([z[:, unit] - above, (z * on) @ known + row.theta[-1]], axis=1)
        if turn == steps:
            break
        both = np.stack([gate, slope], axis=1)
        gram = both @ both.transpose(0, 2, 1)
        scale = np.maximum(np.trace(gram, axis1=1, axis2=2), 1e-300)
        gram = gram + 1e-13 * scale[:, None, None] * np.eye(2)
        x = x - np.einsum("nid,ni->nd", both, np.linalg.solve(gram, off[:, :, None])[:, :, 0])
        x = np.where(np.isfinite(x).all(axis=1, keepdims=True), x, starts)  # ran away: again
    others = ~row.known[:-1]
    others[unit] = False
    along = np.einsum("nd,nd->n", slope, gate) / np.maximum(length**2, 1e-300)
    across = slope - along[:, None] * gate
    size = np.linalg.norm(across, axis=1)
    norms = 1.0 + np.linalg.norm(x, axis=1)
    steep = np.maximum(np.linalg.norm(slope, axis=1), 1e-300)
    fine = on[:, unit] & ~(on & others).any(axis=1) & np.isfinite(x).all(axis=1)
    fine &= prefix.sure(x)
    fine &= (np.abs(off[:, 1]) <= 1e-10 * norms * steep) & (size > 0.1 * steep)
    x, across, size, height = x[fine], across[fine], size[fine], z[fine, unit]
    width = WINDOW * np.abs(row.theta[:-1]).max() * height / np.maximum(size, 1e-300)
    direction = across / size[:, None]
    room = prefix.switches(x, direction)
    fits = (2.0 * width < room) & (width < 0.2 * (1.0 + np.linalg.norm(x, axis=1)))
    return x[fits], direction[fits], width[fits]


def _weights(
    ask: AskPoints,
    row: Row,
    unit: int,
    prefix: Prefix,
    noise: NoiseModel,
    places: tuple[FloatArray, FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Measure a weight at several places; only those with one kink in the window tell.

    Returns
    -------
    weights, errors
        ``(n,)`` each: what the other weights are off by counts as often as the unit is on by
        less than theirs are.
    """
    x, u, width = places
    grid = np.array([-1.5, -1.0, 1.0, 1.5])
    at = x[:, None] + (width[:, None] * grid)[:, :, None] * u[:, None]
    y = ask(at.reshape(-1, x.shape[1])).reshape(len(x), 4, -1)
    std = noise.at(x)
    left, right = (y[:, 1] - y[:, 0]) / 0.5, (y[:, 3] - y[:, 2]) / 0.5
    bend = right - left
    pick = np.nan_to_num(np.abs(bend) / std).argmax(axis=1)
    index = np.arange(len(x))
    gap = (y[:, 1] + left) - (y[:, 2] - right)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (gap / bend)[index, pick]
    fine = (np.abs(bend[index, pick]) > 1e3 * std[index, pick]) & (np.abs(t) < 0.95)
    x, u, width, y, std = x[fine], u[fine], width[fine], y[fine], std[fine]
    left, right, t = left[fine], right[fine], t[fine]
    if len(x) == 0:
        return np.empty(0), np.empty(0)
    beside = 0.5 * np.minimum(1.0 - np.abs(t), 0.1)
    tests = np.stack([t - beside, t + beside], axis=1)
    at = x[:, None] + (width[:, None] * tests)[:, :, None] * u[:, None]
    seen = ask(at.reshape(-1, x.shape[1])).reshape(len(x), 2, -1)
    miss = np.stack(
        [
            seen[:, 0] - (y[:, 1] + left * (tests[:, 0] + 1.0)[:, None]),
            seen[:, 1] - (y[:, 2] + right * (tests[:, 1] - 1.0)[:, None]),
        ],
        axis=1,
    )
    good = (np.abs(miss) <= 100.0 * std[:, None]).all(axis=(1, 2))
    kink = x[good] + (width * t)[good, None] * u[good]
    heights = prefix.heights(kink)
    known = np.where(row.known[:-1], row.theta[:-1], 0.0)
    rest = heights @ known + row.theta[-1]
    off = heights**2 @ row.error[:-1] ** 2 + row.error[-1] ** 2
    return -rest / heights[:, unit], np.sqrt(off) / heights[:, unit]


def complete_row(
    ask: AskPoints,
    row: Row,
    prefix: Prefix,
    noise: NoiseModel,
    starts: FloatArray,
    *,
    tried: dict[tuple[bytes, int], int],
    rng: np.random.Generator,
) -> Row:
    """Measure the weights of a row that are not known, those that can be reached.

    Parameters
    ----------
    starts
        Points from which a row's surface is looked for, ``(n, d)``.
    tried
        How often each weight was asked for in vain, by the row's anchor and the unit.
    """
    missing = [int(k) for k in np.flatnonzero(~row.known[:-1])]
    progress = True
    while missing and progress:  # a weight that is known opens places for others
        progress = False
        for unit in list(missing):
            key = row.anchor.tobytes(), unit
            if tried.get(key, 0) >= TRIES:
                continue
            x, u, width = _meeting(row, unit, prefix, starts)
            if len(x) == 0:
                continue
            near = np.argsort(np.linalg.norm(x, axis=1))[: 4 * PLACES]
            chosen = rng.permutation(near)[:PLACES]
            better = _measured(
                ask, row, unit, prefix, noise, (x[chosen], u[chosen], width[chosen]), starts
            )
            if better is None:
                tried[key] = tried.get(key, 0) + 1
                continue
            row = better
            missing.remove(unit)
            progress = True
    return row


def _measured(
    ask: AskPoints,
    row: Row,
    unit: int,
    prefix: Prefix,
    noise: NoiseModel,
    places: tuple[FloatArray, FloatArray, FloatArray],
    starts: FloatArray,
) -> Row | None:
    """Return the row with a weight that one place tells and another confirms, or None."""
    values, errors = np.empty(0), np.empty(0)
    for i in range(len(places[0])):
        x, u, width = (part[i : i + 1] for part in places)
        found, off = _weights(ask, row, unit, prefix, noise, (x, u, width))
        if len(found) == 0:
            continue
        values, errors = np.append(values, found), np.append(errors, off)
        agreed = _agreed(values)
        theta, known, error = row.theta.copy(), row.known.copy(), row.error.copy()
        theta[unit], known[unit] = found[0] if agreed is None else agreed, True
        error[unit] = KNOWN_TO + (off[0] if agreed is None else errors.min())
        longer = dataclasses.replace(row, theta=theta, known=known, error=error)
        sharp = _sharpened(ask, longer, unit, prefix, noise, starts)
        if sharp is not None or agreed is not None:
            return longer if sharp is None else sharp
    return None


def _sharpened(
    ask: AskPoints,
    row: Row,
    unit: int,
    prefix: Prefix,
    noise: NoiseModel,
    starts: FloatArray,
) -> Row | None:
    """Measure the last weight again, where its unit is well on; None where no kink confirms it.

    The place of the kink there tells it more precisely than beside the unit's surface.
    """
    x, n = onto_surface(row, prefix, starts)
    z, on = prefix.states(x)
    heights = np.where(on[-1], z, 0.0)
    slope = np.linalg.norm(prefix.pulled(on, on[-1] * row.theta[:-1]), axis=1)
    far = 1.0 + np.linalg.norm(x, axis=1)
    lever = heights[:, unit] / np.maximum(slope, 1e-300) / far
    best = int(lever.argmax()) if len(x) else -1
    for _ in range(PLACES):
        if best < 0 or not lever[best] > 0.0:
            break
        found = test_surface(ask, x[[best]], n[[best]], prefix, noise)
        lever[best] = 0.0
        if found.there[0]:
            kink = x[[best]] + found.offsets[:, None] * n[[best]]
            return refit_row(row.seen_at(kink), prefix)
        # Nearer to the unit's surface, where the weight need not be so precise.
        lever[unsure(row, x, prefix) > PLACED * STEP * far] = 0.0
        best = int(lever.argmax())
    return None


def _agreed(values: FloatArray) -> float | None:
    """Return the value that most agree on, at least two."""
    if len(values) < 2:
        return None
    near = np.abs(values[:, None] - values) <= AGREE * (1.0 + np.abs(values))
    best = int(near.sum(axis=1).argmax())
    if near[best].sum() < 2:
        return None
    return float(np.median(values[near[best]]))
