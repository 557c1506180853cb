"""A run in a process of its own, for tests that kill it.

Usage: ledger_worker.py FOLDER run|extract|fill. The target logs each batch it
answers to FOLDER/asked.log, with the stage that it is charged to; a run is
adaptive (each batch depends on the answers before) and prints the bits of its
final state.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TextIO

import numpy as np

from unrelu import LedgerError, connect, planted
from unrelu.algorithms.two_layer import extract_two_layer
from unrelu.oracles import CallableOracle


def logged(function, input_dim: int, log: TextIO) -> CallableOracle:
    def target(x: np.ndarray) -> np.ndarray:
        digest = hashlib.blake2b(x.tobytes(), digest_size=8).hexdigest()
        log.write(f"{oracle.meter.stage_name} {len(x)} {digest}\n")
        return function(x)

    oracle = CallableOracle(target, input_dim=input_dim, identity="target")
    return oracle


def extract(folder: Path, log: TextIO) -> int:
    target = logged(planted.random_network(30, 20, 1, rng=0), 30, log)
    oracle = connect(target, ledger=folder / "l.db", batch_size=8)
    result = extract_two_layer(oracle, rng=5)
    print(result.status.name, result.network.fingerprint())
    return 0


def main(folder: Path, what: str) -> int:
    log = (folder / "asked.log").open("a", buffering=1)
    weights = np.random.default_rng(0).standard_normal((6, 6))
    target = logged(lambda x: np.tanh(x @ weights), 6, log)
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
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
