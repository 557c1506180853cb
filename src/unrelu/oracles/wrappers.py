"""Wrappers that compose around any oracle.

Each simulates what stands between a model and its caller (rounding, casts,
noise, labels, a softmax), or views its answers in another form (log-odds), or
bounds the size of a batch.
"""

from __future__ import annotations

import hashlib

import numpy as np
import scipy.special

from unrelu._numbers import real_number, whole_number
from unrelu._types import BoolArray, FloatArray
from unrelu.errors import InvalidInput, OracleError
from unrelu.oracles.base import Oracle, Wrapper

__all__ = [
    "Batched",
    "Cast",
    "Labels",
    "LogOdds",
    "Noisy",
    "NotProbabilities",
    "Rounded",
    "Softmax",
]


class Batched(Wrapper):
    """Sends at most ``size`` rows at a time."""

    def __init__(self, inner: Oracle, size: int) -> None:
        super().__init__(inner)
        self.size = whole_number(size, "batch size", least=1)

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        if len(points) <= self.size:
            return self.inner._answer(points, repeat)
        parts: list[FloatArray] = []
        for start in range(0, len(points), self.size):
            try:
                parts.append(self.inner._answer(points[start : start + self.size], repeat))
            except OracleError as error:
                tail = [] if error.answers is None else [error.answers]
                if parts or tail:
                    error.answers = np.concatenate([*parts, *tail])
                raise
        return np.concatenate(parts)


class Rounded(Wrapper):
    """Rounds answers to ``decimals`` decimal places, half to even."""

    def __init__(self, inner: Oracle, decimals: int) -> None:
        super().__init__(inner)
        if isinstance(decimals, bool) or not isinstance(decimals, (int, np.integer)):
            raise InvalidInput(f"decimals must be a whole number, got {decimals!r}")
        self.decimals = int(decimals)

    def _identity_suffix(self) -> str:
        return f"|round:{self.decimals}"

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        return np.round(self.inner._answer(points, repeat), self.decimals)


def to_bfloat16(values: FloatArray) -> FloatArray:
    """Round to the nearest bfloat16 (8 bits of precision), ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(
        0xFFFF0000
    )
    return rounded.view(np.float32).astype(np.float64)


class Cast(Wrapper):
    """Rounds answers to a narrower float type: ``float32`` or ``bfloat16``."""

    def __init__(self, inner: Oracle, dtype: str) -> None:
        if dtype not in {"float32", "bfloat16"}:
            raise InvalidInput(f"dtype must be 'float32' or 'bfloat16', got {dtype!r}")
        super().__init__(inner)
        self.dtype = dtype

    def _identity_suffix(self) -> str:
        return f"|cast:{self.dtype}"

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        answers = self.inner._answer(points, repeat)
        if self.dtype == "bfloat16":
            return to_bfloat16(answers)
        return np.asarray(answers.astype(np.float32), dtype=np.float64)


class Noisy(Wrapper):
    """Adds Gaussian noise of standard deviation ``sigma`` to every answer.

    The noise is a function of the seed, the point's bytes and the repeat
    index, so a resumed run sees the same noise however it batches, and a
    repeated point sees fresh noise.
    """

    def __init__(self, inner: Oracle, sigma: float, seed: int = 0) -> None:
        super().__init__(inner)
        self.sigma = real_number(sigma, "sigma", least=0.0)
        self.seed = whole_number(seed, "seed")

    def _identity_suffix(self) -> str:
        return f"|noise:{self.sigma!r}:{self.seed}"

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        answers = self.inner._answer(points, repeat)
        words = 2 * ((self.output_dim + 1) // 2)
        salt = f"{self.seed}:{repeat}".encode()
        raw = bytearray()
        for row in points:
            seed = hashlib.blake2b(row.tobytes(), digest_size=64, key=salt[:64]).digest()
            block = seed
            counter = 0
            while len(block) < 8 * words:
                counter += 1
                block += hashlib.blake2b(seed + counter.to_bytes(4, "little")).digest()
            raw += block[: 8 * words]
        bits = np.frombuffer(bytes(raw), dtype="<u8").reshape(len(points), words)
        # 53 random bits, moved off zero, so that the logarithm below is finite.
        uniform: FloatArray = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        radius = np.sqrt(-2.0 * np.log(uniform[:, 0::2]))
        angle = 2.0 * np.pi * uniform[:, 1::2]
        normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return np.asarray(answers + self.sigma * normal[:, : self.output_dim])


class Labels(Wrapper):
    """Shows labels only: a threshold on one output, or the index of the largest.

    With ``threshold`` the answer is 1.0 where output ``output`` exceeds it and
    0.0 elsewhere; without, the argmax over all outputs. Always one column.
    """

    def __init__(self, inner: Oracle, *, threshold: float | None = None, output: int = 0) -> None:
        super().__init__(inner)
        if threshold is None and inner.output_dim < 2:
            raise InvalidInput("argmax labels need at least two outputs; give a threshold instead")
        output = whole_number(output, "output")
        if not output < inner.output_dim:
            raise InvalidInput(f"output must be in 0..{inner.output_dim - 1}, got {output}")
        self.threshold = None if threshold is None else real_number(threshold, "threshold")
        self.output = output
        self.output_dim = 1

    def _identity_suffix(self) -> str:
        return "|argmax" if self.threshold is None else f"|above:{self.output}:{self.threshold!r}"

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        answers = self.inner._answer(points, repeat)
        if self.threshold is None:
            labels = answers.argmax(axis=1)
        else:
            labels = (answers[:, self.output] > self.threshold).astype(np.intp)
        return np.asarray(labels, dtype=np.float64)[:, None]


class Softmax(Wrapper):
    """Shows probabilities: softmax of the logits, or sigmoid of a single one."""

    def _identity_suffix(self) -> str:
        return "|softmax"

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        logits = self.inner._answer(points, repeat)
        if self.output_dim == 1:
            return np.asarray(scipy.special.expit(logits), dtype=np.float64)
        return np.asarray(scipy.special.softmax(logits, axis=1), dtype=np.float64)


class NotProbabilities(OracleError):
    """An answer outside [0, 1] of a target that was taken for one that gives probabilities."""


class LogOdds(Wrapper):
    """Views probabilities as log-odds.

    One column ``p`` becomes ``log(p / (1 - p))``. Several become
    ``log(p_i) - log(p_reference)``, with the column of the reference left out,
    so m probabilities give m - 1 log-odds: logits up to a function common to
    all of them. Where a probability has underflowed (to 0 or 1, or to a subnormal
    number, which has lost digits) the log-odds are NaN; callers move such points
    (:meth:`saturated` tells which).
    """

    def __init__(self, inner: Oracle, *, reference: int = 0) -> None:
        super().__init__(inner)
        reference = whole_number(reference, "reference")
        if not reference < inner.output_dim:
            raise InvalidInput(f"reference must be in 0..{inner.output_dim - 1}, got {reference}")
        self.reference = reference
        self.output_dim = max(1, inner.output_dim - 1)

    def _identity_suffix(self) -> str:
        return f"|logodds:{self.reference}"

    @staticmethod
    def saturated(log_odds: FloatArray) -> BoolArray:
        """Return which rows hold a probability that underflowed."""
        return np.asarray(np.isnan(log_odds).any(axis=1))

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        p = self.inner._answer(points, repeat)
        if ((p < 0) | (p > 1)).any():
            raise NotProbabilities(
                "the target's answers are not probabilities (some lie outside [0, 1]); "
                "don't ask for log-odds of this target"
            )
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            single = (p == p.astype(np.float32)).all(axis=1, keepdims=True)
            least = np.where(single, np.finfo(np.float32).tiny, np.finfo(np.float64).tiny)
            p = np.where(p < least, 0.0, p)
            if p.shape[1] == 1:
                out = np.log(p) - np.log1p(-p)
            else:
                logs = np.log(p)
                rest = np.delete(logs, self.reference, axis=1)
                out = rest - logs[:, [self.reference]]
        out[~np.isfinite(out)] = np.nan
        return np.asarray(out)
