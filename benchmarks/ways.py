"""The way of a query through the house, for each method: traced, not told.

Each method runs on a small planted target whose function looks up the stack when it is asked.
What is shown is the way through the most files, the certificate's left aside: who can follow
it has met all that lies between a method and its target.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import unrelu
from unrelu import planted

Way = tuple[tuple[str, str], ...]
"""Modules and functions, the caller first."""


WRAPPERS = ("values_where_refuted.begun_again",)  # decorators, which are no step of a way


class Watched:
    """A target that remembers through which functions it was asked, and for how many rows."""

    def __init__(self, answer: Callable[[np.ndarray], np.ndarray]) -> None:
        self._answer = answer
        self.ways: Counter[Way] = Counter()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        steps, frame = [], sys._getframe(1)
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            name = frame.f_code.co_qualname.replace(".<locals>", "")
            if module.startswith("unrelu.") and "<" not in name and name not in WRAPPERS:
                steps.append((module.removeprefix("unrelu."), name))
            frame = frame.f_back  # type: ignore[assignment]
        self.ways[tuple(reversed(steps))] += len(x)
        return np.asarray(self._answer(x))

    def longest(self) -> Way:
        """Return the way through the most files; among equals, the one that most rows came."""
        asked = [
            way
            for way in self.ways
            if not any("certif" in f"{module}.{name}".lower() for module, name in way)
        ]
        return max(
            asked or self.ways,
            key=lambda way: (len({module for module, _ in way}), self.ways[way]),
        )


def _halfspaces(d: int) -> Callable[[np.ndarray], np.ndarray]:
    w = np.random.default_rng(0).standard_normal((3, d))
    return lambda x: ((x @ w.T) < 1.0).all(axis=1).astype(float)[:, None]


def _above(d: int) -> Callable[[np.ndarray], np.ndarray]:
    w = np.linalg.qr(np.random.default_rng(0).standard_normal((d, d)))[0][:2]
    return lambda x: ((x @ w.T) > 2.0).any(axis=1).astype(float)[:, None]


def _network(*widths: int) -> Callable[[np.ndarray], np.ndarray]:
    return planted.random_network(*widths, rng=0)


#: What is run for each method: its name, the target's function and inputs, the call.
RUNS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int, Callable[[Any], Any]]] = {
    "extract_two_layer": (_network(6, 4, 1), 6, lambda o: unrelu.extract_two_layer(o, rng=0)),
    "extract_three_layer": (
        _network(6, 3, 4, 1), 6, lambda o: unrelu.extract_three_layer(o, rng=0),
    ),
    "learn_from_queries": (
        _network(6, 4, 1), 6, lambda o: unrelu.learn_from_queries(o, epsilon=1e-3, rng=0),
    ),
    "recover_span, values": (_network(8, 3, 4, 2), 8, lambda o: unrelu.recover_span(o, rng=0)),
    "recover_lowest_layer": (
        _above(4), 4, lambda o: unrelu.recover_lowest_layer(o, activation="sign", rng=0),
    ),
    "learn_halfspaces": (_halfspaces(4), 4, lambda o: unrelu.learn_halfspaces(o, rng=0)),
}  # fmt: skip


def ways() -> Iterator[tuple[str, Way]]:
    """Run each method and yield its longest way."""
    for name, (answer, d, call) in RUNS.items():
        watched = Watched(answer)
        call(unrelu.connect(watched, input_dim=d))
        yield name, watched.longest()
