"""Ledgers: resumed runs, other models behind the same file, files that are none."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import unrelu
from benchmarks.hostile.case import Array, Case, Kind, Planted, Verdict, generator
from benchmarks.hostile.judge import judge_network, status_of
from benchmarks.hostile.networks import of
from benchmarks.hostile.services import Failing
from unrelu import ReLUNetwork, planted

Target = Callable[[Array], Array]


@contextlib.contextmanager
def _file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="unrelu-hostile-") as folder:
        yield Path(folder) / "answers.db"


def _small(g: np.random.Generator) -> ReLUNetwork:
    return planted.random_network(int(g.integers(2, 7)), int(g.integers(1, 6)), 1, rng=g)


def _fresh(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed + 1_000_003)


# ------------------------------------------------------------------- resumption


def _resumed(seed: int) -> Case:
    """Stop a run by its budget or by an error, resume it, and compare with one that was not."""
    g = generator("resumed", seed)
    network = _small(g)
    part = float(g.uniform(0.02, 0.98))
    by_error = seed % 2 == 1

    def run(target: Any, path: Path | None, budget: int | None = None) -> Any:
        oracle = unrelu.connect(
            target, input_dim=network.input_dim, name="model", ledger=path, budget=budget
        )
        return unrelu.extract(oracle, rng=seed)

    def call() -> Any:
        plain = run(network, None)
        stop = int(part * plain.queries.total)
        with _file() as path:
            if by_error:
                with contextlib.suppress(unrelu.OracleError):
                    run(Failing(network, stop, 0, RuntimeError("gone")), path)
            else:
                run(network, path, budget=stop)
            return plain, run(network, path)

    def judge(both: Any) -> Verdict:
        plain, resumed = both
        verdict = judge_network(of(network), resumed, rng=_fresh(seed))
        facts = {**verdict.facts, "plain queries": plain.queries.total}
        if verdict.outcome == "false":
            return verdict
        if status_of(plain) == "RECOVERED" and status_of(resumed) != "RECOVERED":
            return Verdict("honest", f"resumed: {status_of(resumed)}", facts)
        return Verdict(verdict.outcome, verdict.why, facts)

    return Case(call=call, judge=judge)


# --------------------------------------------------------------------- identity


class Attribute:
    """A model whose weight is a plain number of its own."""

    def __init__(self, network: ReLUNetwork, factor: float) -> None:
        self.network, self.factor = network, factor

    def __call__(self, x: Array) -> Array:
        return self.factor * self.network(x)


class Nested:
    """A model whose weight lies in a list in a map."""

    def __init__(self, network: ReLUNetwork, factor: float) -> None:
        self.network, self.settings = network, {"head": [{"factor": factor}]}

    def __call__(self, x: Array) -> Array:
        return self.settings["head"][0]["factor"] * self.network(x)


class Slotted:
    """A model without a dictionary."""

    __slots__ = ("factor", "network")

    def __init__(self, network: ReLUNetwork, factor: float) -> None:
        self.network, self.factor = network, factor

    def __call__(self, x: Array) -> Array:
        return self.factor * self.network(x)


class Outer:
    """A model whose weight lies in another object."""

    def __init__(self, network: ReLUNetwork, factor: float) -> None:
        self.inner = Slotted(network, factor)

    def predict(self, x: Array) -> Array:
        return self.inner(x)


def _closure(network: ReLUNetwork, factor: float) -> Target:
    return lambda x: factor * network(x)


def _product(x: Array, network: ReLUNetwork, factor: float) -> Array:
    return factor * network(x)


def _partial(network: ReLUNetwork, factor: float) -> Target:
    return functools.partial(_product, network=network, factor=factor)


def _default(network: ReLUNetwork, factor: float) -> Target:
    def predict(x: Array, scale: float = factor) -> Array:
        return scale * network(x)

    return predict


HELD: dict[str, Any] = {}


def _from_module(x: Array) -> Array:
    return np.asarray(HELD["factor"] * HELD["network"](x))


def _global(network: ReLUNetwork, factor: float) -> Target:
    HELD.update(network=network, factor=factor)
    return _from_module


def _named(network: ReLUNetwork, factor: float) -> Target:
    """Two models under one name, which the caller gave."""
    return _closure(network, factor)


MODELS: dict[str, Callable[[ReLUNetwork, float], Target]] = {
    "an attribute": Attribute,
    "a nested attribute": Nested,
    "a slot": Slotted,
    "a bound method": lambda network, factor: Outer(network, factor).predict,
    "a closure": _closure,
    "a partial": _partial,
    "a default argument": _default,
    "a module's global": _global,
    "a name": _named,
}


def _other_model(what: str) -> Kind:
    """Run on one model, then on another that differs in one number, with the same ledger."""
    name = f"ledger: another model in {what}"

    def made(seed: int) -> Case:
        g = generator(name, seed)
        network = _small(g)
        factors = 1.0, float(g.choice([2.0, 1.001, -1.0, 0.5]))

        def run(factor: float, path: Path) -> Any:
            oracle = unrelu.connect(
                MODELS[what](network, factor),
                input_dim=network.input_dim,
                ledger=path,
                name="model" if what == "a name" else None,
            )
            return unrelu.extract(oracle, rng=seed)

        def call() -> Any:
            with _file() as path:
                run(factors[0], path)
                return run(factors[1], path)

        truth = Planted(network.input_dim, lambda x: factors[1] * network(x))
        return Case(call=call, judge=lambda result: judge_network(truth, result, rng=_fresh(seed)))

    return Kind(name, made, 4)


# ------------------------------------------------------------------- odd files


def _folder(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _text(path: Path) -> None:
    path.write_text("these are not answers\n" * 100)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    """Cut off a real ledger in the middle."""
    with unrelu.Ledger(path) as book:
        unrelu.connect(lambda x: x, input_dim=2, name="another", ledger=book)(np.eye(2))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _dangling(path: Path) -> None:
    path.symlink_to(path.parent / "missing" / "file.db")


FILES: list[Callable[[Path], None]] = [_folder, _fifo, _text, _empty, _cut, _dangling]


def _odd_file(seed: int) -> Case:
    g = generator("odd file", seed)
    network = _small(g)

    def call() -> Any:
        with _file() as path:
            FILES[seed % len(FILES)](path)
            oracle = unrelu.connect(
                lambda x: network(x), input_dim=network.input_dim, name="model", ledger=path
            )
            return unrelu.extract(oracle, rng=seed)

    return Case(call=call, judge=lambda r: judge_network(of(network), r, rng=_fresh(seed)))


KINDS = [
    Kind("ledger: resumed", _resumed, 12),
    *(_other_model(what) for what in MODELS),
    Kind("ledger: odd files", _odd_file, 12),
]
