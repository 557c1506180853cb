"""From a start to a layer: which activation, with or without an affine term, turned which way."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.activations import Activation
from unrelu.networks import Network
from unrelu.smooth.fit import Layer, LayerFit, fit_layer
from unrelu.smooth.run import SmoothRun

__all__ = ["Found", "Start", "as_network", "fitted_again", "settle"]


@dataclasses.dataclass(frozen=True)
class Start:
    """A layer to begin with, under one activation.

    ``misfit`` tells how far the activation is from what was measured unit by unit, in
    deviations of an answer.
    """

    phi: Activation
    weights: FloatArray
    biases: FloatArray
    misfit: float


@dataclasses.dataclass(frozen=True)
class Found:
    """A layer fitted to all answers, and how sure its activation is.

    ``margin`` is the second best activation's residual over this one's.
    """

    phi: Activation
    fit: LayerFit
    runner_up: str
    margin: float

    @property
    def layer(self) -> Layer:
        """The layer."""
        return self.fit.layer


def _fit(
    run: SmoothRun,
    data: tuple[FloatArray, FloatArray],
    start: Start,
    *,
    skip: bool,
    enough: float = 1.0,
) -> LayerFit:
    points, answers = data
    fit = fit_layer(
        points, answers / run.noise, run.deviations(answers), start.weights, start.biases,
        start.phi, skip=skip, enough=enough, good=run.enough,
    )  # fmt: skip
    layer = fit.layer
    linear = None if layer.linear is None else layer.linear * run.noise[:, None]
    own = dataclasses.replace(
        layer,
        outputs=layer.outputs * run.noise[:, None],
        constant=layer.constant * run.noise,
        linear=linear,
    )
    return dataclasses.replace(fit, layer=own)


def settle(
    run: SmoothRun, data: tuple[FloatArray, FloatArray], starts: list[Start]
) -> Found | None:
    """Fit the starts, likeliest first, until one explains all answers up to noise.

    Parameters
    ----------
    data
        Points ``(n, d)`` and answers ``(n, m)``.
    starts
        One for each activation, likeliest first.

    Returns
    -------
    What explains the answers best; its activation is compared with the next likely ones, which
    are fitted as well where the starts alone do not tell them apart.
    """
    tried: list[tuple[LayerFit, Start]] = []
    for i, start in enumerate(starts):
        sure = i > 0 and start.misfit > run.config.margin * max(starts[0].misfit, 1.0)
        if sure and tried and run.explains(tried[0][0].rms):
            break
        tried.append((_fit(run, data, start, skip=True, enough=run.enough), start))
        tried.sort(key=lambda pair: pair[0].rms)
        if 2 * (i + 1) >= run.config.tries and not run.explains(tried[0][0].rms):
            break
    if not tried:
        return None
    fit, start = tried[0]
    others = [(f.rms / max(fit.rms, 1.0), s.phi.name) for f, s in tried[1:]]
    known = {name for _, name in others} | {start.phi.name}
    others += [
        (s.misfit / max(start.misfit, 1.0), s.phi.name) for s in starts if s.phi.name not in known
    ]
    margin, runner_up = min(others, default=(np.inf, ""))
    fit = _without_affine_term(run, data, start.phi, fit)
    return Found(start.phi, fit, runner_up, float(margin))


def fitted_again(run: SmoothRun, data: tuple[FloatArray, FloatArray], found: Found) -> Found:
    """Return a layer fitted from where it is, to more answers."""
    layer = found.layer
    start = Start(found.phi, layer.weights, layer.biases, 0.0)
    return dataclasses.replace(found, fit=_fit(run, data, start, skip=layer.linear is not None))


def _without_affine_term(
    run: SmoothRun, data: tuple[FloatArray, FloatArray], phi: Activation, fit: LayerFit
) -> LayerFit:
    """Return the fit without an affine term where that explains the answers as well.

    Units are turned the right way for that.
    """
    layer = fit.layer
    if layer.linear is None or not run.explains(fit.rms):
        return fit
    weights, biases = layer.weights, layer.biases
    if phi.mirror is not None and phi.mirror.slope != 0.0:
        # u phi(z) = u phi(-z) + u z: the affine term is the sum of u w over units that are found
        # the wrong way round. Where least squares round to that, the fit decides.
        columns = np.einsum("mk,kd->mdk", layer.outputs, weights).reshape(-1, len(weights))
        share = np.linalg.lstsq(columns, layer.linear.ravel(), rcond=None)[0]
        sign = np.where(share < -0.5, -1.0, 1.0)
        weights, biases = weights * sign[:, None], biases * sign
    plain = _fit(run, data, Start(phi, weights, biases, 0.0), skip=False)
    if run.explains(plain.rms):
        return plain
    return _fit(run, data, Start(phi, layer.weights, layer.biases, 0.0), skip=True)


def as_network(run: SmoothRun, layer: Layer, phi: Activation) -> Network:
    """Return the layer as a network of what the target computes; log-odds as logits."""
    if phi.name == "sine":
        layer = _principal(layer)
    outputs, constant, linear = layer.outputs, layer.constant, layer.linear
    if run.log_odds and run.inner_outputs > 1:  # the reference has a logit of zero
        at = run.reference
        outputs, constant = np.insert(outputs, at, 0.0, axis=0), np.insert(constant, at, 0.0)
        linear = None if linear is None else np.insert(linear, at, 0.0, axis=0)
    network = Network([layer.weights, outputs], [layer.biases, constant], phi, linear)
    return network.canonical()


def _principal(layer: Layer) -> Layer:
    """Return sine units with phases between plus and minus a quarter turn."""
    half = np.round(layer.biases / np.pi)
    sign = np.where(half % 2 == 0, 1.0, -1.0)
    return dataclasses.replace(
        layer, biases=layer.biases - np.pi * half, outputs=layer.outputs * sign
    )
