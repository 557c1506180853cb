"""A run in a process of its own, for tests that kill it.

Usage: ledger_worker.py FOLDER run|extract|fill [ENOUGH]. The target logs each batch
it answers to FOLDER/asked.log, with the stage that it is charged to, and after ENOUGH
of them waits to be killed; a run is adaptive (each batch depends on the answers before)
and prints the bits of its final state.
"""

from __future__ import annotations

import hashlib
import signal
import sys
from pathlib import Path

import numpy as np

import exact_sums
from unrelu import LedgerError, connect, planted
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.oracles import CallableOracle


class Log:
    """Writes down each batch; after enough of them it never comes back."""

    def __init__(self, folder: Path, enough: float) -> None:
        self.file = (folder / "asked.log").open("a", buffering=1)
        self.left = enough

    def write(self, stage: str, x: np.ndarray) -> None:
        digest = hashlib.blake2b(x.tobytes(), digest_size=8).hexdigest()
        self.file.write(f"{stage} {len(x)} {digest}\n")
        self.left -= 1
        if self.left <= 0:
            signal.pause()


def logged(function, input_dim: int, log: Log) -> CallableOracle:
    def target(x: np.ndarray) -> np.ndarray:
        log.write(oracle.meter.stage_name, x)
        return function(x)

    oracle = CallableOracle(target, input_dim=input_dim, identity="target")
    return oracle


def saturating(weights: np.ndarray):
    def function(x: np.ndarray) -> np.ndarray:
        z = exact_sums.product(x, weights)
        return z / (1.0 + np.abs(z))

    return function


def extract(folder: Path, log: Log) -> int:
    network = planted.random_network(30, 20, 1, rng=0)
    target = logged(lambda x: exact_sums.evaluate(network, x), 30, log)
    oracle = connect(target, ledger=folder / "l.db", batch_size=8)
    result = extract_two_layer(oracle, rng=5)
    print(result.status.name, result.network.fingerprint())
    return 0


def main(folder: Path, what: str, enough: float) -> int:
    log = Log(folder, enough)
    weights = np.random.default_rng(0).standard_normal((6, 6))
    target = logged(saturating(weights), 6, log)
    if what == "extract":
        return extract(folder, log)
    oracle = connect(target, ledger=folder / "l.db", batch_size=32)
    rng = np.random.default_rng(1)
    state = rng.standard_normal((64, 6))
    if what == "fill":
        try:
            for _ in range(1000):
                oracle(rng.standard_normal((500, 6)))
        except LedgerError as error:
            print(type(error).__name__, error)
            return 3
        return 0
    for step in range(150):
        with oracle.stage(f"stage {step % 3}"):
            answers = oracle(state, repeat=step % 2)
        state = 0.9 * state + 0.3 * answers + 0.1 * rng.standard_normal(state.shape)
    print(hashlib.blake2b(state.tobytes()).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float((*sys.argv, "inf")[3])))
