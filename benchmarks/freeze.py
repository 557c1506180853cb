"""Freeze what every method returns on some seeds, and compare after a change.

``python -m benchmarks.freeze --write FILE`` notes status, queries and the bits of the result
of about 60 runs over all methods; ``--check FILE`` runs them again and names what differs.
For changes of structure that must not change a bit; files are of one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import unrelu
from unrelu import planted
from unrelu.oracles.wrappers import Cast, Labels, Noisy, Rounded, Softmax

Run = Callable[[int], Any]


def _network(*widths: int) -> Callable[[int], Any]:
    return lambda seed: unrelu.connect(planted.random_network(*widths, rng=seed))


def _samples(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((20_000, 5))
    return x, planted.random_network(5, 3, 1, rng=seed)(x)[:, 0]


def _above(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    w = np.linalg.qr(rng.standard_normal((6, 6)))[0][:3]
    x = rng.standard_normal((100_000, 6))
    return x, ((x @ w.T) > 1.5).any(axis=1).astype(float)


def _inside(seed: int) -> Callable[[np.ndarray], np.ndarray]:
    w = np.random.default_rng(seed).standard_normal((3, 5))
    return lambda x: ((x @ w.T) < 1.0).all(axis=1).astype(float)


def runs() -> Iterator[tuple[str, Run, int]]:
    """Yield a name, a run and how many seeds it is frozen for."""
    two, three = unrelu.extract_two_layer, unrelu.extract_three_layer
    learn, span = unrelu.learn_from_queries, unrelu.recover_span
    yield "two", lambda s: two(_network(20, 10, 1)(s), rng=s), 4
    yield "two outputs", lambda s: two(_network(12, 8, 3)(s), rng=s), 3
    yield "two float32", lambda s: two(Cast(_network(20, 10, 1)(s), "float32"), rng=s), 3
    yield "two rounded", lambda s: two(Rounded(_network(10, 5, 1)(s), 6), rng=s), 2
    yield "two softmax", lambda s: two(Softmax(_network(12, 8, 3)(s)), rng=s), 3
    yield "two orthant", lambda s: two(_network(8, 5, 1)(s), domain="nonnegative", rng=s), 3
    yield "two box", lambda s: two(_network(8, 5, 1)(s), domain=(-1.0, 1.0), rng=s), 3
    yield "three", lambda s: three(_network(10, 5, 8, 1)(s), rng=s), 4
    yield "three wide", lambda s: three(_network(5, 8, 6, 1)(s), rng=s), 2
    yield "three softmax", lambda s: three(Softmax(_network(8, 5, 6, 3)(s)), rng=s), 2
    yield "learner", lambda s: learn(_network(10, 6, 1)(s), epsilon=1e-3, rng=s), 3
    yield (
        "learner bump",
        lambda s: learn(planted.bump(6, width=0.1, rng=s), epsilon=0.01, rng=s),
        2,
    )
    yield (
        "learner noise",
        lambda s: learn(Noisy(_network(6, 4, 1)(s), 1e-3), epsilon=0.05, rng=s),
        2,
    )
    yield "span", lambda s: span(_network(30, 6, 4, 2)(s), rng=s), 3
    yield (
        "span labels",
        lambda s: span(Labels(_network(12, 4, 3)(s)), answers="labels", rng=s),
        2,
    )
    yield "extract", lambda s: unrelu.extract(_network(10, 6, 1)(s), rng=s), 3
    yield "extract deep", lambda s: unrelu.extract(_network(8, 4, 5, 1)(s), rng=s), 2
    yield "extract softmax", lambda s: unrelu.extract(Softmax(_network(10, 6, 3)(s)), rng=s), 2
    yield "samples", lambda s: unrelu.learn_from_samples(*_samples(s), rng=s), 3
    yield "lowest", lambda s: unrelu.recover_lowest_layer(*_above(s), activation="sign", rng=s), 2
    yield (
        "halfspaces",
        lambda s: unrelu.learn_halfspaces(unrelu.connect(_inside(s), input_dim=5), rng=s),
        3,
    )


def bits(result: Any) -> str:
    """Return a digest of all arrays that a result holds."""
    digest = hashlib.blake2b(digest_size=8)
    if result.network is not None:
        digest.update(result.network.fingerprint().encode())
    for name in ("basis", "directions", "thresholds", "first_weights"):
        array = getattr(result, name, None)
        if isinstance(array, np.ndarray):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def frozen() -> dict[str, list[Any]]:
    """Return status, queries and bits by run."""
    found: dict[str, list[Any]] = {}
    for name, run, seeds in runs():
        for seed in range(700, 700 + seeds):
            result = run(seed)
            found[f"{name}/{seed}"] = [result.status.name, result.queries.total, bits(result)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.freeze")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", type=Path)
    options = parser.parse_args()
    now = frozen()
    if options.write is not None:
        options.write.write_text(json.dumps(now, indent=1) + "\n")
    if options.check is not None:
        before = json.loads(options.check.read_text())
        differing = [key for key in before if before[key] != now.get(key)]
        for key in differing:
            print(f"{key}: {before[key]} before, {now.get(key)} now")
        print(f"{len(before) - len(differing)} of {len(before)} runs are the same, bit for bit")
        sys.exit(bool(differing))


if __name__ == "__main__":
    main()
