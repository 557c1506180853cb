"""Units that nearly coincide: a boundary that bends is two hyperplanes."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.explain import CHUNK
from unrelu.thresholds.config import EPS, ThresholdConfig
from unrelu.thresholds.flat import bent_units, split_in_two
from unrelu.thresholds.passes import Passes, Slabs
from unrelu.thresholds.refine import Refinement
from unrelu.thresholds.slab import tangent_basis

__all__ = ["slab_widths", "with_twins"]


def slab_widths(state: Refinement, cfg: ThresholdConfig) -> FloatArray:
    """Half-widths of the slabs collected from all samples, ``(k,)``."""
    return np.maximum(cfg.reach**2 * state.errors, np.sqrt(EPS))


def with_twins(
    state: Refinement,
    slabs: Slabs,
    passes: Passes,
    threshold: float | None,
    rng: np.random.Generator,
    cfg: ThresholdConfig,
) -> Refinement:
    """Replace units next to which no hyperplane explains the labels by two that do.

    For exact labels alone: two hyperplanes that contradict none of them. Their standard error
    is that of one point per unknown, over the spread of a half-normal variable: each is seen
    on one side of the bend alone.
    """
    if not passes.base.exact or threshold is not None:
        return state
    if slabs.overexplained_count or slabs.unexplained_count:
        return state
    widths = slab_widths(state, cfg)
    bent = bent_units(
        slabs.x, slabs.on, state.directions, state.thresholds, widths, state.errors,
        flipped=(0, slabs.above + slabs.below), move_thresholds=True, doubt=cfg.doubt, rng=rng,
    )  # fmt: skip
    for unit, _, _ in sorted(bent, reverse=True):
        state = _split(state, unit, slabs, float(widths[unit]), cfg) or state
    return state


def _split(
    state: Refinement, unit: int, slabs: Slabs, width: float, cfg: ThresholdConfig
) -> Refinement | None:
    """Replace one unit by two, from the points of its slab that no other unit is near."""
    w, n = state.directions[unit], slabs.x.shape[1]
    others = np.arange(len(state.directions)) != unit
    height = slabs.x @ w - state.thresholds[unit]
    clear = (slabs.x @ state.directions[others].T < state.thresholds[others]).all(axis=1)
    mine = np.flatnonzero(clear & (np.abs(height) < width))[:CHUNK]
    basis = tangent_basis(w)
    along, on = slabs.x[mine] @ basis, slabs.on[mine]
    planes = split_in_two(height[mine], along, on, rounds=cfg.rounds)
    if planes is None:
        return None
    over = np.array([height[mine] - plane[0] - along @ plane[1:] for plane in planes])
    counts = np.bincount(np.argmax(over, axis=0), minlength=2)
    if counts.min() < cfg.points_per_unknown:
        return None
    normals = np.array([w - basis @ plane[1:] for plane in planes])
    length = np.linalg.norm(normals, axis=1)
    cuts = (state.thresholds[unit] + np.array([plane[0] for plane in planes])) / length
    return Refinement(
        np.vstack([state.directions[others], normals / length[:, None]]),
        np.append(state.thresholds[others], cuts),
        np.append(state.errors[others], 2.0 * width * n / counts / np.sqrt(1.0 - 2.0 / np.pi)),
        np.append(state.jumps[others], np.ones(2)),
        np.append(state.widths[others], np.full(2, width)),
        state.history,
    )
