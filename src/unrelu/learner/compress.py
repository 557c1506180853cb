"""Fewer neurons for the same function: merge clusters, drop what hardly bends.

Lemma 3.21 of Chen, Klivans & Meka: neurons whose hyperplanes nearly coincide
act as one neuron, the sum of their jumps, or as an affine function where the
sum vanishes. All of it is arithmetic on the neurons found; nothing is asked.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.special

from unrelu._types import BoolArray, FloatArray
from unrelu.core.noise import RARE
from unrelu.learner.neurons import Neurons, close_groups

__all__ = [
    "affine_costs",
    "compress_neurons",
    "drop_flat",
    "merge_clusters",
]


def affine_costs(neurons: Neurons) -> FloatArray:
    """Root mean square change when a unit is replaced by its best affine function, ``(k,)``.

    For ``z ~ N(b, s^2)`` the regression of relu(z) on z has slope ``Phi(b/s)``,
    and what it leaves is a closed form in b/s.
    """
    a = np.clip(neurons.biases / neurons.norms, -1e6, 1e6)
    on, density = scipy.special.ndtr(a), np.exp(-0.5 * a**2) / math.sqrt(2.0 * math.pi)
    mean = a * on + density
    square = (1.0 + a**2) * on + a * density
    left = np.maximum(square - mean**2 - on**2, 0.0)
    # Far hyperplanes: the difference above is rounding; its size is E[relu(-|a| + g)^2].
    far = np.abs(a) > 5.0
    left = np.where(far, np.minimum(left, 2.0 * density / np.maximum(np.abs(a), 1.0) ** 3), left)
    return np.asarray(np.sqrt(left) * neurons.strengths)


def drop_flat(neurons: Neurons, allowance: float) -> Neurons:
    """Replace the flattest neurons by affine functions, at a total root mean square cost.

    Costs are added up linearly, which bounds the error whatever the neurons.
    """
    if neurons.count == 0:
        return neurons
    cost = affine_costs(neurons)
    order = np.argsort(cost)
    gone = order[np.cumsum(cost[order]) <= allowance]
    if len(gone) == 0:
        return neurons
    size = neurons.norms[gone]
    a = np.clip(neurons.biases[gone] / size, -1e6, 1e6)
    on, density = scipy.special.ndtr(a), np.exp(-0.5 * a**2) / math.sqrt(2.0 * math.pi)
    u = neurons.outputs[:, gone]
    linear = neurons.linear + (u * on) @ neurons.weights[gone]
    # E[relu(z)] = on E[z] + size density, and E[z] is the bias.
    constant = neurons.constant + u @ (on * neurons.biases[gone] + size * density)
    keep = np.ones(neurons.count, dtype=bool)
    keep[gone] = False
    return dataclasses.replace(neurons.kept(keep), linear=linear, constant=constant)


def _orient(neurons: Neurons, group: list[int]) -> BoolArray:
    """Which neurons of a group point against its strongest one (Lemma 3.9)."""
    w = neurons.weights[group]
    strength = np.linalg.norm(neurons.outputs[:, group], axis=0)
    lead = int(np.argmax(np.linalg.norm(w, axis=1) * strength))
    turn = np.zeros(neurons.count, dtype=bool)
    turn[np.array(group)[w @ w[lead] < 0]] = True
    return turn


def _merged(
    neurons: Neurons, group: list[int]
) -> tuple[FloatArray, float, FloatArray, FloatArray]:
    """Return the one unit ``(w, b, u)`` of a group that is oriented, and its typical normal.

    With one output it is the sum v*, b* of Lemma 3.21; with several the sum of
    the rank-one jumps is cut to its leading term.
    """
    w, b, u = neurons.weights[group], neurons.biases[group], neurons.outputs[:, group]
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
    neurons: Neurons,
    group: list[int],
    one: tuple[FloatArray, float, FloatArray],
    normal: FloatArray,
    rng: np.random.Generator,
) -> float:
    """Root mean square error of a merger, over points in the band around the hyperplanes.

    Elsewhere a merger is exact. Of each neuron's hyperplane 100 points tell that to 10 %.
    """
    w, b, u = neurons.weights[group], neurons.biases[group], neurons.outputs[:, group]
    d = w.shape[1]
    size = float(np.linalg.norm(normal))
    n = normal / size
    lengths = np.linalg.norm(w, axis=1)
    offsets = -b / lengths * np.sign(w @ n)
    tilt = np.linalg.norm(w / lengths[:, None] - np.outer(np.sign(w @ n), n), axis=1)
    middle = 0.5 * float(offsets.min() + offsets.max())
    half = 0.5 * float(np.ptp(offsets)) + RARE * float(tilt.max())
    half = max(half, float(np.finfo(np.float64).eps) * max(1.0, abs(middle)))
    count = 100 * len(group)
    x = rng.standard_normal((count, d))
    grid = (np.arange(count) + rng.uniform(size=count)) / count
    z = middle + half * (2.0 * grid - 1.0)
    x += np.outer(z - x @ n, n)
    exact = np.maximum(x @ w.T + b, 0.0) @ u.T
    w1, b1, u1 = one
    error = exact - np.outer(np.maximum(x @ w1 + b1, 0.0), u1)
    weight = 2.0 * half * np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    return float(np.sqrt(np.mean(weight[:, None] * error**2) * error.shape[1]))


def merge_clusters(neurons: Neurons, allowance: float, rng: np.random.Generator) -> Neurons:
    """Merge neurons of nearly equal hyperplanes, at a total root mean square cost.

    Closeness Delta (Definition 3.7) is tried from a tenth down to rounding, decade by decade.

    A group that cancels becomes affine: its merged unit is left out where its
    own bend costs less than the rest of the allowance. ``rng`` draws the points at which costs
    are measured.
    """
    left = allowance
    for decade in range(1, np.finfo(np.float64).precision):
        groups = close_groups(neurons, 10.0**-decade)
        if not groups:
            continue
        share = left / len(groups)
        keep = np.ones(neurons.count, dtype=bool)
        add: list[tuple[FloatArray, float, FloatArray]] = []
        turn = np.zeros(neurons.count, dtype=bool)
        for group in groups:
            turn_group = _orient(neurons, group)
            oriented = neurons.turned(turn_group)
            w, b, u, normal = _merged(oriented, group)
            cost = _merge_cost(oriented, group, (w, b, u), normal, rng)
            if cost <= share:
                left -= cost
                turn |= turn_group
                keep[group] = False
                add.append((w, b, u))
        if add:
            neurons = _replace(neurons.turned(turn), keep, add).without_broken()
    return neurons


def _replace(
    neurons: Neurons, keep: BoolArray, add: list[tuple[FloatArray, float, FloatArray]]
) -> Neurons:
    kept = neurons.kept(keep)
    return dataclasses.replace(
        kept,
        weights=np.concatenate([kept.weights, [a[0] for a in add]]),
        biases=np.concatenate([kept.biases, [a[1] for a in add]]),
        outputs=np.concatenate([kept.outputs, np.array([a[2] for a in add]).T], axis=1),
    )


def compress_neurons(neurons: Neurons, allowance: float, rng: np.random.Generator) -> Neurons:
    """Merge clusters, then drop flat neurons; half of the allowance for each."""
    merged = merge_clusters(neurons, 0.5 * allowance, rng)
    return drop_flat(merged, 0.5 * allowance)
