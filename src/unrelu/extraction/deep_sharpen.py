r"""Correct a network of two hidden layers from few gradients with room.

The layers above were measured through the right inverse of the rows found. Where ``W + E``
are the true rows, the function of ``y = W x + b`` that was found is the true one of
``M y + s``, with ``M = I + E W^+``: while all first-layer units are on, an error of the rows
is no error of the layers above. Elsewhere it is. At an input x with gates ``on`` and ``on'``
of the two layers, slopes ``alpha = sum_j on'_j u_j v_j + A`` of the answers in the first
layer's outputs (with every unit of the first layer on), and errors ``F_j`` of ``u_j v_j`` and
``B`` of A, the residual's gradient is, to first order,

.. math::

    \nabla r(x) = \sum_i on_i \alpha_i E_i
        + \sum_l on_l \Big( \sum_j on'_j F_{jl} + B_l - \sum_i \alpha_i (E W^+)_{il} \Big) W_l .

Across the rows' span only the first term is left: in every such direction k unknowns, the
same equations for all of them. Inside the span the coefficient at ``W_l`` holds column l of
``E W^+``, of the F_j and of B, and no other. So few gradients, at inputs with room for long
steps, correct all weights, by k small systems; no matrix grows with the number of parameters.
The biases follow from the residual's values. What was known before enters with its own
deviation: units that were measured well stay what they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.linalg

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_numbers import CROSSINGS, FAINT, PRECISE, SURE
from unrelu.extraction.deep_room import safe_steps
from unrelu.extraction.deep_rows import RowConfig
from unrelu.extraction.deep_units import OrthantUnits
from unrelu.lines.gradients import GradientConfig, measure_gradients

__all__ = ["SharpenConfig", "TwoLayers", "sharpen"]

AskPoints = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class SharpenConfig:
    """Choices of the correction."""

    surplus: float = RowConfig().surplus
    """Equations per unknown."""
    pool: int = 12
    """Inputs compared, over those asked."""
    reach: float = SURE
    """They lie at up to so many times typical inputs: farther out there is more room."""
    keep_off: float = CROSSINGS
    """Part of the way to the next known surface that a step may go."""
    trust: float = FAINT
    """Standard deviation of a row's error before: with larger ones the layers above would
    not have been found."""
    off: float = SURE
    """Errors of the layers above may be so many times what was claimed."""
    precise: float = PRECISE
    """Error claimed for the layers above, over their size, up to which they are taken as
    they are, and gradients for the rows suffice."""


@dataclasses.dataclass(frozen=True)
class TwoLayers:
    """A first layer, ``(k, d)`` and ``(k,)``, and units of its outputs."""

    weights: FloatArray
    biases: FloatArray
    top: OrthantUnits

    def __call__(self, x: FloatArray) -> FloatArray:
        """Evaluate at ``(n, d)``; returns ``(n, m)``."""
        return self.top(np.maximum(x @ self.weights.T + self.biases, 0.0))

    def moved(self, inside: FloatArray, error: FloatArray) -> TwoLayers:
        """Return it with other rows, ``W + error``; the same function where all are on.

        ``inside`` is ``error W^+``, ``(k, k)``.
        """
        back = np.linalg.inv(np.eye(len(inside)) + inside)
        v, linear = self.top.weights @ back, self.top.linear @ back
        shift = inside @ self.biases
        top = dataclasses.replace(
            self.top,
            weights=v,
            linear=linear,
            biases=self.top.biases + v @ shift,
            constant=self.top.constant + linear @ shift,
        )
        return TwoLayers(self.weights + error, self.biases, top)


@dataclasses.dataclass(frozen=True)
class _View:
    """A network at some inputs.

    Attributes
    ----------
    points
        ``(p, d)``.
    on, upper
        Gates of both layers, ``(p, k)`` and ``(p, n)``.
    alpha
        Slopes of the answers in the first layer's outputs, ``(p, m, k)``.
    """

    points: FloatArray
    on: BoolArray
    upper: BoolArray
    alpha: FloatArray

    def at(self, which: IntArray) -> _View:
        return _View(*(getattr(self, f.name)[which] for f in dataclasses.fields(self)))


def _view(network: TwoLayers, x: FloatArray) -> _View:
    top = network.top
    z = x @ network.weights.T + network.biases
    upper = np.maximum(z, 0.0) @ top.weights.T + top.biases > 0
    alpha = (top.outputs * upper[:, None, :]) @ top.weights + top.linear
    return _View(x, z > 0, upper, alpha)


def _steps(
    network: TwoLayers, view: _View, directions: FloatArray, config: SharpenConfig
) -> FloatArray:
    """Return how far each input may move along each direction, ``(p, n)``."""
    w, top = network.weights, network.top
    along = w @ directions.T
    steps = np.empty((len(view.points), len(directions)))
    for i, x in enumerate(view.points):
        z, active = w @ x + network.biases, view.on[i]
        slopes = np.concatenate([along, top.weights[:, active] @ along[active]])
        heights = np.concatenate([z, top.weights @ np.maximum(z, 0.0) + top.biases])
        longest = np.array([1.0 + float(np.linalg.norm(x))])
        steps[i] = safe_steps(heights[None], slopes, config.keep_off, longest)[0]
    return steps


def _prior(top: OrthantUnits, affine_error: float, config: SharpenConfig) -> FloatArray:
    """Return deviations of a coefficient of each unit, and of the affine part, ``(n + 1,)``."""
    claimed = np.append(top.errors, affine_error) / np.sqrt(top.linear.shape[1])
    least = np.finfo(float).eps * float(np.linalg.norm(top.weights, axis=1).max(initial=1.0))
    return np.asarray(config.off * np.maximum(claimed, least))


def _choose(
    network: TwoLayers,
    count: int,
    noise: NoiseModel,
    directions: FloatArray,
    rng: np.random.Generator,
    config: SharpenConfig,
) -> tuple[_View, FloatArray]:
    """Choose inputs whose gradients tell most: by their gates, and by room."""
    k, d = network.weights.shape
    draws = config.pool * count
    pool = rng.standard_normal((draws, d)) * rng.uniform(1.0, config.reach, (draws, 1))
    view = _view(network, pool)
    steps = _steps(network, view, directions, config)
    size = np.median(steps, axis=1) / noise.at(pool).max(axis=1)
    order: list[FloatArray] = []
    # Units that are on tell of rows across their span, units that are off of those inside.
    for shown in (view.on, ~view.on):
        design = view.alpha * shown[:, None, :] * size[:, None, None]
        design = design.transpose(2, 0, 1).reshape(k, -1)
        pivots = scipy.linalg.qr(design, mode="r", pivoting=True)[1] // view.alpha.shape[1]
        order.append(pivots)
    mixed = np.stack(order, axis=1).ravel()
    chosen = np.array(list(dict.fromkeys(mixed.tolist()))[:count], dtype=np.intp)
    return view.at(chosen), steps[chosen]


def sharpen(
    ask: AskPoints,
    network: TwoLayers,
    noise: NoiseModel,
    seen: tuple[FloatArray, FloatArray],
    *,
    affine_error: float,
    rng: np.random.Generator,
    config: SharpenConfig | None = None,
    gradient_config: GradientConfig | None = None,
) -> TwoLayers:
    """Return the network with all weights and biases corrected.

    Parameters
    ----------
    network
        Nearly right, its first layer of full row rank.
    seen
        Typical inputs ``(n, d)`` and the answers there, for the biases.
    affine_error
        Deviation of the slopes of the affine part.
    """
    config = SharpenConfig() if config is None else config
    w, top = network.weights, network.top
    (k, d), (m, n) = w.shape, top.outputs.shape
    size = float(np.linalg.norm(top.weights, axis=1).max(initial=0.0))
    loose = float(np.linalg.norm(top.errors)) + affine_error > config.precise * size
    # An input tells as much as its answers differ: no more than there are units on above.
    # And of any two rows one must be off somewhere where the other is on: of k^2 pairs about
    # one in k is not, after 3 log2(k) inputs.
    each = min(m, max(1, n // 2))
    few = int(np.ceil(max(config.surplus * k / each, 3.0 * np.log2(k + 1)))) + 2
    count = few + (int(np.ceil(2.0 * config.surplus * (n + 1))) if loose else 0)
    directions: FloatArray = np.asarray(scipy.linalg.qr(w.T)[0].T, dtype=np.float64)
    # The rows' span comes first.
    view, steps = _choose(network, count, noise, directions, rng, config)

    def residual(x: FloatArray) -> FloatArray:
        return np.asarray(ask(x) - network(x))

    values = residual(view.points)

    def measured(which: slice, ways: slice) -> tuple[_View, FloatArray, FloatArray]:
        """Return where gradients were found, those, and one over their deviations."""
        found = measure_gradients(
            residual, view.points[which], values[which], steps[which, ways], directions[ways],
            noise, rng=rng, config=gradient_config,
        )  # fmt: skip
        gradients = found.derivatives.transpose(0, 2, 1)  # (p, m, n)
        good = np.flatnonzero(found.ok & np.isfinite(gradients).all(axis=(1, 2)))
        std = np.median(found.std[good].max(axis=2), axis=1)
        return view.at(np.arange(len(view.on))[which][good]), gradients[good], 1.0 / std

    back: FloatArray = np.asarray(np.linalg.inv(w @ directions[:k].T), dtype=np.float64)
    inside, parts, affine = _inside(
        *measured(slice(None), slice(0, k)),
        back,
        _prior(top, affine_error, config),
        config.trust * float(np.linalg.norm(back, 2)),
    )
    error = inside @ w
    if d > k:
        there, gradients, weight = measured(slice(0, few), slice(k, d))
        slopes = there.alpha * there.on[:, None, :] * weight[:, None, None]
        right = (gradients * weight[:, None, None]).reshape(-1, d - k)
        error += _solve(slopes.reshape(-1, k), right, config.trust) @ directions[k:]
    better = TwoLayers(w, network.biases, _corrected(top, parts, affine)).moved(inside, error)
    usable = np.isfinite(values).all(axis=1)
    x = np.concatenate([view.points[usable], seen[0]])
    y = np.concatenate([(values + network(view.points))[usable], seen[1]])
    return _biases(better, x, y, noise, config)


def _inside(
    view: _View,
    gradients: FloatArray,
    weight: FloatArray,
    back: FloatArray,
    prior: FloatArray,
    trust: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Solve for ``E W^+`` ``(k, k)``, the F_j ``(m, n, k)`` and B ``(m, k)``, by columns."""
    coefficients = gradients @ back * weight[:, None, None]
    p, m, k = coefficients.shape
    gates = np.concatenate([view.upper, np.ones((p, 1))], axis=1) * weight[:, None]
    inside, parts = np.zeros((k, k)), np.zeros((m, len(prior), k))
    for column in range(k):
        on = view.on[:, column]
        differ = view.on.astype(np.float64) - on[:, None]
        slopes = view.alpha * differ[:, None, :] * weight[:, None, None]
        right = coefficients[:, :, column]
        # What the layers above may explain is projected out, per output.
        q, r = np.linalg.qr(np.concatenate([gates[on], np.diag(1.0 / prior)]))
        none = np.zeros((m, len(prior), k))
        seen = np.concatenate([slopes[on].transpose(1, 0, 2), none], axis=1)
        told = np.concatenate([right[on].T, none[:, :, 0]], axis=1)
        left = seen - q @ (q.T @ seen)
        rest = told - (told @ q) @ q.T
        design = np.concatenate([left.reshape(-1, k), slopes[~on].reshape(-1, k)])
        free = np.arange(k) != column  # a row's own scale is free
        values = np.concatenate([rest.ravel(), right[~on].ravel()])
        inside[free, column] = _solve(design[:, free], values[:, None], trust)[:, 0]
        above = told - seen @ inside[:, column]
        parts[:, :, column] = scipy.linalg.solve_triangular(r, (above @ q).T).T
    return inside, parts[:, :-1], parts[:, -1]


def _corrected(top: OrthantUnits, parts: FloatArray, affine: FloatArray) -> OrthantUnits:
    """Take errors ``F_j = u_j dv_j + du_j v_j`` in, with du_j across u_j."""
    v, u = top.weights, top.outputs
    change = np.einsum("mj,mjk->jk", u, parts)
    turned = np.einsum("mjk,jk->mj", parts, v) / np.maximum((v**2).sum(axis=1), 1e-300)
    turned -= u * (u * turned).sum(axis=0)
    length = np.linalg.norm(u + turned, axis=0)
    return dataclasses.replace(
        top,
        linear=top.linear + affine,
        weights=(v + change) * length[:, None],
        biases=top.biases * length,
        outputs=(u + turned) / length,
    )


def _biases(
    network: TwoLayers, x: FloatArray, y: FloatArray, noise: NoiseModel, config: SharpenConfig
) -> TwoLayers:
    """Solve for the errors of all biases, from values ``(p, m)``.

    A row's bias moves the units above as well, so that nothing changes where all are on.
    """
    top, view = network.top, _view(network, x)
    (k, n), m = (len(network.biases), len(top.biases)), y.shape[1]
    weight = 1.0 / noise.at(x)
    design = np.concatenate(
        [
            view.alpha * (view.on.astype(np.float64) - 1.0)[:, None, :],
            top.outputs * view.upper[:, None, :],
            np.broadcast_to(np.eye(m), (len(x), m, m)),
        ],
        axis=2,
    )
    least = np.finfo(float).eps
    shifts = config.off * np.maximum(top.shifts, least)
    prior = np.concatenate(
        [np.full(k, config.trust), shifts, np.full(m, shifts.max(initial=least))]
    )
    rows = (design * weight[:, :, None]).reshape(-1, k + n + m)
    solved = _solve(rows, ((y - network(x)) * weight).reshape(-1, 1), prior)[:, 0]
    moved, above, constant = np.split(solved, [k, k + n])
    return TwoLayers(
        network.weights,
        network.biases + moved,
        dataclasses.replace(
            top,
            biases=top.biases + above - top.weights @ moved,
            constant=top.constant + constant - top.linear @ moved,
        ),
    )


def _solve(design: FloatArray, right: FloatArray, prior: FloatArray | float) -> FloatArray:
    """Least squares, with unknowns of given standard deviations before; by QR."""
    k = design.shape[1]
    if k == 0:
        return np.zeros((0, right.shape[1]))
    rows = np.concatenate([design, np.diag(np.broadcast_to(1.0 / prior, (k,)))])
    q, r = np.linalg.qr(rows)
    return np.asarray(scipy.linalg.solve_triangular(r, q[: len(design)].T @ right))
