"""Rank of gradients against their number: Figures 1 and 2 of Jayaram, Woodruff & Zhang.

Everything that a curve shows was measured by queries. Networks are drawn at
random without biases, as in the paper, or trained on digits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from unrelu._random import as_generator
from unrelu._types import FloatArray
from unrelu.datasets import ImageSet, train_classifier
from unrelu.lines.boundary import Boundary, find_boundary, find_offsets
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.wrappers import Labels
from unrelu.progress import Progress, as_progress
from unrelu.span.algorithm import SpanPlan
from unrelu.span.assumptions import orthant_gamma_log2, silent_share
from unrelu.span.config import FINEST, SpanConfig
from unrelu.span.labels import measure_normals, measure_resolution
from unrelu.span.plan import gradients_from_replies, noise_from_replies
from unrelu.span.subspace import orthonormal

__all__ = [
    "THIN",
    "WIDE",
    "RankCurves",
    "gradient_rows",
    "normal_rows",
    "random_relu",
    "rank_experiment",
]

# Hidden widths, the first weights (80 rows) included. Figure 1's legend names [6, 3], and the
# text no other shape: those after the first are ours, thinner and deeper in that spirit. Figure
# 2 shows the sub-networks of one network, as the text says.
THIN: tuple[tuple[int, ...], ...] = ((80, 6, 3), (80, 6, 3, 3), (80, 4, 2), (80, 3, 3, 3))
WIDE: tuple[tuple[int, ...], ...] = ((80,), (80, 40), (80, 40, 30), (80, 40, 30, 20))
PAPER_CUT = 1e-5  # rank: singular values above this part of the largest
LINE_3_DRAWS = 64  # Gaussians drawn for a sample of Algorithm 2, line 3, at most
FARTHEST = 64.0  # how far along a ray a boundary is looked for, in norms of an input
SILENCE_DRAWS = 20_000  # inputs that tell how often a network is silent
ORTHANT_DRAWS = 2_000  # simulated points that tell an orthant's probability
RARE_DRAWS = 2_000  # inputs among which two labels are looked for


@dataclasses.dataclass(frozen=True)
class RankCurves:
    """Rank of the gradients' matrix against their number, for networks of one shape.

    Attributes
    ----------
    network, method
        The shape, and how gradients were found.
    samples
        Numbers of samples at which ranks were taken.
    full
        Rank of the first weights.
    ranks
        One list per network.
    lost
        Share of samples without a gradient, per network: the network is silent
        there, a kink crosses the steps, the ray meets no boundary, or
        (Algorithm 2) the span is complete already.
    silent
        Share of Gaussian inputs at which the network is dead, per network.
    gamma_log2
        log2 of the estimated γ of Assumption 1, per network.
    queries
        Of all networks together.
    """

    network: str
    method: str
    samples: list[int]
    full: int
    ranks: list[list[int]]
    lost: list[float]
    silent: list[float]
    gamma_log2: list[float]
    queries: int

    @property
    def final(self) -> list[int]:
        """Rank of each network at the last sample."""
        return [ranks[-1] for ranks in self.ranks]

    @property
    def assumed(self) -> list[bool]:
        """Whether the paper's assumptions may hold, per network.

        Assumption 2 wants the network silent with probability at most γ/8;
        where it never was, nothing speaks against it.
        """
        pairs = zip(self.silent, self.gamma_log2, strict=True)
        return [share == 0.0 or share <= 2.0**gamma / 8.0 for share, gamma in pairs]

    def summary(self) -> str:
        """Say in a line what was reached."""
        final, assumed = self.final, self.assumed
        half = [2 * rank >= self.full for rank in final]
        kept = sum(a and h for a, h in zip(assumed, half, strict=True))
        gamma = float(np.median(self.gamma_log2))
        words = f"log2 γ about {gamma:.0f}" if np.isfinite(gamma) else "γ is 0"
        return (
            f"{self.network} {self.method}: rank {np.median(final):g} of {self.full} "
            f"({min(final)} to {max(final)}) from {self.samples[-1]} samples, full in "
            f"{sum(r == self.full for r in final)} of {len(final)} networks, half in "
            f"{sum(half)}; silent {np.median(self.silent):.0%} (up to {max(self.silent):.0%}), "
            f"{words}; assumptions may hold in {sum(assumed)}, of which {kept} "
            "reach half"
        )


def random_relu(dims: Sequence[int], seed: int) -> ReLUNetwork:
    """Draw a network with Gaussian weights and no biases."""
    g = np.random.default_rng(seed)
    weights = [g.standard_normal((b, a)) * np.sqrt(2.0 / a) for a, b in pairwise(dims)]
    return ReLUNetwork(weights, [np.zeros(b) for b in dims[1:]])


def _curve(rows: FloatArray, checkpoints: Sequence[int]) -> list[int]:
    ranks = []
    for count in checkpoints:
        s = np.linalg.svd(rows[:count], compute_uv=False)
        ranks.append(int(np.count_nonzero(s > PAPER_CUT * s[0])) if s[0] > 0 else 0)
    return ranks


def gradient_rows(
    net: ReLUNetwork, samples: int, seed: int, *, relu_head: bool = False
) -> tuple[FloatArray, int]:
    """Measure gradients of output 0 at Gaussian points by perturbation, ``(samples, n)``.

    Rows are zero where the network is dead or a kink crosses the steps. Also
    returns the number of queries. With ``relu_head`` the output node is a ReLU as well: "fully
    connected with ReLU units" may be read so, and half of the gradients are then zero.
    """
    plan = SpanPlan.draw(net.input_dim, gradients=samples, rng=seed)
    replies = np.stack([net(plan.points(i))[:, :1] for i in range(samples)])
    if relu_head:
        replies = np.maximum(replies, 0.0)
    noise = noise_from_replies(replies, net.input_dim)
    rows = np.zeros((samples, net.input_dim))
    for i in range(samples):
        found = gradients_from_replies(plan.points(i), replies[i], noise)
        if found is not None and len(found.rows):
            rows[i] = found.rows[0]
    return rows, len(plan)


def normal_rows(net: ReLUNetwork, samples: int, seed: int) -> tuple[FloatArray, int]:
    """Algorithm 2 on a threshold of output 0: normals of its boundary, ``(samples, n)``.

    As printed, a sample is a Gaussian g without its part in the span V found so
    far, drawn until it lies beyond the threshold when scaled up, and the boundary
    is looked for along the ray through it; a normal joins V. Rows are zero where
    none of 64 draws does. The threshold is half the
    median answer of the commoner sign, among those that occur but once: a dead
    network repeats itself.
    """
    rng, n = as_generator(seed), net.input_dim
    answers = net(rng.standard_normal((2000, n)))[:, 0]
    values, counts = np.unique(answers, return_counts=True)
    live = values[counts == 1]
    rows = np.zeros((samples, n))
    if len(live) == 0:
        return rows, 0
    sign = 1.0 if np.mean(live > 0) >= 0.5 else -1.0
    oracle = Labels(as_oracle(net), threshold=0.5 * float(np.median(live[sign * live > 0])))
    config = SpanConfig()
    boundary = find_boundary(
        oracle, config.places, rng, scale=1.0, finest=FINEST, draws=RARE_DRAWS
    )
    if boundary is None:
        return rows, oracle.queries.total
    resolution = measure_resolution(oracle, rng, boundary, scale=1.0, config=config)
    # Ranks cut at 1e-5 need no more than 7 digits: half of the bits are saved.
    step, finest = 1e-5, max(resolution.noise / 2.0, 1e-13)
    origin = np.zeros((1, n))
    inside = oracle(origin)[:, 0]
    span = np.empty((0, n))
    for i in range(samples):
        if len(span) == min(n, len(net.weights[0])):
            break  # nothing is left to find
        x = rng.standard_normal((LINE_3_DRAWS, n))
        x -= (x @ span.T) @ span
        rays = x / np.linalg.norm(x, axis=1, keepdims=True)
        crosses = np.flatnonzero(oracle(FARTHEST * np.sqrt(n) * rays)[:, 0] != inside[0])
        if len(crosses) == 0:
            continue
        ray = rays[crosses[:1]]
        distance = find_offsets(
            oracle,
            origin,
            ray,
            inside,
            expected=np.sqrt(n),
            finest=finest,
            farthest=FARTHEST,
        )
        if np.isnan(distance[0]):
            continue
        point = Boundary(distance[:, None] * ray, ray, inside)
        normal, error = measure_normals(
            oracle, point, rng, step=step, finest=finest, config=config
        )
        length = np.linalg.norm(normal)
        # A normal that is not known to the paper's cut would be a direction of its own.
        if not error[0] * np.sqrt(n) < 0.1 * PAPER_CUT * length:
            continue
        rows[i] = normal[0] / length
        new = rows[i] - (rows[i] @ span.T) @ span
        if np.linalg.norm(new) > PAPER_CUT:
            span = orthonormal(np.concatenate([span, new[None]]))
    return rows, oracle.queries.total


def rank_experiment(
    architectures: Sequence[tuple[int, ...]],
    data: ImageSet,
    *,
    samples: int = 100,
    networks: int = 3,
    seed: int = 0,
    epochs: int = 5,
    progress: Progress | None = None,
) -> list[RankCurves]:
    """Measure rank against samples, for several networks of every shape and all methods."""
    watch = as_progress(progress)
    n = data.x_train.shape[1]
    points = sorted({*range(5, samples + 1, 5), 1, samples})
    methods = (
        "GradientsRandom", "GradientsRandomAda", f"Gradients{data.name.upper()}",
        "GradientsRandom, ReLU on the output",
    )  # fmt: skip
    total, done = len(methods) * networks * len(architectures), 0
    outcome: list[RankCurves] = []
    for hidden in architectures:
        name = f"{n}->[{', '.join(map(str, hidden))}]"
        for method in methods:
            curves = RankCurves(name, method, points, min(n, hidden[0]), [], [], [], [], 0)
            for draw in range(seed, seed + networks):
                watch.update("networks", done, total, f"{name} {method}")
                if method == methods[2]:
                    net = train_classifier(data, *hidden, seed=draw, epochs=epochs)
                else:
                    net = random_relu((n, *hidden, 1), draw)
                measure: Callable[..., tuple[FloatArray, int]] = gradient_rows
                if method == methods[1]:
                    measure = normal_rows
                elif method == methods[3]:
                    measure = partial(gradient_rows, relu_head=True)
                rows, queries = measure(net, samples, draw)
                curves.ranks.append(_curve(rows, points))
                curves.lost.append(float(np.mean(~rows.any(axis=1))))
                curves.silent.append(silent_share(net, draws=SILENCE_DRAWS))
                # More units than inputs leave most orthants empty.
                gamma = (
                    orthant_gamma_log2(net.weights[0], draws=ORTHANT_DRAWS)
                    if hidden[0] <= n
                    else -np.inf
                )
                curves.gamma_log2.append(gamma)
                curves = dataclasses.replace(curves, queries=curves.queries + queries)
                done += 1
            outcome.append(curves)
    watch.update("networks", total, total)
    return outcome
