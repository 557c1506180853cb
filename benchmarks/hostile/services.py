"""Services that stand between a model and its caller, and misbehave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.hostile.case import Array, Function, Planted
from benchmarks.hostile.networks import Maker, of, sizes
from unrelu import ReLUNetwork, planted

Answer = Callable[[Array], Any]


def _small(g: np.random.Generator, most: int = 7) -> Planted:
    return of(planted.random_network(*sizes(g, 2, most), rng=g))


# ------------------------------------------------------------ that change in time


class Changing:
    """Answers by one function for ``after`` rows, and by another from then on.

    ``between`` splits a batch at the row; otherwise the whole batch that reaches it changes.
    """

    def __init__(self, first: Function, later: Function, after: int, *, between: bool) -> None:
        self.functions, self.after, self.between = (first, later), after, between
        self.rows = 0
        self.answered = [0, 0]

    def __call__(self, x: Array) -> Array:
        before = max(0, min(len(x), self.after - self.rows))
        if not self.between and before < len(x):
            before = 0
        self.rows += len(x)
        parts = []
        for i, part in enumerate((x[:before], x[before:])):
            self.answered[i] += len(part)
            if len(part):
                parts.append(self.functions[i](part))
        return np.concatenate(parts)

    def phases(self) -> list[Function]:
        """Return the functions that answered so far; the row that connecting asks is no run's."""
        return [f for f, rows in zip(self.functions, self.answered, strict=True) if rows > 1]


def _changing(g: np.random.Generator, base: Planted, later: Function) -> Planted:
    after = int(10.0 ** g.uniform(1.3, 3.8))
    service = Changing(base.truth, later, after, between=bool(g.random() < 0.5))
    return base.but(ask=service, phases=service.phases, noise=0.0)


def falls_back(g: np.random.Generator) -> Planted:
    """Answer with a constant after so many rows."""
    base = _small(g)
    value = base.truth(np.zeros((1, base.d))) if g.random() < 0.5 else np.zeros((1, 1))
    m = base.truth(np.zeros((1, base.d))).shape[1]
    return _changing(g, base, lambda x: np.zeros((len(x), m)) + value)


def is_replaced(g: np.random.Generator) -> Planted:
    """Answer with another model after so many rows: retrained, or one unit changed."""
    base = _small(g)
    network = base.truth
    w, u = (a.copy() for a in network.weights)  # type: ignore[attr-defined]
    b = network.biases[0].copy()  # type: ignore[attr-defined]
    change = float(10.0 ** g.uniform(-5.0, 0.0))
    w[0] += change * g.standard_normal(w.shape[1])
    b[0] += change * g.standard_normal()
    later = ReLUNetwork([w, u], [b, network.biases[1]])  # type: ignore[attr-defined]
    return _changing(g, base, later)


class Drifting:
    """Answers that grow a little with every row answered."""

    def __init__(self, truth: Function, rate: float) -> None:
        self.truth, self.rate, self.rows = truth, rate, 0

    def __call__(self, x: Array) -> Array:
        age = self.rate * (self.rows + np.arange(len(x)))
        self.rows += len(x)
        return np.asarray(self.truth(x) * (1.0 + age[:, None]))

    def phases(self) -> list[Function]:
        last = 1.0 + self.rate * self.rows
        return [self.truth, lambda x: self.truth(x) * last]


def drifts(g: np.random.Generator) -> Planted:
    base = _small(g)
    service = Drifting(base.truth, float(10.0 ** g.uniform(-9.0, -4.0)))
    return base.but(ask=service, phases=service.phases, noise=0.0)


class Failing:
    """Raises at some calls, or for all after so many rows."""

    def __init__(self, truth: Function, after: int, every: int, error: Exception) -> None:
        self.truth, self.after, self.every, self.error = truth, after, every, error
        self.rows = self.calls = 0

    def __call__(self, x: Array) -> Array:
        self.calls += 1
        self.rows += len(x)
        if self.rows > self.after or (self.every and self.calls % self.every == 0):
            raise self.error
        return self.truth(x)


def throttles(g: np.random.Generator) -> Planted:
    """Refuse after so many rows, or every few calls."""
    base = _small(g)
    errors: list[Exception] = [
        RuntimeError("429 Too Many Requests"), TimeoutError("slow down"), ConnectionResetError(),
        MemoryError(), KeyError("row"), StopIteration(), ZeroDivisionError(), OSError(28, "full"),
        np.linalg.LinAlgError("inside"), AssertionError(), RecursionError(),
    ]  # fmt: skip
    error = errors[int(g.integers(len(errors)))]
    every = int(g.choice([0, 7, 20]))
    after = int(10.0 ** g.uniform(0.0, 3.8))
    return base.but(ask=Failing(base.truth, after, every, error), noise=0.0)


# ------------------------------------------------------------- that mix up rows


class Reordering:
    """Answers a batch in another order: reversed, sorted, shifted or shuffled."""

    def __init__(self, truth: Function, sort: str, seed: int, least: int) -> None:
        self.truth, self.sort, self.least = truth, sort, least
        self.rng = np.random.default_rng(seed)

    def __call__(self, x: Array) -> Array:
        y = self.truth(x)
        if len(y) < self.least:
            return y
        if self.sort == "reversed":
            return y[::-1]
        if self.sort == "sorted":
            return np.sort(y, axis=0)
        if self.sort == "shifted":
            return np.roll(y, 1, axis=0)
        if self.sort == "swapped":
            y = y.copy()
            y[[0, -1]] = y[[-1, 0]]
            return y
        return y[self.rng.permutation(len(y))]


def reorders(g: np.random.Generator) -> Planted:
    base = _small(g)
    sort = str(g.choice(["reversed", "sorted", "shifted", "shuffled", "swapped"]))
    least = int(g.choice([2, 50, 500]))
    service = Reordering(base.truth, sort, int(g.integers(2**31)), least)
    return base.but(ask=service, noise=0.0)


class Columns:
    """Sorts each row's outputs by size, as lists of the best classes do."""

    def __init__(self, truth: Function) -> None:
        self.truth = truth

    def __call__(self, x: Array) -> Array:
        return -np.sort(-self.truth(x), axis=1)


def sorts_columns(g: np.random.Generator) -> Planted:
    """Sort outputs: a function of its own, of two layers at least."""
    d, k, _ = sizes(g, 2, 6)
    base = planted.random_network(d, k, 3, rng=g)
    service = Columns(base)
    return Planted(d, service, rows=base.weights[0], thin=True)


class BatchDependent:
    """Subtracts a part of the batch's mean, as a layer left in training mode does."""

    def __init__(self, truth: Function, part: float) -> None:
        self.truth, self.part = truth, part

    def __call__(self, x: Array) -> Array:
        y = self.truth(x)
        return np.asarray(y - self.part * y.mean(axis=0))


def depends_on_batch(g: np.random.Generator) -> Planted:
    base = _small(g)
    part = float(g.choice([1.0, 0.1, 1e-3, 1e-6]))
    return base.but(ask=BatchDependent(base.truth, part), noise=0.0)


class Stale:
    """Answers by a cache whose key is the input, rounded."""

    def __init__(self, truth: Function, decimals: int) -> None:
        self.truth, self.decimals = truth, decimals

    def __call__(self, x: Array) -> Array:
        return self.truth(np.round(x, self.decimals))


def rounds_inputs(g: np.random.Generator) -> Planted:
    """Round inputs to some decimals, or cast them to float32, before answering."""
    base = _small(g)
    if g.random() < 0.4:
        return base.but(ask=lambda x: base.truth(x.astype(np.float32).astype(np.float64)))
    return base.but(ask=Stale(base.truth, int(g.integers(2, 9))))


# ------------------------------------------------------------ that limit values


def clips_answers(g: np.random.Generator) -> Planted:
    """Clip answers: the truth is the clipped function."""
    base = _small(g, 5)
    spread = float(base.truth(g.standard_normal((500, base.d))).std()) or 1.0
    high = spread * float(g.choice([0.5, 1.0, 3.0, 10.0, 100.0]))
    return base.but(truth=lambda x: np.clip(base.truth(x), -high, high), thin=True)


def clips_inputs(g: np.random.Generator) -> Planted:
    """Clip inputs to a range before answering: the truth is that function."""
    base = _small(g, 5)
    high = float(g.choice([1.0, 2.0, 3.0, 5.0, 100.0]))
    return base.but(
        truth=lambda x: base.truth(np.clip(x, -high, high)), rows=np.eye(base.d), thin=True
    )


class Refusing:
    """Has no answer far out: NaN, infinity, an error, or zero."""

    def __init__(self, truth: Function, radius: float, sort: str) -> None:
        self.truth, self.radius, self.sort = truth, radius, sort

    def __call__(self, x: Array) -> Array:
        far = np.linalg.norm(x, axis=1) > self.radius
        if self.sort == "error" and far.any():
            raise ValueError("input out of range")
        y = self.truth(x).copy()
        y[far] = {"nan": np.nan, "infinite": np.inf, "zero": 0.0, "error": 0.0}[self.sort]
        return y


def refuses_far_inputs(g: np.random.Generator) -> Planted:
    base = _small(g)
    radius = float(g.choice([0.5, 5.0, 20.0, 100.0, 1e4])) * float(np.sqrt(base.d))
    sort = str(g.choice(["nan", "infinite", "zero", "error"]))
    service = Refusing(base.truth, radius, sort)
    if sort == "zero":
        return base.but(truth=service, thin=True)
    return base.but(ask=service, noise=0.0)


# ---------------------------------------------------------------- other types


class Buffered:
    """Writes every answer into the same memory."""

    def __init__(self, truth: Function) -> None:
        self.truth = truth
        self.memory = np.empty((0, 0))

    def __call__(self, x: Array) -> Array:
        y = self.truth(x)
        if self.memory.shape[0] < len(y) or self.memory.shape[1] != y.shape[1]:
            self.memory = np.empty((max(5000, len(y)), y.shape[1]))
        self.memory[:] = np.nan  # whoever kept the last answer keeps nonsense
        self.memory[: len(y)] = y
        return self.memory[: len(y)]


def reuses_buffer(g: np.random.Generator) -> Planted:
    base = _small(g)
    return base.but(ask=Buffered(base.truth), noise=0.0)


class Mutating:
    """Overwrites its input after, or instead of copying it."""

    def __init__(self, truth: Function, sort: str) -> None:
        self.truth, self.sort = truth, sort

    def __call__(self, x: Array) -> Array:
        y = self.truth(x)
        if self.sort == "zero":
            x[:] = 0.0
        elif self.sort == "nan":
            x[:] = np.nan
        else:
            x *= 2.0
        return y


def mutates_inputs(g: np.random.Generator) -> Planted:
    base = _small(g)
    sort = str(g.choice(["zero", "nan", "double"]))
    return base.but(ask=Mutating(base.truth, sort), noise=0.0)


class TensorLike:
    """What a framework returns: no array, but one may be had."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.array(self.values, dtype=dtype)

    def __len__(self) -> int:
        return len(self.values)


class Grudging(TensorLike):
    """A tensor that must be detached first."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self) -> TensorLike:
        return TensorLike(self.values)


def _as_strings(y: Array) -> Any:
    return [[repr(float(v)) for v in row] for row in y]


READABLE: dict[str, Answer] = {
    "lists": lambda y: y.tolist(),
    "tuples": lambda y: tuple(map(tuple, y.tolist())),
    "rows": list,
    "tensors": TensorLike,
    "objects": lambda y: y.astype(object),
    "strings": _as_strings,
    "float32": lambda y: y.astype(np.float32),
    "longdouble": lambda y: y.astype(np.longdouble),
    "Fortran order": np.asfortranarray,
    "read only": lambda y: np.require(y, requirements="C").view(),
    "strided": lambda y: np.repeat(y, 2, axis=1)[:, ::2],
    "masked": np.ma.masked_array,
    "matrix": lambda y: y.astype(">f8"),
    "whole numbers": lambda y: np.round(1000.0 * y).astype(np.int64),
}

UNREADABLE: dict[str, Answer] = {
    "none": lambda y: None,
    "words": lambda y: [["cat"] * y.shape[1]] * len(y),
    "text": lambda y: "0.5",
    "bytes": lambda y: y.tobytes(),
    "map": lambda y: {"outputs": y.tolist()},
    "generator": lambda y: (row for row in y.tolist()),
    "number": lambda y: 0.5,
    "empty": lambda y: [],
    "no columns": lambda y: y[:, :0],
    "one row": lambda y: y[:1],
    "one more": lambda y: np.concatenate([y, y[:1]]),
    "turned": lambda y: np.concatenate([y.T, y.T, y.T])[:, : max(1, len(y) - 1)],
    "three axes": lambda y: np.stack([y, y], axis=2),
    "ragged": lambda y: [[1.0]] * (len(y) - 1) + [[1.0, 2.0]],
    "nan": lambda y: np.full_like(y, np.nan),
    "infinite": lambda y: np.full_like(y, np.inf),
    "some nan": lambda y: np.where(np.arange(len(y))[:, None] % 5 == 3, np.nan, y),
    "complex": lambda y: y + 1j,
    "dates": lambda y: np.zeros(y.shape, dtype="datetime64[s]"),
    "grudging tensors": Grudging,
    "class": lambda y: TensorLike,
    "nothing numeric": lambda y: [[object()] * y.shape[1]] * len(y),
    "too large": lambda y: [[10**400] * y.shape[1]] * len(y),
    "nested none": lambda y: [[None] * y.shape[1]] * len(y),
}


class Typed:
    """Answers in another type, from the start or after so many rows."""

    def __init__(self, truth: Function, answer: Answer, after: int = 0) -> None:
        self.truth, self.answer, self.after, self.rows = truth, answer, after, 0

    def __call__(self, x: Array) -> Any:
        self.rows += len(x)
        y = self.truth(x)
        return self.answer(y) if self.rows > self.after else y


def other_type(name: str) -> Maker:
    """Return small networks whose answers come in a readable type."""

    def made(g: np.random.Generator) -> Planted:
        base = _small(g)
        service = Typed(base.truth, READABLE[name])
        if name == "whole numbers":
            return base.but(truth=lambda x: 1000.0 * base.truth(x), ask=service)
        return base.but(ask=service, noise=None if name == "float32" else 0.0)

    return made


def unreadable(g: np.random.Generator) -> Planted:
    """Answer with something that holds no numbers, from the start or later on."""
    base = _small(g)
    name = list(UNREADABLE)[int(g.integers(len(UNREADABLE)))]
    after = int(g.choice([0, 1, 100, 1000, 3000]))
    return base.but(ask=Typed(base.truth, UNREADABLE[name], after), noise=0.0)


class Wider:
    """Returns one more output after so many rows, or a flat list where rows were."""

    def __init__(self, truth: Function, after: int, sort: str) -> None:
        self.truth, self.after, self.sort, self.rows = truth, after, sort, 0

    def __call__(self, x: Array) -> Array:
        y = self.truth(x)
        self.rows += len(x)
        if self.rows <= self.after:
            return y
        if self.sort == "wider":
            return np.concatenate([y, y[:, :1]], axis=1)
        return y.ravel() if self.sort == "flat" else y[: len(y) // 2]


def changes_shape(g: np.random.Generator) -> Planted:
    base = _small(g)
    sort = str(g.choice(["wider", "flat", "shorter"]))
    return base.but(ask=Wider(base.truth, int(10.0 ** g.uniform(0.0, 3.6)), sort), noise=0.0)


def one_by_one(g: np.random.Generator) -> Planted:
    """Answer every row on its own, so that batches differ in the last bits."""
    base = _small(g, 5)
    return base.but(ask=lambda x: np.concatenate([base.truth(row[None]) for row in x]), noise=0.0)
