"""Units that a fit still lacks, or does not need."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.fit import Fitted, Layered
from unrelu.extraction.noisy_answers import Answers, Seen

__all__ = ["add_missing_unit", "without_needless", "without_skip"]

_CANDIDATES = 2000
"""Random hyperplanes compared where a unit is missing: in eight dimensions the best of so many
is within 40 degrees of any other, and the fit does the rest."""
_SPECTRAL = 4
"""Eigenvectors of the residual's second moment taken beside them: in many dimensions chance
finds nothing, but a unit bends the residual along its own normal most."""
_OUTLIER = 6.0
"""Deviations beyond which an answer counts less, as in the fit."""
_BEYOND = 6.0
"""A unit is real if it lowers the sum of squares by this many deviations more than the noise of
its own parameters does."""


def add_missing_unit(
    answers: Answers, fitted: Fitted, seen: Seen, rng: np.random.Generator
) -> Fitted | None:
    """Fit one more unit to what a fit leaves; None where the noise explains that as well.

    At a fit's optimum its residual is orthogonal to all that its parameters can do, so that the
    part of a new unit which they could explain drops out of the product with the residual.
    """
    net = fitted.network
    residual = residual_before = answers.residuals(net, seen)
    usual = max(float(np.median(np.abs(residual))), float(np.finfo(np.float64).tiny))
    residual = np.clip(residual, -_OUTLIER * usual / 0.6745, _OUTLIER * usual / 0.6745)  # beside kinks: outliers
    w, b = _candidates(seen.x, residual, rng)
    score, outputs = _scores(w, b, seen.x, residual)
    best = int(np.argmax(score))
    sigma = np.median(answers.deviation(seen), axis=0)
    if answers.kind != "values":
        sigma = np.median(answers.inner(seen.x), axis=0)
    skip = net.skip
    grown = Layered(
        (
            np.concatenate([net.weights[0], w[best : best + 1]]),
            np.concatenate([net.weights[1], (outputs[best] * sigma)[:, None]], axis=1),
        ),
        (np.append(net.biases[0], b[best]), net.biases[1]),
        skip,
    )
    again = answers.fit(grown, seen)
    own = grown.parameters - net.parameters
    # Both by the same yardstick: squares up to a few deviations of the better fit.
    cap = _OUTLIER * max(again.scale, float(np.finfo(np.float64).tiny))
    gain = _loss(residual_before, cap) - _loss(answers.residuals(again.network, seen), cap)
    noise = again.scale**2 * (own + _BEYOND * np.sqrt(2.0 * own))
    return again if gain > noise else None


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


def without_needless(answers: Answers, net: Layered, seen: Seen) -> tuple[Layered, int]:
    """Drop units whose kink moves no answer by its deviation; returns how many.

    What is left of such a unit is affine where data lie, and goes to the skip term.
    """
    net = net.normalised()
    z = seen.x @ net.weights[0].T + net.biases[0]
    size = np.abs(net.weights[1]).max(axis=0)
    sigma = float(np.median(answers.inner(seen.x)))
    mostly_on = np.mean(z > 0, axis=0) > 0.5
    # the smaller side of a unit is what is not affine
    beyond = np.where(mostly_on, np.maximum(-z, 0.0), np.maximum(z, 0.0)) * size
    needless = beyond.max(axis=0, initial=0.0) < sigma
    if not needless.any():
        return net, 0
    gone = needless & mostly_on
    skip = net.skip + net.weights[1][:, gone] @ net.weights[0][gone]
    shift = net.biases[1] + net.weights[1][:, gone] @ net.biases[0][gone]
    kept = ~needless
    return (
        dataclasses.replace(
            net,
            weights=(net.weights[0][kept], net.weights[1][:, kept]),
            biases=(net.biases[0][kept], shift),
            skip=skip,
        ),
        int(needless.sum()),
    )


def without_skip(net: Layered) -> Layered | None:
    """Turn units over so that the skip term vanishes; None where no choice does that.

    ``relu(z) = z + relu(-z)``: a target without skip term has ``A = -sum of u_j w_j`` over the
    units that were found the wrong way round, so that least squares for A in terms of all
    ``u_j w_j`` gives zeros and ones.
    """
    net = net.normalised()
    k = len(net.biases[0])
    if net.skip is None or k == 0 or k > net.skip.size:
        return None
    centred = net.weights[1], net.skip
    columns = np.einsum("mk,kd->mdk", *(centred[0], net.weights[0])).reshape(-1, k)
    scale = np.linalg.norm(columns, axis=0)
    part, *_ = np.linalg.lstsq(columns / scale, net.skip.ravel(), rcond=None)
    part = part / scale
    turn = np.round(part) == -1.0
    if not np.isin(np.round(part), (0.0, -1.0)).all() or np.abs(part - np.round(part)).max() > 0.25:
        return None
    w, b, u = net.weights[0].copy(), net.biases[0].copy(), net.weights[1]
    shift = net.biases[1] + u[:, turn] @ b[turn]
    w[turn] *= -1.0
    b[turn] *= -1.0
    return Layered((w, u), (b, shift))
