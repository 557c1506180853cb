"""What a case consists of: a planted target, a call, and a judge that holds the truth."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]
Box = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Planted:
    """A target and the truth about it.

    Attributes
    ----------
    d
        Number of inputs.
    truth
        The function without noise, rounding or mischief, ``(n, d) -> (n, m)``, in
        the units of the answers.
    ask
        What is connected; ``truth`` itself where None.
    domain
        Where it may be asked.
    logits
        For probabilities: the log-odds behind ``truth``, up to a common function.
    noise
        Standard deviation of an answer's error; None: measured, by asking again.
    thin
        Features may hide: ten times as many fresh inputs judge.
    rows
        First-layer rows ``(k, d)``, for those who look for their span.
    phases
        Which functions answered in this run, for services that change.
    options
        For ``unrelu.connect``.
    draw
        Inputs of the certificate's distribution, where its words do not tell.
    """

    d: int
    truth: Function
    ask: Any = None
    domain: str | Box = "all"
    logits: Function | None = None
    noise: float | None = None
    thin: bool = False
    rows: Array | None = None
    phases: Callable[[], list[Function]] | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    draw: Callable[[int, np.random.Generator], Array] | None = None

    @property
    def target(self) -> Any:
        """What is connected."""
        return self.truth if self.ask is None else self.ask

    def but(self, **changes: Any) -> Planted:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a case came to: an outcome, why, and numbers beside it."""

    outcome: str
    why: str = ""
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of a public function.

    Attributes
    ----------
    call
        Makes the call on a fresh target.
    judge
        Holds what came back against the truth.
    price
        Queries that a plan names at most, given what came back; None where there
        is no plan.
    mistake
        The caller errs on purpose: ``ValueError``, ``TypeError`` and ``OSError`` are
        fair answers.
    """

    call: Callable[[], Any]
    judge: Callable[[Any], Verdict]
    price: Callable[[Any], float | None] = lambda result: None
    mistake: bool = False


@dataclasses.dataclass(frozen=True)
class Kind:
    """A family of cases, one for each seed; ``limit`` in seconds of processor time."""

    name: str
    make: Callable[[int], Case]
    seeds: int
    limit: float = 4.0


def generator(name: str, seed: int) -> np.random.Generator:
    """Return the stream of a case: the same in every run and on every machine."""
    return np.random.default_rng([zlib.crc32(name.encode()), seed])
