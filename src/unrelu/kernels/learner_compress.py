"""Fewer units for the same function: merge clusters, drop what hardly bends.

Lemma 3.21 of Chen, Klivans & Meka: neurons whose hyperplanes nearly coincide
act as one neuron, the sum of their jumps, or as an affine function where the
sum vanishes. All of it is arithmetic on the units found; nothing is asked.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray
from unrelu.kernels.units import Units, parallel_groups

__all__ = ["CompressConfig", "affine_costs", "compress_units", "drop_flat", "merge_clusters"]


@dataclasses.dataclass(frozen=True)
class CompressConfig:
    """Choices of the compression."""

    angles: tuple[float, ...] = (3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
    """Closeness Delta (Definition 3.7) tried, from wide to narrow."""
    samples: int = 400
    """Points per cluster at which a merger is judged."""
    band: float = 6.0
    """They lie within this many spreads of the hyperplane: elsewhere a merger is exact."""


def affine_costs(units: Units) -> FloatArray:
    """Root mean square change when a unit is replaced by its best affine function, ``(k,)``.

    For ``z ~ N(b, s^2)`` the regression of relu(z) on z has slope ``Phi(b/s)``,
    and what it leaves is a closed form in b/s.
    """
    norms = np.linalg.norm(units.weights, axis=1)
    size = np.maximum(norms, np.finfo(np.float64).tiny)
    a = np.clip(units.biases / size, -1e6, 1e6)
    on, density = scipy.special.ndtr(a), np.exp(-0.5 * a**2) / math.sqrt(2.0 * math.pi)
    mean = a * on + density
    square = (1.0 + a**2) * on + a * density
    left = np.maximum(square - mean**2 - on**2, 0.0)
    # Far hyperplanes: the difference above is rounding; its size is E[relu(-|a| + g)^2].
    far = np.abs(a) > 5.0
    left = np.where(far, np.minimum(left, 2.0 * density / np.maximum(np.abs(a), 1.0) ** 3), left)
    strength = np.linalg.norm(units.outputs, axis=0)
    return np.asarray(np.sqrt(left) * norms * strength)


def drop_flat(units: Units, allowance: float) -> Units:
    """Replace the flattest units by affine functions, at a total root mean square cost.

    Costs are added up linearly, which bounds the error whatever the units.
    """
    if units.count == 0:
        return units
    cost = affine_costs(units)
    order = np.argsort(cost)
    gone = order[np.cumsum(cost[order]) <= allowance]
    if len(gone) == 0:
        return units
    size = np.linalg.norm(units.weights[gone], axis=1)
    safe = np.maximum(size, np.finfo(np.float64).tiny)
    a = np.clip(units.biases[gone] / safe, -1e6, 1e6)
    on, density = scipy.special.ndtr(a), np.exp(-0.5 * a**2) / math.sqrt(2.0 * math.pi)
    u = units.outputs[:, gone]
    linear = units.linear + (u * on) @ units.weights[gone]
    # E[relu(z)] = size (a on + density) = slope * E[z] + size * density.
    flat = np.where(size > 0, size * density, 0.0)
    constant = units.constant + u @ (on * units.biases[gone] + flat)
    keep = np.ones(units.count, dtype=bool)
    keep[gone] = False
    return _with_constant(units.kept(keep), linear, constant)


def _with_constant(units: Units, linear: FloatArray, constant: FloatArray) -> Units:
    """Return units with another affine part, anchored at the origin."""
    base = np.zeros(units.weights.shape[1])
    active = np.maximum(units.biases, 0.0)
    return dataclasses.replace(
        units, linear=linear, base=base, value=constant + units.outputs @ active
    )


def _orient(units: Units, group: list[int]) -> BoolArray:
    """Which units of a group point against its strongest one (Lemma 3.9)."""
    w = units.weights[group]
    strength = np.linalg.norm(units.outputs[:, group], axis=0)
    lead = int(np.argmax(np.linalg.norm(w, axis=1) * strength))
    turn = np.zeros(units.count, dtype=bool)
    turn[np.array(group)[w @ w[lead] < 0]] = True
    return turn


def _merged(units: Units, group: list[int]) -> tuple[FloatArray, float, FloatArray, FloatArray]:
    """Return the one unit ``(w, b, u)`` of a group that is oriented, and its typical normal.

    With one output it is the sum v*, b* of Lemma 3.21; with several the sum of
    the rank-one jumps is cut to its leading term.
    """
    w, b, u = units.weights[group], units.biases[group], units.outputs[:, group]
    jump = u @ np.column_stack([w, b])  # (m, d + 1)
    normal = w[int(np.argmax(np.linalg.norm(w, axis=1)))]
    if len(jump) == 1:
        sign = 1.0 if jump[0, :-1] @ normal >= 0 else -1.0
        return sign * jump[0, :-1], float(sign * jump[0, -1]), np.array([sign]), normal
    left, values, right = np.linalg.svd(jump, full_matrices=False)
    row = values[0] * right[0]
    sign = 1.0 if row[:-1] @ normal >= 0 else -1.0
    return sign * row[:-1], float(sign * row[-1]), np.asarray(sign * left[:, 0]), normal


def _merge_cost(
    units: Units,
    group: list[int],
    one: tuple[FloatArray, float, FloatArray],
    normal: FloatArray,
    config: CompressConfig,
    rng: np.random.Generator,
) -> float:
    """Root mean square error of a merger, over points in the band around the hyperplanes."""
    w, b, u = units.weights[group], units.biases[group], units.outputs[:, group]
    d = w.shape[1]
    size = float(np.linalg.norm(normal))
    n = normal / size
    lengths = np.linalg.norm(w, axis=1)
    offsets = -b / lengths * np.sign(w @ n)
    tilt = np.linalg.norm(w / lengths[:, None] - np.outer(np.sign(w @ n), n), axis=1)
    middle = 0.5 * float(offsets.min() + offsets.max())
    half = 0.5 * float(np.ptp(offsets)) + config.band * float(tilt.max()) + 1e-15
    x = rng.standard_normal((config.samples, d))
    grid = (np.arange(config.samples) + rng.uniform(size=config.samples)) / config.samples
    z = middle + half * (2.0 * grid - 1.0)
    x += np.outer(z - x @ n, n)
    exact = np.maximum(x @ w.T + b, 0.0) @ u.T
    w1, b1, u1 = one
    error = exact - np.outer(np.maximum(x @ w1 + b1, 0.0), u1)
    weight = 2.0 * half * np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    return float(np.sqrt(np.mean(weight[:, None] * error**2) * error.shape[1]))


def merge_clusters(
    units: Units, allowance: float, *, config: CompressConfig | None = None
) -> Units:
    """Merge units of nearly equal hyperplanes, at a total root mean square cost.

    A group that cancels becomes affine: its merged unit is left out where its
    own bend costs less than the rest of the allowance.
    """
    config = CompressConfig() if config is None else config
    rng = np.random.default_rng(0)  # places of test points, not an estimate: any will do
    left = allowance
    for angle in config.angles:
        groups = parallel_groups(units, np.full(units.count, 0.5 * angle))
        if not groups:
            continue
        share = left / len(groups)
        keep = np.ones(units.count, dtype=bool)
        add: list[tuple[FloatArray, float, FloatArray]] = []
        turn = np.zeros(units.count, dtype=bool)
        for group in groups:
            turn_group = _orient(units, group)
            oriented = units.turned(turn_group)
            w, b, u, normal = _merged(oriented, group)
            cost = _merge_cost(oriented, group, (w, b, u), normal, config, rng)
            if cost <= share:
                left -= cost
                turn |= turn_group
                keep[group] = False
                add.append((w, b, u))
        if add:
            units = _replace(units.turned(turn), keep, add)
    return units


def _replace(
    units: Units, keep: BoolArray, add: list[tuple[FloatArray, float, FloatArray]]
) -> Units:
    constant, linear = units.constant, units.linear
    w = np.array([a[0] for a in add])
    b = np.array([a[1] for a in add])
    u = np.array([a[2] for a in add]).T
    square = np.einsum("kd,kd->k", w, w)
    some = square > 0
    constant = constant + u[:, ~some] @ np.maximum(b[~some], 0.0)
    w, b, u, square = w[some], b[some], u[:, some], square[some]
    kept = units.kept(keep)
    joined = Units(
        weights=np.concatenate([kept.weights, w]),
        anchors=np.concatenate([kept.anchors, -(b / square)[:, None] * w]),
        outputs=np.concatenate([kept.outputs, u], axis=1),
        linear=linear,
        base=kept.base,
        value=kept.value,
    )
    return _with_constant(joined, linear, constant)


def compress_units(
    units: Units, allowance: float, *, config: CompressConfig | None = None
) -> Units:
    """Merge clusters, then drop flat units; half of the allowance for each."""
    merged = merge_clusters(units, 0.5 * allowance, config=config)
    return drop_flat(merged, 0.5 * allowance)
