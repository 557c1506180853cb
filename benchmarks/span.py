"""Span recovery and obfuscation against the ground truth.

Trained rows need MNIST: set UNRELU_MNIST to a folder with its IDX files.
Trained networks are kept in benchmarks/.cache.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

from benchmarks.harness import NotHereError, Row, main, priced
from benchmarks.span_curves import ORTHANT_DRAWS, SILENCE_DRAWS, gradient_rows
from unrelu import datasets
from unrelu.networks import ReLUNetwork
from unrelu.oracles import as_oracle, connect
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import Cast, Labels
from unrelu.span.algorithm import SpanResult, obfuscate, recover_span
from unrelu.span.assumptions import orthant_gamma_log2, silent_share
from unrelu.span.subspace import largest_principal_angle

CACHE = Path(__file__).parent / ".cache" / "span"
SUBNETS = [(80,), (80, 40), (80, 40, 30), (80, 40, 30, 20)]
THIN = [(80, 6, 3), (80, 6, 3, 3), (80, 4, 2), (80, 3, 3, 3)]


def random_net(dims: tuple[int, ...], seed: int) -> ReLUNetwork:
    """The paper's random networks: Gaussian weights, no biases."""
    g = np.random.default_rng(seed)
    weights = [g.standard_normal((b, a)) * np.sqrt(2 / a) for a, b in pairwise(dims)]
    return ReLUNetwork(weights, [np.zeros(b) for b in dims[1:]])


@lru_cache(maxsize=1)
def mnist() -> datasets.ImageSet:
    data = datasets.load_digit_images()
    if data.name != "mnist":
        raise NotHereError(f"set {datasets.MNIST_ENVIRONMENT} to a folder with MNIST's IDX files")
    return data


def trained_net(hidden: tuple[int, ...], seed: int) -> ReLUNetwork:
    path = CACHE / f"mnist-{'-'.join(map(str, hidden))}-{seed}.safetensors"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        datasets.train_classifier(mnist(), *hidden, seed=seed, epochs=3, images=30_000).save(path)
    return ReLUNetwork.load(path)


def facts(result: SpanResult, truth: np.ndarray[Any, Any], angle: float) -> dict[str, Any]:
    k, n = truth.shape
    reached = largest_principal_angle(result.basis, truth)
    spent = result.queries.without_certificate
    return {
        "success": result.rank == k and reached <= angle and result.success,
        "status": result.status.name,
        "rank": result.rank,
        "angle": reached,
        "estimate": result.angle,
        "queries": spent,
        "ratio": spent / (k * n),
        "gradients": len(result.rank_history),
        "gap": result.gap,
        **priced(result),
    }


def run_values(
    seed: int,
    *,
    hidden: tuple[int, ...],
    trained: bool = False,
    outputs: Any = 0,
    cast: str | None = None,
    angle: float = 1e-8,
    **options: Any,
) -> dict[str, Any]:
    net = trained_net(hidden, seed) if trained else random_net((784, *hidden, 10), seed)
    oracle: Oracle = as_oracle(net)
    if cast:
        oracle = Cast(oracle, cast)
    result = recover_span(oracle, outputs=outputs, rng=seed, **options)
    return facts(result, net.weights[0], angle)


def softplus(z: Any) -> Any:
    return np.logaddexp(0, z)


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": np.tanh,
    "softplus": softplus,
    "sigmoid": scipy.special.expit,
}


def smooth_target(name: str, n: int, k: int, seed: int, dtype: type) -> tuple[Oracle, Any]:
    """Depth 3, widths n-k-k-1, thresholded at its median; arithmetic in ``dtype``."""
    g = np.random.default_rng(seed)
    act = ACTIVATIONS[name]
    first = (1.5 * g.standard_normal((k, n)) / np.sqrt(n)).astype(dtype)
    second = (1.5 * g.standard_normal((k, k)) / np.sqrt(k)).astype(dtype)
    last = (g.standard_normal((1, k)) / np.sqrt(k)).astype(dtype)

    def network(x: Any) -> Any:
        return act(act(x.astype(dtype) @ first.T) @ second.T) @ last.T

    cut = float(np.median(network(g.standard_normal((4000, n)))))
    return Labels(connect(network, input_dim=n), threshold=cut), first.astype(np.float64)


def run_labels(
    seed: int, *, activation: str, n: int, k: int, angle: float, dtype: type = np.float64
) -> dict[str, Any]:
    oracle, truth = smooth_target(activation, n, k, seed, dtype)
    return facts(recover_span(oracle, answers="labels", rng=seed), truth, angle)


def run_argmax(seed: int, *, dims: tuple[int, ...], trained: bool, angle: float) -> dict[str, Any]:
    net = trained_net(dims[1:-1], seed) if trained else random_net(dims, seed)
    result = recover_span(Labels(as_oracle(net)), answers="labels", rng=seed)
    return facts(result, net.weights[0], angle)


def run_thin(
    seed: int, *, hidden: tuple[int, ...], networks: int = 10, samples: int = 100
) -> dict[str, Any]:
    """Figure 1: gradients at Gaussian points of ten thin networks.

    Success is what the paper says of them: not all have full rank, but those
    that meet its assumptions, as far as one can see, reach half of it.
    """
    ranks, silent, gammas, kept = [], [], [], True
    for net in (random_net((784, *hidden, 1), 10 * seed + i) for i in range(networks)):
        rows, _ = gradient_rows(net, samples, seed)
        values = np.linalg.svd(rows, compute_uv=False)
        ranks.append(int(np.count_nonzero(values > 1e-5 * values[0])))
        silent.append(silent_share(net, draws=SILENCE_DRAWS))
        gammas.append(orthant_gamma_log2(net.weights[0], draws=ORTHANT_DRAWS))
        assumed = silent[-1] == 0 or silent[-1] <= 2.0 ** gammas[-1] / 8
        kept = kept and not (assumed and 2 * ranks[-1] < hidden[0])
    full = sum(rank == hidden[0] for rank in ranks)
    return {
        "success": full < networks and kept,
        "rank": float(np.mean(ranks)),
        "least_rank": min(ranks),
        "full": full,
        "half": sum(2 * rank >= hidden[0] for rank in ranks),
        "networks": networks,
        "silent": float(np.mean(silent)),
        "gamma_log2": float(np.median(gammas)),
    }


def run_obfuscation(seed: int, *, boxed: bool) -> dict[str, Any]:
    data, net = mnist(), trained_net((80, 40, 30, 20), seed)
    span = recover_span(net, rng=seed, tolerance=1e-10)
    x = data.x_test[:1000]
    if boxed:
        made = obfuscate(x, span, noise=10.0, box=(0.0, 1.0), rng=seed)
    else:
        made = obfuscate(x, span, noise=10.0, rng=seed)
    before, after = net(x), net(made.images)
    unchanged = float(np.mean(before.argmax(1) == after.argmax(1)))
    change = float(np.abs(after - before).max() / np.ptp(before))
    asked = unchanged >= 0.99 if boxed else unchanged >= 0.999 and change < 1e-6
    return {
        "success": span.success and asked,
        "unchanged": unchanged,
        "logit_change": change,
        "noise_norm": float(np.median(made.noise_norm)),
        "least_noise": float(made.noise_norm.min()),
        "correlation": float(np.median(made.correlation)),
        "affine_residual": float(made.affine_residual.max()),
        "box_residual": float(made.box_residual.max()),
        "iterations": made.iterations,
        "accuracy": float(np.mean(before.argmax(1) == data.y_test[:1000])),
        "queries": span.queries.total,
    }


def name_of(hidden: tuple[int, ...]) -> str:
    return "-".join(map(str, (784, *hidden, 10)))


SEEDS = range(1000, 1020)
ROWS = [
    *(
        Row(
            f"{kind} {name_of(h)} output 0",
            partial(run_values, hidden=h, trained=kind == "mnist"),
            SEEDS,
            {"success": 20, "max:angle": 1e-8, "max:ratio": 1.2, "max:gradients": 100},
        )
        for kind in ("random", "mnist")
        for h in SUBNETS
    ),
    *(
        Row(
            f"{kind} {name_of(SUBNETS[-1])} all outputs",
            partial(run_values, hidden=SUBNETS[-1], trained=kind == "mnist", outputs="all"),
            SEEDS,
            {"success": 20, "max:angle": 1e-8, "max:ratio": 0.2},
        )
        for kind in ("random", "mnist")
    ),
    *(
        Row(
            f"{kind} {name_of(SUBNETS[-1])} non-adaptive, 100 gradients",
            partial(
                run_values,
                hidden=SUBNETS[-1],
                trained=kind == "mnist",
                adaptive=False,
                gradients=100,
            ),
            SEEDS,
            {"success": 20, "max:angle": 1e-8, "max:gradients": 100},
        )
        for kind in ("random", "mnist")
    ),
    *(
        Row(
            f"{kind} {name_of(SUBNETS[-1])} float32",
            partial(
                run_values,
                hidden=SUBNETS[-1],
                trained=kind == "mnist",
                cast="float32",
                angle=1e-3,
            ),
            SEEDS[:5],
            {"success": 5, "max:angle": 1e-3},
        )
        for kind in ("random", "mnist")
    ),
    *(
        Row(
            f"labels {act} 50-10",
            partial(run_labels, activation=act, n=50, k=10, angle=1e-10),
            SEEDS,
            {"success": 19, "max:angle": 1e-10, "max:queries": 100_000},
        )
        for act in ACTIVATIONS
    ),
    *(
        Row(
            f"labels {act} 50-10 float32",
            partial(
                run_labels, activation=act, n=50, k=10, angle=1e-3, dtype=np.float32
            ),
            SEEDS,
            {"success": 19, "max:angle": 1e-3},
        )
        for act in ACTIVATIONS
    ),
    *(
        Row(
            f"labels {act} 200-40",
            partial(run_labels, activation=act, n=200, k=40, angle=1e-8),
            SEEDS[:5],
            {"success": 5, "max:angle": 1e-8},
        )
        for act in ACTIVATIONS
    ),
    Row(
        "argmax random 100-20-10",
        partial(run_argmax, dims=(100, 20, 10), trained=False, angle=1e-8),
        SEEDS,
        {"success": 19, "max:angle": 1e-8, "max:queries": 200_000},
    ),
    Row(
        "argmax random 100-20-20-10",
        partial(run_argmax, dims=(100, 20, 20, 10), trained=False, angle=1e-8),
        SEEDS,
        {"success": 19, "max:angle": 1e-8, "max:queries": 200_000},
    ),
    Row(
        "argmax mnist 784-20-10",
        partial(run_argmax, dims=(784, 20, 10), trained=True, angle=1e-5),
        SEEDS[:5],
        {"success": 5, "max:angle": 1e-5},
    ),
    *(
        Row(f"thin random 784-{'-'.join(map(str, h))}-1", partial(run_thin, hidden=h), SEEDS[:3],
            {"success": 3, "rank": 79.9})
        for h in THIN
    ),
    Row("obfuscation 10x", partial(run_obfuscation, boxed=False), SEEDS[:3],
        {"success": 3, "max:logit_change": 1e-6}),
    Row("obfuscation in the pixel box", partial(run_obfuscation, boxed=True), SEEDS[:3],
        {"success": 3}),
]  # fmt: skip

if __name__ == "__main__":
    warnings.simplefilter("error")
    main("span", ROWS)
