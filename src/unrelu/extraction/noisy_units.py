"""Units that a fit still lacks, or does not need."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.fit import FitConfig, Fitted, Layered, gain_by_chance
from unrelu.core.units import SAME_DIRECTION
from unrelu.extraction.noisy_answers import Answers, Seen
from unrelu.extraction.noisy_search import SAME, apart

_SUSPECT = 100.0
"""A unit is tried to be left out where that moves answers by fewer of their deviations, all
hyperplanes given: one beside another is made up for by moving that, too."""
_TINY = float(np.finfo(np.float64).tiny)

__all__ = [
    "add_missing_unit",
    "with_unit",
    "without_needless",
    "without_skip",
    "without_units",
]

_CANDIDATES = 2000
"""Random hyperplanes compared where a unit is missing: in eight dimensions the best of so many
is within 40 degrees of any other, and the fit does the rest."""
_SPECTRAL = 4
"""Eigenvectors of the residual's second moment taken beside them: in many dimensions chance
finds nothing, but a unit bends the residual along its own normal most."""


def add_missing_unit(
    answers: Answers, fitted: Fitted, seen: Seen, rng: np.random.Generator
) -> Fitted | None:
    """Fit one more unit to what a fit leaves; None where the noise explains that as well.

    At a fit's optimum its residual is orthogonal to all that its parameters can do, so that the
    part of a new unit which they could explain drops out of the product with the residual.
    """
    net = fitted.network
    residual = answers.residuals(net, seen)
    usual = max(float(np.median(np.abs(residual))), _TINY)
    residual = np.clip(
        residual, -FitConfig.outlier * usual / 0.6745, FitConfig.outlier * usual / 0.6745
    )  # beside kinks: outliers
    w, b = _candidates(seen.x, residual, rng)
    score, outputs = _scores(w, b, seen.x, residual)
    best = int(np.argmax(score))
    sigma = np.median(answers.deviation(seen), axis=0)
    if answers.kind != "values":
        sigma = np.median(answers.inner(seen.x), axis=0)
    grown = with_unit(net, w[best], float(b[best]), outputs[best] * sigma)
    again = answers.fit(grown, seen)
    return again if _worth(answers, fitted, again, seen) else None


def with_unit(net: Layered, row: FloatArray, bias: float, outputs: FloatArray) -> Layered:
    """Return the network plus ``u relu(w x + b)``."""
    (w, u), (b, c) = net.weights, net.biases
    return Layered(
        (np.vstack([w, row]), np.column_stack([u, outputs])), (np.append(b, bias), c), net.skip
    )


def _worth(answers: Answers, few: Fitted, more: Fitted, seen: Seen) -> bool:
    """Whether a fit with more units explains more than the noise of its parameters does.

    Both by the same yardstick: squares up to a few deviations of the better fit.
    """
    d, _, m = more.network.widths
    own = (d + 1 + m) * (len(more.network.biases[0]) - len(few.network.biases[0]))
    cap = FitConfig.outlier * max(more.scale, _TINY)
    gain = _loss(answers.residuals(few.network, seen), cap)
    gain -= _loss(answers.residuals(more.network, seen), cap)
    return bool(gain > more.scale**2 * gain_by_chance(own))


def _loss(residual: FloatArray, cap: float) -> float:
    return float(np.sum(np.log1p((residual / cap) ** 2))) * cap**2


def _candidates(
    x: FloatArray, residual: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return hyperplanes ``(c, d)``, ``(c,)`` through points of the data."""
    n, d = x.shape
    w = rng.standard_normal((_CANDIDATES, d))
    left, size, right = np.linalg.svd(residual, full_matrices=False)
    spectral = []
    for which in range(min(2, len(size))):
        signal = left[:, which] * size[which]
        moment = (x * signal[:, None]).T @ x
        values, vectors = np.linalg.eigh(moment)
        order = np.argsort(-np.abs(values))[:_SPECTRAL]
        spectral.append(vectors[:, order].T)
    del right
    chosen = np.concatenate(spectral)
    w[: 40 * len(chosen)] = np.repeat(chosen, 40, axis=0)[: len(w)]
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    b = -np.einsum("cd,cd->c", w, x[rng.integers(n, size=len(w))])
    return w, b


def _scores(
    w: FloatArray, b: FloatArray, x: FloatArray, residual: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return what each candidate explains, ``(c,)``, and the outputs with which it does."""
    affine = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    q, _ = np.linalg.qr(affine)
    score, outputs = np.empty(len(w)), np.empty((len(w), residual.shape[1]))
    for start in range(0, len(w), 256):
        part = slice(start, start + 256)
        hidden = np.maximum(x @ w[part].T + b[part], 0.0)
        hidden -= q @ (q.T @ hidden)
        square = (hidden**2).sum(axis=0)
        square += np.finfo(np.float64).eps * max(float(square.max()), 1e-300)
        # both sides of a hyperplane must be seen for it to be one
        product = hidden.T @ residual
        outputs[part] = product / square[:, None]
        score[part] = (product**2).sum(axis=1) / square
    return score, outputs


def _contributions(net: Layered, x: FloatArray) -> FloatArray:
    """Return by how much the kink of each unit moves answers at most, ``(k,)``.

    The smaller side of a unit is what is not affine.
    """
    z = x @ net.weights[0].T + net.biases[0]
    size = np.linalg.norm(net.weights[1], axis=0)
    smaller = np.minimum(np.maximum(-z, 0.0).max(axis=0), np.maximum(z, 0.0).max(axis=0))
    return np.asarray(smaller * size)


def without_units(net: Layered, gone: BoolArray, x: FloatArray) -> Layered:
    """Drop units; those that are mostly on at x leave their affine part to the skip term."""
    on = gone & (np.median(x @ net.weights[0].T + net.biases[0], axis=0) > 0)
    u, kept = net.weights[1], ~gone
    skip = net.skip
    if on.any():
        skip = (0.0 if skip is None else skip) + u[:, on] @ net.weights[0][on]
    return dataclasses.replace(
        net,
        weights=(net.weights[0][kept], u[:, kept]),
        biases=(net.biases[0][kept], net.biases[1] + u[:, on] @ net.biases[0][on]),
        skip=skip,
    )


def _losses(net: Layered, x: FloatArray, sigma: FloatArray) -> FloatArray:
    """Return what the sum of squares rises by without each unit, hyperplanes given, ``(k,)``.

    All other outputs and the affine part are solved for anew. Per scalar answer, whose deviation
    is ``sigma``, ``(n, 1)``.
    """
    hidden = np.maximum(x @ net.weights[0].T + net.biases[0], 0.0)
    k = hidden.shape[1]
    features = np.concatenate([x, np.ones((len(x), 1)), hidden], axis=1)
    features = features[: max(2000, 4 * features.shape[1])]  # enough to tell
    weighted = features / sigma[: len(features)]
    triangle: FloatArray = np.asarray(np.linalg.qr(weighted, mode="r"))[-k:, -k:]
    _, values, right = np.linalg.svd(triangle)
    values = np.maximum(values, np.finfo(np.float64).eps * values.max(initial=_TINY))
    spread = ((right.T / values) ** 2).sum(axis=1)  # large for two units on one hyperplane
    return np.asarray(
        (net.weights[1] ** 2).sum(axis=0) / spread / (len(features) * len(net.weights[1]))
    )


def _shadows(net: Layered, unit: int) -> bool:
    """Whether a larger unit lies beside one: what a line saw twice, as two."""
    w, b = net.weights[0], net.biases[0]
    size = np.linalg.norm(net.weights[1], axis=0)
    larger = np.flatnonzero(size > size[unit])
    near = apart(w[unit], float(b[unit]), w[larger], b[larger])
    return bool((near < 2.0 * SAME).any())


def without_needless(
    answers: Answers, fitted: Fitted, seen: Seen, *, thorough: bool = True
) -> tuple[Fitted, int]:
    """Drop units that answers do not need; returns how many.

    Those whose kink moves no answer by its deviation go at once. Others that are small are left
    out in turn, the least first, and stay out where a fit without them is as good; where that is
    not to be ``thorough``, up to the first that is needed.
    """
    dropped = 0
    net = fitted.network.normalised()
    small = _contributions(net, seen.x) < float(np.median(answers.inner(seen.x)))
    if small.any():
        fitted = answers.fit(without_units(net, small, seen.x), seen)
        dropped = int(small.sum())
    needed: list[FloatArray] = []
    while len(fitted.network.biases[0]):
        net = fitted.network
        loss = _losses(net, seen.x, np.mean(answers.inner(seen.x), axis=1, keepdims=True))
        suspects = [
            j
            for j in np.argsort(loss)
            if (loss[j] < (_SUSPECT * max(fitted.scale, _TINY)) ** 2 or _shadows(net, j))
            and not any(abs(w @ net.weights[0][j]) > SAME_DIRECTION for w in needed)
        ]
        if not suspects:
            break
        gone = np.arange(len(loss)) == suspects[0]
        again = answers.fit(without_units(net, gone, seen.x), seen)
        if _worth(answers, again, fitted, seen):
            needed.append(net.weights[0][suspects[0]])
            if not thorough:
                break
        else:
            fitted, dropped = again, dropped + 1
    return fitted, dropped


def without_skip(net: Layered) -> tuple[Layered, float] | None:
    """Turn units over so that the skip term vanishes; returns what is left of it, relatively.

    ``relu(z) = z + relu(-z)``: a target without skip term has ``A = -sum of u_j w_j`` over the
    units that were found the wrong way round, so that least squares for A in terms of all
    ``u_j w_j`` gives zeros and ones (a nearly dead unit's is not determined, and does not
    matter). None where there are no units, or more than equations.
    """
    if net.skip is None:
        return net, 0.0
    net = net.normalised()
    assert net.skip is not None
    k = len(net.biases[0])
    if k == 0 or k > net.skip.size:
        return None
    columns = np.einsum("mk,kd->mdk", net.weights[1], net.weights[0]).reshape(-1, k)
    scale = np.maximum(np.linalg.norm(columns, axis=0), _TINY)
    part, *_ = np.linalg.lstsq(columns / scale, net.skip.ravel(), rcond=None)
    turn = part / scale < -0.5
    w, b, u = net.weights[0].copy(), net.biases[0].copy(), net.weights[1]
    rest = net.skip + u[:, turn] @ w[turn]
    shift = net.biases[1] + u[:, turn] @ b[turn]
    w[turn] *= -1.0
    b[turn] *= -1.0
    size = max(float(np.linalg.norm(columns)), _TINY)
    return Layered((w, u), (b, shift)), float(np.linalg.norm(rest)) / size
