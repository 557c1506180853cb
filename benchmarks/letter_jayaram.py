"""Jayaram, Woodruff & Zhang to the letter: ``python -m benchmarks.letter_jayaram``.

Figure 1 in both readings of "ReLU units", Figure 2 as numbers, Algorithm 2 as printed in float64
and in multiple precision, and Theorem 3.4 where its assumptions hold. Judged by ground truth.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import unrelu
from benchmarks import harness
from benchmarks.harness import NotHereError, Row
from benchmarks.span_curves import (
    PAPER_CUT,
    SILENCE_DRAWS,
    THIN,
    WIDE,
    gradient_rows,
    normal_rows,
    random_relu,
)
from unrelu.networks import ReLUNetwork
from unrelu.oracles.wrappers import Labels
from unrelu.result import Status
from unrelu.span.algorithm import recover_span
from unrelu.span.assumptions import (
    gradients_needed,
    least_product,
    lemma_width,
    silent_share,
    threshold_assumptions,
)

SAMPLES = 100  # the paper's, Figures 1 and 2
AT = (20, 40, 60, 80, 90, 100)  # samples at which Figure 2 is tabulated
TOGETHER = 12  # networks whose median rank is taken
SHARE_DRAWS = 2_000  # inputs that tell the silent share to a per cent
BITS = 200  # of multiple precision: N = 8


def rank_of(rows: np.ndarray) -> int:
    """Return the paper's rank: singular values above 1e-5 of the largest."""
    values = np.linalg.svd(rows, compute_uv=False)
    return int(np.count_nonzero(values > PAPER_CUT * values[0])) if values[0] > 0 else 0


# -------------------------------------------------------------------------- figures


def analytic_rows(
    net: ReLUNetwork, samples: int, seed: int, *, relu_head: bool = False
) -> np.ndarray:
    """Gradients of output 0 at Gaussian points by the chain rule, ``(samples, n)``.

    As the paper's experiments have them: "we calculate the gradients analytically". The same by
    queries: :func:`benchmarks.span_curves.gradient_rows`.
    """
    h = np.random.default_rng([seed, 1]).standard_normal((samples, net.input_dim))
    on = []
    for weights, bias in zip(net.weights, net.biases, strict=True):
        h = h @ weights.T + bias
        on.append(h > 0)
        h = np.maximum(h, 0.0) if len(on) < len(net.weights) else h
    rows = np.tile(net.weights[-1][:1], (samples, 1))
    for weights, gate in zip(net.weights[-2::-1], on[-2::-1], strict=True):
        rows = (rows * gate) @ weights
    return rows * on[-1][:, :1] if relu_head else rows


def figure_1(seed: int, *, hidden: tuple[int, ...], relu_head: bool) -> dict[str, Any]:
    """Rank of 100 gradients of one thin network, in one of the two readings.

    Success: every sample with a gradient adds a direction, up to 80.
    """
    net = random_relu((784, *hidden, 1), seed)
    rows = analytic_rows(net, SAMPLES, seed, relu_head=relu_head)
    live, rank = int(rows.any(axis=1).sum()), rank_of(rows)
    return {
        "success": rank == min(live, hidden[0]),
        "rank": rank,
        "live": live,
        "full": int(rank == hidden[0]),
        "half": int(2 * rank >= hidden[0]),
        "silent": silent_share(net, draws=SHARE_DRAWS),
    }


def drawn(init: str, dims: tuple[int, ...], seed: int) -> ReLUNetwork:
    """Draw a network, Gaussian without biases or with them, or as torch draws its Linear."""
    if init == "Gaussian, no biases":
        return random_relu(dims, seed)
    g = np.random.default_rng(seed)
    pairs = list(pairwise(dims))
    if init == "Gaussian weights and biases":
        weights = [g.standard_normal((b, a)) / math.sqrt(a) for a, b in pairs]
        return ReLUNetwork(weights, [g.standard_normal(b) for _, b in pairs])
    weights = [g.uniform(-1.0, 1.0, (b, a)) / math.sqrt(a) for a, b in pairs]
    return ReLUNetwork(weights, [g.uniform(-1.0, 1.0, b) / math.sqrt(a) for a, b in pairs])


def reading(seed: int, *, init: str, relu_head: bool, samples: int) -> dict[str, Any]:
    """Figure 1's [6, 3] over twelve networks, as one who repeats it might draw them.

    Success: every sample with a gradient adds a direction, up to 80, in all twelve.
    """
    ranks, good = [], True
    for number in range(TOGETHER):
        own = seed * TOGETHER + number
        net = drawn(init, (784, *THIN[0], 1), own)
        rows = analytic_rows(net, samples, own, relu_head=relu_head)
        ranks.append(rank_of(rows))
        good &= ranks[-1] == min(int(rows.any(axis=1).sum()), THIN[0][0])
    whole = sum(rank == THIN[0][0] for rank in ranks)
    none = sum(rank == 0 for rank in ranks)
    return {"success": good, "rank": float(np.median(ranks)), "full": whole, "none": none}


def figure_2(seed: int, *, hidden: tuple[int, ...], adaptive: bool) -> dict[str, Any]:
    """Ranks after several numbers of samples; success is the whole span after 100."""
    net = random_relu((784, *hidden, 1), seed)
    rows, queries = analytic_rows(net, SAMPLES, seed), 0
    if adaptive:
        rows, queries = normal_rows(net, SAMPLES, seed)
    ranks = {f"rank {count}": rank_of(rows[:count]) for count in AT}
    return {"success": ranks[f"rank {SAMPLES}"] == hidden[0], **ranks, "queries": queries}


# ---------------------------------------------------------------- Algorithm 2 as printed


def smooth_layers(seed: int, n: int, k: int) -> list[np.ndarray]:
    """Draw a tanh network n-k-8-1 without biases."""
    g = np.random.default_rng(seed)
    return [
        1.5 * g.standard_normal((k, n)) / (2.0 * math.sqrt(k)),
        1.5 * g.standard_normal((8, k)) / math.sqrt(k),
        g.standard_normal((1, 8)) / math.sqrt(8.0),
    ]


def evaluate(layers: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Evaluate a tanh network, ``(p, n) -> (p, 1)``."""
    for w in layers[:-1]:
        x = np.tanh(x @ w.T)
    return x @ layers[-1].T


def threshold_of(layers: list[np.ndarray], part: float) -> float:
    """Return a part of the network's spread."""
    x = np.random.default_rng(0).standard_normal((2000, layers[0].shape[1]))
    return part * float(evaluate(layers, x).std())


def apart(basis: np.ndarray, weights: np.ndarray) -> float:
    """Bound the sine of the largest angle of a basis to the span of weights."""
    q = np.linalg.qr(weights.T)[0].T
    return float(np.linalg.norm(basis - (basis @ q.T) @ q))


def algorithm_2(seed: int, *, n: int, k: int, part: float) -> dict[str, Any]:
    """Lines 1 to 11 in float64.

    Success: what was found lies in the span, and where the rank is not whole the status says
    that Assumption 3 is why; ``whole`` counts the former.
    """
    layers = smooth_layers(seed, n, k)
    cut = threshold_of(layers, part)
    target = Labels(unrelu.connect(partial(evaluate, layers), input_dim=n), threshold=cut)
    result = recover_span(target, answers="labels", rank=k, faithful=True, rng=seed)
    angle = apart(result.basis, layers[0]) if result.rank else 0.0
    stopped = result.status is Status.PARTIAL and "Assumption 3" in result.message
    measured = threshold_assumptions(lambda x: evaluate(layers, x)[:, 0] / cut, layers[0])
    return {
        "success": angle < 1e-2 and (result.rank == k if result.success else stopped),
        "wrong_recovered": int(result.success and (angle > 1e-2 or result.rank < k)),
        "whole": int(result.rank == k),
        "missing": k - result.rank,
        "angle": angle,
        "queries": result.queries.without_certificate,
        "least_gamma": float(measured.gamma.min()),
        "status": result.status.name,
    }


def algorithm_2_precisely(seed: int, *, n: int, k: int, part: float) -> dict[str, Any]:
    """The same with 200 bits, and beside it float64: the digits grow, the rank does not."""
    try:
        import flint  # noqa: F401
    except ImportError as error:
        raise NotHereError("python-flint is not installed (unrelu[exact])") from error
    from unrelu.span.precision import ManyBits, precise_labels, recover_span_precisely

    layers = smooth_layers(seed, n, k)
    arithmetic = ManyBits(BITS)
    labels = precise_labels(layers, "tanh", threshold_of(layers, part), arithmetic)
    found = recover_span_precisely(labels, n, k, arithmetic=arithmetic, rng=seed)
    first = arithmetic.vectors(layers[0])
    angle = 0.0
    for vector in found.basis:
        left = vector - arithmetic.solve(first @ first.T, first @ vector) @ first
        angle = max(angle, math.sqrt(float((left @ left).mid())))
    plain = algorithm_2(seed, n=n, k=k, part=part)
    rank = len(found.basis)
    return {
        "success": angle < 1e-15 and (rank == k or found.silent > 0),
        "whole": int(rank == k),
        "missing": k - rank,
        "angle": angle,
        "float64 angle": plain["angle"],
        "same rank": int(k - rank == plain["missing"]),
    }


# ----------------------------------------------------------------------- Theorem 3.4


def theorem_3_4(seed: int, *, n: int, k: int, depth: int) -> dict[str, Any]:
    """Algorithm 1 with the theorem's number of gradients, on networks as in Lemma 3.1.

    Success: the assumptions hold and the rank is at least k/2, or they do not hold.
    """
    delta = 0.1
    g = np.random.default_rng(seed)
    width = lemma_width(depth, delta, 1.0)
    dims = [k, *[width] * depth, 1]
    first = np.linalg.qr(g.standard_normal((n, k)))[0].T
    upper = [g.standard_normal((b, a)) for a, b in pairwise(dims)]
    net = ReLUNetwork([first, *upper], [np.zeros(b) for b in dims])
    holds = (
        silent_share(net, draws=SILENCE_DRAWS) <= 1 / 8 and least_product(net, patterns=100) > 0
    )
    count = gradients_needed(k, delta, 1.0)
    rank = rank_of(gradient_rows(net, count, seed)[0])
    return {
        "success": not holds or 2 * rank >= k,
        "holds": int(holds),
        "rank": rank,
        "gradients": count,
    }


def _shape(hidden: tuple[int, ...]) -> str:
    return "784->80->[" + ", ".join(map(str, hidden[1:])) + "]"


ROWS = [
    *(
        Row(f"figure 1, {_shape(h)}, {'ReLU on the output' if relu else 'linear head'}"
            + ("" if h == THIN[0] else " (shape is ours)"),
            partial(figure_1, hidden=h, relu_head=relu),
            range(30_000, 30_060 if h == THIN[0] else 30_012),
            {"success": 60 if h == THIN[0] else 12}, 60.0)
        for h in THIN for relu in (False, True)
    ),
    *(
        Row(f"readings of figure 1, {_shape(THIN[0])}, {head}, {init}, {samples} gradients",
            partial(reading, init=init, relu_head=head != "linear head", samples=samples),
            range(30_500, 30_520), {}, 120.0)
        for head in ("linear head", "ReLU on the output")
        for init, samples in (("Gaussian, no biases", 100), ("Gaussian, no biases", 400),
                              ("Gaussian weights and biases", 100), ("as torch draws", 100))
    ),
    *(
        Row(f"figure 2, {_shape(h)}, GradientsRandom{'Ada' if adaptive else ''}",
            partial(figure_2, hidden=h, adaptive=adaptive),
            range(30_100, 30_101 if adaptive else 30_112),
            {"success": 1 if adaptive else 12}, 600.0, 0)
        for adaptive in (False, True) for h in WIDE
    ),
    *(
        Row(f"Algorithm 2 as printed, {n}-{k}, float64", partial(algorithm_2, n=n, k=k, part=0.1),
            range(30_200, 30_220), {"success": 18, "max:angle": 1e-2}, 60.0)
        for n, k in ((6, 3), (10, 4), (20, 5), (50, 10))
    ),
    Row("Algorithm 2 as printed, 6-3, 200 bits",
        partial(algorithm_2_precisely, n=6, k=3, part=0.1), range(30_300, 30_308),
        {"success": 8, "max:angle": 1e-15}, 60.0),
    *(
        Row(f"Theorem 3.4, {n}-{k}, depth {depth}",
            partial(theorem_3_4, n=n, k=k, depth=depth), range(30_400, 30_420),
            {"success": 20}, 60.0)
        for n, k, depth in ((20, 12, 2), (40, 24, 3))
    ),
]  # fmt: skip


def main() -> None:
    """Run the rows and print their table."""
    harness.main("letter_jayaram", ROWS)


if __name__ == "__main__":
    main()
