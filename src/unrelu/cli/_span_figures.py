"""The experiments of Jayaram, Woodruff & Zhang, from queries alone: Figures 1 to 3.

Each experiment first computes plain data, then draws it. Networks are drawn at
random without biases, as in the paper, or trained on digits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special

from unrelu._random import as_generator
from unrelu._types import FloatArray
from unrelu.algorithms.span import SpanPlan, obfuscate, recover_span
from unrelu.datasets import ImageSet, train_classifier
from unrelu.errors import MissingExtra
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle
from unrelu.oracles.wrappers import Labels
from unrelu.progress import Progress, as_progress
from unrelu.steps.span_labels import (
    LabelScales,
    find_boundary,
    measure_normals,
    measure_resolution,
)
from unrelu.steps.span_plan import gradients_from_replies, noise_from_replies

__all__ = [
    "THIN",
    "WIDE",
    "RankCurve",
    "draw_curves",
    "draw_obfuscation",
    "estimate_gamma",
    "obfuscation_experiment",
    "random_relu",
    "rank_experiment",
]

# Hidden widths, the first weights (80 rows) included. Figure 1's legend names
# [6, 3]; the others grow thinner and deeper in that spirit. Figure 2 shows the
# sub-networks of one network.
THIN: tuple[tuple[int, ...], ...] = ((80, 6, 3), (80, 6, 3, 3), (80, 4, 2), (80, 3, 3, 3))
WIDE: tuple[tuple[int, ...], ...] = ((80,), (80, 40), (80, 40, 30), (80, 40, 30, 20))
PAPER_CUT = 1e-5  # rank: singular values above this part of the largest


@dataclasses.dataclass(frozen=True)
class RankCurve:
    """Rank of the gradients' matrix against their number, for one network.

    ``silent`` is the share of samples without a gradient: a dead network there,
    a kink across the steps, or no boundary. ``gamma_log2`` is log2 of the
    estimated γ of Assumption 1.
    """

    network: str
    method: str
    rank_of_weights: int
    samples: list[int]
    ranks: list[int]
    silent: float
    queries: int
    gamma_log2: float


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


def gradient_rows(net: ReLUNetwork, samples: int, seed: int) -> tuple[FloatArray, int]:
    """Measure gradients of output 0 at Gaussian points by perturbation, ``(samples, n)``.

    Rows are zero where the network is dead or a kink crosses the steps. Also
    returns the number of queries.
    """
    plan = SpanPlan.draw(net.input_dim, gradients=samples, rng=seed)
    replies = np.stack([net(plan.points(i))[:, :1] for i in range(samples)])
    noise = noise_from_replies(replies, net.input_dim)
    rows = np.zeros((samples, net.input_dim))
    for i in range(samples):
        found = gradients_from_replies(plan.points(i), replies[i], noise)
        if found is not None and len(found.rows):
            rows[i] = found.rows[0]
    return rows, len(plan)


def normal_rows(net: ReLUNetwork, samples: int, seed: int) -> tuple[FloatArray, int]:
    """Measure normals of the boundary of a threshold on output 0, ``(samples, n)``.

    The threshold is the median of the answers that occur but once: a dead
    network repeats itself.
    """
    rng = as_generator(seed)
    answers = net(rng.standard_normal((2000, net.input_dim)))[:, 0]
    values, counts = np.unique(answers, return_counts=True)
    rows = np.zeros((samples, net.input_dim))
    if not (counts == 1).any():
        return rows, 0
    oracle = Labels(as_oracle(net), threshold=float(np.median(values[counts == 1])))
    scales = LabelScales(draws=512)
    finest = scales.finest
    boundary = find_boundary(
        oracle, scales.calibrations, rng, scale=1.0, finest=finest, scales=scales
    )
    if boundary is None:
        return rows, oracle.queries.total
    resolution = measure_resolution(oracle, rng, boundary, scale=1.0, scales=scales)
    # Ranks cut at 1e-5 need no more than 7 digits: half of the bits are saved.
    step, finest = 1e-5, max(resolution.noise / 2.0, 1e-14)
    points = find_boundary(oracle, samples, rng, scale=1.0, finest=finest, scales=scales)
    if points is None:
        return rows, oracle.queries.total
    for first in range(0, samples, 10):
        some = points.take(np.arange(first, min(first + 10, samples)))
        normals, error = measure_normals(
            oracle, some, rng, step=step, finest=finest, scales=scales
        )
        length = np.linalg.norm(normals, axis=1)
        # A normal that is not known to the paper's cut would be a direction of its own.
        good = np.isfinite(length) & (error * np.sqrt(net.input_dim) < 0.1 * PAPER_CUT * length)
        rows[first : first + len(some)][good] = normals[good] / length[good][:, None]
    return rows, oracle.queries.total


def estimate_gamma(weights: FloatArray, *, seed: int = 0, draws: int = 2000) -> float:
    """Estimate log2 of γ in Assumption 1: 2^k times the least orthant probability of A g.

    The worst sign pattern makes the signed sum of the rows shortest: flips
    descend from the weakest eigenvector of the correlations. Its probability
    is simulated coordinate by coordinate (Genz 1992). A worse pattern may
    exist, so this estimates γ from above.
    """
    rng = np.random.default_rng(seed)
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    correlation = unit @ unit.T
    signs = np.where(np.linalg.eigh(correlation)[1][:, 0] >= 0, 1.0, -1.0)
    for _ in range(10 * len(signs)):
        gain = signs * (correlation @ signs) - np.diag(correlation)
        worst = int(np.argmax(gain))
        if gain[worst] <= 0:
            break
        signs[worst] *= -1.0
    factor = scipy.linalg.cholesky(correlation * np.outer(signs, signs), lower=True)
    k = len(signs)
    normal = np.zeros((draws, k))
    log_probability = np.zeros(draws)
    for i in range(k):
        bound = -(normal[:, :i] @ factor[i, :i]) / factor[i, i]
        tail = scipy.special.ndtr(-bound)
        log_probability += np.log2(tail)
        normal[:, i] = -scipy.special.ndtri(rng.random(draws) * tail)
    top = log_probability.max()
    return float(k + top + np.log2(np.mean(2.0 ** (log_probability - top))))


def rank_experiment(
    architectures: Sequence[tuple[int, ...]],
    data: ImageSet,
    *,
    samples: int = 100,
    seed: int = 0,
    epochs: int = 5,
    progress: Progress | None = None,
) -> list[RankCurve]:
    """Measure rank against samples for every network and each of the three methods."""
    watch = as_progress(progress)
    n = data.x_train.shape[1]
    points = sorted({*range(5, samples + 1, 5), 1, samples})
    curves: list[RankCurve] = []
    for hidden in architectures:
        random_net = random_relu((n, *hidden, 1), seed)
        trained = train_classifier(data, *hidden, seed=seed, epochs=epochs)
        for method, net, measure in (
            ("GradientsRandom", random_net, gradient_rows),
            ("GradientsRandomAda", random_net, normal_rows),
            (f"Gradients{data.name.upper()}", trained, gradient_rows),
        ):
            rows, queries = measure(net, samples, seed)
            full = int(np.linalg.matrix_rank(net.weights[0]))
            curves.append(
                RankCurve(
                    f"{n}->[{', '.join(map(str, hidden))}]",
                    method,
                    full,
                    points,
                    _curve(rows, points),
                    float(np.mean(~rows.any(axis=1))),
                    queries,
                    # More units than inputs leave most orthants empty.
                    estimate_gamma(net.weights[0]) if full == hidden[0] else -np.inf,
                )
            )
            done, total = len(curves), 3 * len(architectures)
            watch.update("networks", done, total, f"{curves[-1].network} {method}")
    return curves


def obfuscation_experiment(
    data: ImageSet,
    *,
    images: int = 8,
    held_out: int = 1000,
    noise: float = 10.0,
    seed: int = 0,
    epochs: int = 5,
) -> dict[str, Any]:
    """Train a classifier, recover its span from queries, and obfuscate held-out digits.

    On the 8 by 8 digits the first layer has 30 units, so that a null space remains.
    """
    hidden = (80, 40, 30, 20) if data.x_train.shape[1] > 80 else (30, 20)
    net = train_classifier(data, *hidden, seed=seed, epochs=epochs)
    span = recover_span(net, rng=seed, tolerance=1e-10)
    x, labels = data.x_test[:held_out], data.y_test[:held_out]
    before = net(x)
    picks = np.array([np.flatnonzero(labels == d % 10)[d // 10] for d in range(images)])
    shown: list[tuple[str, FloatArray, FloatArray, dict[str, float]]] = [
        ("original", x, before, {})
    ]
    for name, box in (("null-space noise", None), ("noise within the pixel box", (0.0, 1.0))):
        made = obfuscate(x, span, noise=noise, box=box, rng=seed)
        after = net(made.images)
        report = {
            "unchanged": float(np.mean(after.argmax(1) == before.argmax(1))),
            "largest_logit_change": float(np.abs(after - before).max() / np.ptp(before)),
            "noise_norm": float(np.median(made.noise_norm)),
            "correlation": float(np.median(made.correlation)),
            "affine_residual": float(made.affine_residual.max()),
            "box_residual": float(made.box_residual.max()),
        }
        shown.append((name, made.images, after, report))
    return {
        "data": data.name,
        "network": net.architecture,
        "shape": list(data.shape),
        "accuracy": float(np.mean(net(data.x_test).argmax(1) == data.y_test)),
        "status": span.status.name,
        "rank": span.rank,
        "angle": span.angle,
        "queries": span.queries.total,
        "rows": [
            {
                "name": name,
                "pixels": pixels[picks].tolist(),
                "prediction": logits[picks].argmax(1).tolist(),
                "probability": scipy.special.softmax(logits[picks], axis=1).max(1).tolist(),
                **report,
            }
            for name, pixels, logits, report in shown
        ],
    }


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("matplotlib", "report", "drawing a figure") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_curves(curves: Sequence[RankCurve], title: str, path: Path) -> Path:
    """Draw one panel per method, one line per network."""
    pyplot = _pyplot()
    methods = list(dict.fromkeys(curve.method for curve in curves))
    figure, axes = pyplot.subplots(
        1, len(methods), figsize=(4.5 * len(methods), 3.8), sharey=True, squeeze=False
    )
    for axis, method in zip(axes[0], methods, strict=True):
        chosen = [curve for curve in curves if curve.method == method]
        for curve in chosen:
            axis.plot(curve.samples, curve.ranks, label=curve.network, linewidth=1.8)
        full = chosen[0].rank_of_weights
        axis.axhline(full, color="0.6", linestyle=":", linewidth=1)
        axis.axhline(full / 2, color="0.8", linestyle=":", linewidth=1)
        axis.set_title(method, fontsize=10)
        axis.set_xlabel("samples")
        axis.legend(fontsize=7, loc="lower right", frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("rank of the gradients (cut at 1e-5)")
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def draw_obfuscation(facts: dict[str, Any], path: Path) -> Path:
    """Draw rows of original and obfuscated digits with prediction and probability."""
    pyplot = _pyplot()
    rows, shape = facts["rows"], tuple(facts["shape"])
    count = len(rows[0]["pixels"])
    figure, axes = pyplot.subplots(
        len(rows), count, figsize=(1.25 * count, 1.6 * len(rows)), squeeze=False
    )
    for line, row in zip(axes, rows, strict=True):
        for i, axis in enumerate(line):
            axis.imshow(np.reshape(row["pixels"][i], shape), cmap="gray")
            axis.set_title(f"{row['prediction'][i]}  ({row['probability'][i]:.3f})", fontsize=8)
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(row["name"], fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path
