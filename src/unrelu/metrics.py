"""How close two networks are, for those who hold the truth.

Neurons are matched up to what leaves the function unchanged: their order, a
positive scale (ReLU, leaky ReLU, absolute value), their sign (tanh, sine, absolute
value; with a skip term ReLU, GELU, SiLU, softplus), and, for logits behind a softmax,
a function common to all outputs. Activations that are others in disguise are compared
in their usual form (:meth:`unrelu.networks.Network.usual`).
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from scipy.optimize import linear_sum_assignment

from unrelu._random import RandomState, as_generator
from unrelu._types import FloatArray, IntArray
from unrelu.errors import InvalidInput
from unrelu.networks import Network

__all__ = ["Comparison", "compare", "function_error"]

# Rows of unit norm that differ by less are one hyperplane written twice: a few
# times the rounding of a normalisation in hundreds of dimensions.
_SAME_ROW = 1e-12


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Distance between two networks.

    Parameter errors are in canonical scale (unit hidden rows) after matching;
    a neuron without a partner counts with its outgoing weights. Function errors
    are maxima and root mean squares over Gaussian inputs and over points on
    segments between them; ``relative_error`` is the largest deviation over the
    reference's standard deviation.
    """

    max_parameter_error: float
    rms_parameter_error: float
    max_function_error: float
    rms_function_error: float
    max_segment_error: float
    rms_segment_error: float
    scale: float
    matched: tuple[int, ...]
    unmatched: int
    same_widths: bool

    @property
    def relative_error(self) -> float:
        """Largest function error over the reference's standard deviation."""
        worst = max(self.max_function_error, self.max_segment_error)
        return worst / self.scale if self.scale > 0 else worst

    def __str__(self) -> str:
        return (
            f"function error {self.relative_error:.2g} of std(f), "
            f"parameter error {self.max_parameter_error:.2g}, "
            f"{sum(self.matched)} neurons matched, {self.unmatched} not"
        )


def function_error(
    network: Network,
    truth: Network,
    *,
    samples: int = 10_000,
    rng: RandomState = 0,
    common_function: bool = False,
) -> tuple[float, float]:
    """Return ``max |f - g|`` over Gaussian inputs and ``std(g)``."""
    x = as_generator(rng).standard_normal((samples, truth.input_dim))
    f, g = network(x), truth(x)
    if common_function:
        f, g = _centred(f), _centred(g)
    return float(np.abs(f - g).max()), float(g.std())


def compare(
    network: Network,
    truth: Network,
    *,
    common_function: bool = False,
    samples: int = 10_000,
    rng: RandomState = 0,
) -> Comparison:
    """Compare ``network`` with ``truth``.

    Parameters
    ----------
    network, truth
        Networks with equal numbers of inputs and outputs.
    common_function
        Ignore a function added to all outputs, as a softmax does.
    samples
        Gaussian inputs, and as many points on segments between them.

    Examples
    --------
    >>> import unrelu
    >>> truth = unrelu.planted.random_network(4, 3, 1, rng=0)
    >>> unrelu.compare(truth, truth).relative_error
    0.0
    """
    if (network.input_dim, network.output_dim) != (truth.input_dim, truth.output_dim):
        raise InvalidInput(
            f"cannot compare {network.architecture} with {truth.architecture}: "
            "inputs and outputs must agree"
        )
    g = as_generator(rng)
    x = g.standard_normal((samples, truth.input_dim))
    along = g.random((samples, 1))
    between = x * along + np.roll(x, 1, axis=0) * (1 - along)
    deviation, reference = _deviation(network, truth, x, common_function)
    segments, _ = _deviation(network, truth, between, common_function)

    a = _reduced(network, common_function)
    b = _reduced(truth, common_function)
    differences, matched, unmatched = _parameter_differences(a, b)
    return Comparison(
        max_parameter_error=float(np.abs(differences).max(initial=0.0)),
        rms_parameter_error=float(np.sqrt(np.mean(differences**2))) if differences.size else 0.0,
        max_function_error=float(np.abs(deviation).max()),
        rms_function_error=float(np.sqrt(np.mean(deviation**2))),
        max_segment_error=float(np.abs(segments).max()),
        rms_segment_error=float(np.sqrt(np.mean(segments**2))),
        scale=float(reference.std()),
        matched=matched,
        unmatched=unmatched,
        same_widths=a.hidden_widths == b.hidden_widths,
    )


def _centred(values: FloatArray) -> FloatArray:
    return np.asarray(values - values.mean(axis=1, keepdims=True))


def _deviation(
    network: Network, truth: Network, x: FloatArray, common_function: bool
) -> tuple[FloatArray, FloatArray]:
    f, g = network(x), truth(x)
    if common_function:
        f, g = _centred(f), _centred(g)
    return f - g, g


def _reduced(network: Network, common_function: bool) -> Network:
    """Canonical form without invisible, constant or doubled neurons."""
    network = network.usual()
    weights = [w.copy() for w in network.weights]
    biases = [b.copy() for b in network.biases]
    activations = list(network.activations)
    skip = None if network.skip is None else network.skip.copy()
    if common_function:
        weights[-1] -= weights[-1].mean(axis=0)
        biases[-1] -= biases[-1].mean()
        if skip is not None:
            skip -= skip.mean(axis=0)
    # From the top down: a neuron that only feeds invisible ones is invisible too.
    for layer in range(len(weights) - 2, -1, -1):
        outgoing = weights[layer + 1]
        scale = np.abs(outgoing).max(initial=0.0)
        visible = np.abs(outgoing).max(axis=0, initial=0.0) > 1e-15 * scale
        constant = ~weights[layer].any(axis=1)
        phi = activations[layer].taken(constant)
        biases[layer + 1] += outgoing[:, constant] @ phi(biases[layer][None, constant])[0]
        keep = visible & ~constant
        activations[layer] = activations[layer].taken(keep)
        weights[layer], biases[layer] = weights[layer][keep], biases[layer][keep]
        weights[layer + 1] = outgoing[:, keep]
    return _merged(Network(weights, biases, activations, skip).canonical())


def _merged(network: Network) -> Network:
    """Merge hidden neurons that share row and bias (unit rows assumed, where scale is free)."""
    weights = [w.copy() for w in network.weights]
    biases = [b.copy() for b in network.biases]
    activations = list(network.activations)
    for layer in range(network.depth - 1):
        rows = np.column_stack([weights[layer], biases[layer]])
        owner: dict[int, int] = {}
        order = np.lexsort(rows.T[::-1])  # equal rows stand side by side
        if activations[layer].parameters.ndim == 2:
            order = order[:0]  # neurons with an activation of their own each
        for previous, current in itertools.pairwise(order):
            tolerance = _SAME_ROW * (1 + abs(biases[layer][current]))
            if np.abs(rows[previous] - rows[current]).max() <= tolerance:
                owner[int(current)] = owner.get(int(previous), int(previous))
        for copy, original in owner.items():
            weights[layer + 1][:, original] += weights[layer + 1][:, copy]
        keep = [i for i in range(len(rows)) if i not in owner]
        weights[layer], biases[layer] = weights[layer][keep], biases[layer][keep]
        weights[layer + 1] = weights[layer + 1][:, keep]
        activations[layer] = activations[layer].taken(keep)
    return Network(weights, biases, activations, network.skip)


def _match(
    rows: FloatArray, reference: FloatArray, *, either_sign: bool, any_scale: bool
) -> tuple[IntArray, IntArray, FloatArray]:
    """Assign rows to reference rows; returns pairs and signs.

    By angle where their scale is free, else by distance.
    """
    if len(rows) == 0 or len(reference) == 0:
        empty = np.empty(0, dtype=np.intp)
        return empty, empty, np.empty(0)
    product = rows @ reference.T
    norms = np.linalg.norm(rows, axis=1)[:, None], np.linalg.norm(reference, axis=1)[None, :]
    if any_scale:
        product = product / norms[0] / norms[1]
    likeness = np.abs(product) if either_sign else product
    cost = -likeness if any_scale else norms[0] ** 2 + norms[1] ** 2 - 2.0 * likeness
    i, j = linear_sum_assignment(cost)
    signs = np.where(product[i, j] < 0, -1.0, 1.0) if either_sign else np.ones(len(i))
    return i, j, signs


def _parameter_differences(a: Network, b: Network) -> tuple[FloatArray, tuple[int, ...], int]:
    """Return all parameter differences after matching, layer by layer."""
    if [phi.name for phi in a.activations] != [phi.name for phi in b.activations]:
        outgoing = [np.abs(w).ravel() for w in (*a.weights, *b.weights)]
        return np.concatenate(outgoing), (), sum(a.hidden_widths) + sum(b.hidden_widths)
    with_skip = a.skip is not None or b.skip is not None
    shape = (b.output_dim, b.input_dim)
    skip_a = np.zeros(shape) if a.skip is None else a.skip.copy()
    skip_b = np.zeros(shape) if b.skip is None else b.skip
    weights = [w.copy() for w in a.weights]
    biases = [v.copy() for v in a.biases]
    truth = [w.copy() for w in b.weights]
    parts: list[FloatArray] = []
    matched: list[int] = []
    unmatched = 0
    for layer, phi in enumerate(a.activations):
        w, bias = weights[layer], biases[layer]
        v, c = truth[layer], b.biases[layer]
        mirror = phi.mirror
        free = mirror is not None and mirror.slope == 0.0
        flips = mirror is not None and (free or (with_skip and a.depth == 2))
        i, j, signs = _match(
            np.column_stack([w, bias]), np.column_stack([v, c]),
            either_sign=flips, any_scale=phi.homogeneous,
        )  # fmt: skip
        up, up_truth = weights[layer + 1], truth[layer + 1]
        if mirror is not None and flips:
            # phi(z) = sign (phi(-z) - slope z): a ReLU leaves z in the affine part.
            turned = i[signs < 0]
            if not free:
                skip_a = skip_a - mirror.slope * up[:, turned] @ w[turned]
                biases[-1] = biases[-1] - mirror.slope * up[:, turned] @ bias[turned]
            up[:, turned] *= mirror.sign
        parts += [(signs[:, None] * w[i] - v[j]).ravel(), signs * bias[i] - c[j]]
        own, other = phi.parameters, b.activations[layer].parameters
        if phi.name != "spline":
            own, other = (p[k] if p.ndim == 2 else p for p, k in ((own, i), (other, j)))
            parts.append(np.subtract(own, other).ravel())
        for matrix, used in ((up, i), (up_truth, j)):
            rest = np.setdiff1d(np.arange(matrix.shape[1]), used)
            parts.append(matrix[:, rest].ravel())
            unmatched += len(rest)
        matched.append(len(i))
        weights[layer + 1], truth[layer + 1] = up[:, i], up_truth[:, j]
    parts += [(weights[-1] - truth[-1]).ravel(), biases[-1] - b.biases[-1]]
    if with_skip:
        parts.append((skip_a - skip_b).ravel())
    return np.concatenate(parts), tuple(matched), unmatched
