r"""A first layer of hard tanhs (or ReLU6, hard sigmoids) under a second one.

Where one hyperplane of each such unit is known, turned so that the unit rises above it, every
preactivation z can be asked for, and the target is :math:`g(\min(\max(z, 0), e))`: it clips z.
Along :math:`z_j` alone answers stop at :math:`e_j`, wherever the others are; a line through two
answers just below meets what they stop at there. In the box between 0 and e the layer above is
all there is, and the search of a box recovers it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray
from unrelu.activations import activation
from unrelu.extraction.deep_numbers import ALIKE, FAINT, FINE, PLAIN, TRIES
from unrelu.networks import Network, ReLUNetwork

__all__ = ["clipped_network", "find_ends"]


def find_ends(
    ask: Callable[[FloatArray], FloatArray], k: int, rng: np.random.Generator
) -> FloatArray | None:
    """Return where answers stop to change along each preactivation, ``(k,)``.

    Parameters
    ----------
    ask
        The target as a function of preactivations ``(n, k)``, each of which rises at 0.

    Returns
    -------
    None where some do not stop, or not at once.
    """
    unit = np.repeat(np.arange(k), TRIES + 1)
    each = np.arange(len(unit))
    others = np.abs(rng.standard_normal((len(unit), k)))

    def along(t: FloatArray) -> FloatArray:
        z = others.copy()
        z[each, unit] = t
        return ask(z)

    places = np.append(0.0, 2.0 ** np.arange(8.0))
    answers = np.stack([along(np.full(len(unit), t)) for t in places])
    least = FINE * float(np.ptp(answers, axis=0).max())
    still = np.abs(answers - answers[-1]).max(axis=2) <= least  # (places, lines)
    stop = np.argmax(np.logical_and.accumulate(still[::-1])[::-1], axis=0)
    fine = (stop > 0) & (stop < len(places) - 1)
    level = answers[stop, each]
    low, high = places[np.maximum(stop - 1, 0)], places[stop]
    while (fine & (high - low > FINE * high)).any():
        middle = 0.5 * (low + high)
        beyond = np.abs(along(middle) - level).max(axis=1) <= least
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    step = PLAIN * high
    after, one, two, three = (along(high + n * step) for n in (1.0, -1.0, -2.0, -3.0))
    rise = one - two
    size = np.maximum((rise**2).sum(axis=1), np.finfo(np.float64).tiny)
    fine &= np.abs(rise - (two - three)).max(axis=1) <= FAINT * np.sqrt(size)
    ends = high + (((after - one) * rise).sum(axis=1) / size - 1.0) * step
    # Where the layer above stops, answers do so before the end.
    table = np.where(fine, ends, 0.0).reshape(k, -1)
    largest = table.max(axis=1)
    agree = np.abs(table - largest[:, None]) <= ALIKE * largest[:, None]
    if not (largest > 0.0).all() or not (agree.sum(axis=1) > 1).all():
        return None
    return np.asarray(np.where(agree, table, 0.0).sum(axis=1) / agree.sum(axis=1))


def clipped_network(
    weights: FloatArray, biases: FloatArray, ends: FloatArray, top: ReLUNetwork
) -> tuple[Network, ReLUNetwork]:
    """Return both layers, the first of hard tanhs, and the same as ReLUs: ``[z] - [z - e]``.

    Linear units of the second layer carry the top's skip term.
    """
    (w, u), (b, c) = top.weights, top.biases
    lines = 0 if top.skip is None else len(u)
    plain = len(b)
    if top.skip is not None:
        w, b = np.concatenate([w, top.skip]), np.append(b, np.zeros(lines))
        u = np.concatenate([u, np.eye(lines)], axis=1)
    half = 0.5 * ends
    second = activation("leaky_relu", np.append(np.zeros(plain), np.ones(lines)))
    network = Network(
        [weights / half[:, None], w * half, u], [biases / half - 1.0, b + w @ half, c],
        [activation("hard_tanh"), second],
    )  # fmt: skip
    both = np.concatenate([w, -w[plain:]])
    relus = ReLUNetwork(
        [
            np.concatenate([weights, weights]),
            np.concatenate([both, -both], axis=1),
            np.concatenate([u, -u[:, plain:]], axis=1),
        ],
        [np.append(biases, biases - ends), np.append(b, -b[plain:]), c],
    )
    return network, relus
