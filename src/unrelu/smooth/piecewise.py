r"""Piecewise linear activations, recognised in a recovered network of ReLUs.

Extraction finds kinks: :math:`f(x) = Sx + c + \sum_j u_j [w_j x + b_j]_+`. Other activations
are such sums in disguise, and leave traces:

- a leaky ReLU of slope a is :math:`(1 - a)[z]_+ + az`. Its kink's share of the affine part is
  :math:`a / (1 - a)`, or that of the unit turned over; the absolute value is a = -1;
- a hard tanh, ReLU6 or hard sigmoid is a pair of parallel kinks with opposite jumps, and adds
  nothing to the slope of the affine part.

Shares follow from the affine part by least squares where the matrices :math:`u_j w_j` are
independent and fewer than its entries (k < m d); else, and for maxout, whose affine part is its
own, the network stays as it is. Nothing is asked.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.activations import Activation, activation
from unrelu.core.explain import EXACT
from unrelu.errors import InvalidInput
from unrelu.networks import Network

__all__ = ["OwnForm", "in_own_form", "layers_in_own_form"]


@dataclasses.dataclass(frozen=True)
class OwnForm:
    """A network in the form in which it was probably written.

    Attributes
    ----------
    network
        The same function as the network given, within ``difference``.
    recognised
        Name of the activation: ``"relu"`` where no other was recognised.
    message
        What was seen, in a sentence.
    difference
        Largest deviation between both forms over the spread, at Gaussian inputs.
    """

    network: Network
    recognised: str
    message: str
    difference: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Sum:
    """ReLU units with unit rows, and an affine part."""

    rows: FloatArray
    biases: FloatArray
    outputs: FloatArray
    constant: FloatArray
    linear: FloatArray

    def turned(self, which: BoolArray) -> _Sum:
        """Turn units over: ``[z] = [-z] + z``."""
        sign = np.where(which, -1.0, 1.0)
        u = self.outputs[:, which]
        return _Sum(
            rows=self.rows * sign[:, None],
            biases=self.biases * sign,
            outputs=self.outputs,
            constant=self.constant + u @ self.biases[which],
            linear=self.linear + u @ self.rows[which],
        )


def in_own_form(network: Network, *, tolerance: float = EXACT) -> OwnForm:
    """Recognise leaky ReLU, PReLU, absolute value and hard tanh in a network of ReLUs.

    Parameters
    ----------
    network
        One hidden layer of ReLUs, with or without a skip term, as ``extract_two_layer``
        returns it.
    tolerance
        Part by which its weights may be off.

    Returns
    -------
    OwnForm
        With the network as it was where no other form explains its affine part.
    """
    if network.depth != 2 or network.activations[0].name != "relu":
        raise InvalidInput("expected one hidden layer of ReLUs, as extract_two_layer returns it")
    plain = OwnForm(
        network, "relu", "ReLUs" + ("" if network.skip is None else " and a skip term")
    )
    norms = np.linalg.norm(network.weights[0], axis=1)
    if len(norms) == 0 or not norms.min() > 0:
        return plain
    units = _Sum(
        network.weights[0] / norms[:, None],
        network.biases[0] / norms,
        network.weights[1] * norms,
        network.biases[1],
        np.zeros((network.output_dim, network.input_dim))
        if network.skip is None
        else network.skip,
    )
    for attempt in (_as_clipped, _as_leaky):
        form = attempt(units, tolerance)
        if form is None:
            continue
        x = np.random.default_rng(0).standard_normal((1000, network.input_dim))
        before = network(x)
        change = np.abs(form.network(x) - before).max(axis=0)
        spread = np.maximum(before.std(axis=0), np.finfo(np.float64).tiny)
        difference = float((change / spread).max())
        if difference <= tolerance:
            return dataclasses.replace(form, difference=difference)
    return plain


def layers_in_own_form(network: Network) -> OwnForm:
    """Recognise both layers of a network of leaky units whose second carries an affine term.

    Parameters
    ----------
    network
        Two hidden layers, the first of leaky ReLUs with a slope for each unit or of hard tanhs,
        the second of leaky ReLUs; slopes of 1 in the second are linear units, which carry what
        is affine.
    """
    low, second = network.activations[0], network.activations[1].parameters.ravel()
    name = "hard tanhs"
    if low.name == "leaky_relu":
        low, name = _one_activation(low.parameters.ravel())
    (w1, w, u), (b1, b, c) = network.weights, network.biases
    line = second == 1.0
    skip = u[:, line] @ w[line]
    constant = c + u[:, line] @ b[line]
    top = in_own_form(Network([w[~line], u[:, ~line]], [b[~line], constant], "relu", skip))
    message = f"a first layer of {name}, a second of {top.message}"
    if top.network.skip is not None:
        return OwnForm(
            Network(network.weights, network.biases, [low, network.activations[1]]), low.name,
            f"{message}, of which linear units carry the affine term",
        )  # fmt: skip
    layers = [w1, *top.network.weights], [b1, *top.network.biases]
    return OwnForm(Network(*layers, [low, *top.network.activations]), top.recognised, message)


def _one_activation(slopes: FloatArray) -> tuple[Activation, str]:
    """Return the activation of leaky units with given slopes, and its name in words."""
    common = float(np.mean(slopes))
    if np.ptp(slopes) > np.sqrt(EXACT):
        return activation("leaky_relu", slopes), "leaky ReLUs with a slope each (PReLU)"
    if abs(common + 1.0) <= np.sqrt(EXACT):
        return activation("abs"), "absolute values"
    return activation("leaky_relu", common), f"leaky ReLUs of slope {common:.6g}"


def _as_leaky(units: _Sum, tolerance: float) -> OwnForm | None:
    """Return units whose shares of the affine part are those of leaky ReLUs."""
    k, (m, d) = len(units.rows), units.linear.shape
    if k >= m * d:
        return None
    columns = np.einsum("mk,kd->mdk", units.outputs, units.rows).reshape(m * d, k)
    size = np.linalg.norm(columns, axis=0)
    share, _, rank, _ = np.linalg.lstsq(columns / size, units.linear.ravel(), rcond=tolerance)
    share = share / size
    rest = units.linear.ravel() - columns @ share
    scale = max(float(np.abs(units.linear).max()), float(size.max()))
    if rank < k or float(np.abs(rest).max()) > tolerance * scale:
        return None
    # A unit turned over has the share -1 - s and the slope 1 / a: the smaller one is usual.
    turn = share < -0.5
    share = np.where(turn, -1.0 - share, share)
    units = units.turned(turn)
    slopes = share / (1.0 + share)
    outputs = units.outputs * (1.0 + share)
    constant = units.constant - (units.outputs * share) @ units.biases
    spread = float(np.ptp(slopes))
    common = float(np.average(slopes, weights=size))
    weights, biases = [units.rows, outputs], [units.biases, constant]
    if spread > np.sqrt(tolerance):
        network = Network(weights, biases, activation("leaky_relu", slopes))
        seen = f"slopes from {slopes.min():.3g} to {slopes.max():.3g}, one a unit (PReLU)"
        return OwnForm(network, "leaky_relu", f"{k} units with {seen}")
    if abs(common + 1.0) <= np.sqrt(tolerance):
        return OwnForm(Network(weights, biases, "abs"), "abs", f"{k} absolute values")
    if abs(common) <= np.sqrt(tolerance):
        return None
    network = Network(weights, biases, activation("leaky_relu", common))
    return OwnForm(network, "leaky_relu", f"{k} leaky ReLUs of slope {common:.6g}")


def _pairs(units: _Sum, tolerance: float) -> list[tuple[int, int]] | None:
    """Return pairs of parallel units with opposite outputs, or None where one has no partner."""
    open_ = list(range(len(units.rows)))
    pairs = []
    scale = float(np.linalg.norm(units.outputs, axis=0).max())
    while open_:
        i = open_.pop(0)
        apart = np.linalg.norm(units.rows[open_] - units.rows[i], axis=1)
        jumps = np.linalg.norm(units.outputs[:, open_].T + units.outputs[:, i], axis=1) / scale
        fits = np.maximum(apart, jumps)
        if len(open_) == 0 or fits.min() > np.sqrt(tolerance):
            return None
        pairs.append((i, open_.pop(int(np.argmin(fits)))))
    return pairs


def _as_clipped(units: _Sum, tolerance: float) -> OwnForm | None:
    """Return units that come in pairs as hard tanhs."""
    probe = np.random.default_rng(0).standard_normal(units.rows.shape[1])
    units = units.turned(units.rows @ probe < 0)  # parallel rows point the same way
    pairs = _pairs(units, tolerance)
    if pairs is None:
        return None
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    swap = units.biases[first] < units.biases[second]
    first, second = np.where(swap, second, first), np.where(swap, first, second)
    # u ([z + a] - [z + b]) = u h (1 + hard tanh((z + (a + b) / 2) / h)), h = (a - b) / 2.
    half = 0.5 * (units.biases[first] - units.biases[second])
    middle = 0.5 * (units.biases[first] + units.biases[second])
    rows = 0.5 * (units.rows[first] + units.rows[second])
    outputs = 0.5 * (units.outputs[:, first] - units.outputs[:, second])
    scale = max(float(np.abs(units.outputs).max()), np.finfo(np.float64).tiny)
    skip = units.linear if np.abs(units.linear).max() > tolerance * scale else None
    network = Network(
        [rows / half[:, None], outputs * half],
        [middle / half, units.constant + outputs @ half],
        "hard_tanh",
        skip,
    )
    message = f"{len(pairs)} hard tanhs (or ReLU6, hard sigmoids: one class), each of two kinks"
    return OwnForm(network, "hard_tanh", message)
