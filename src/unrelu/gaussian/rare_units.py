"""Units read off the few samples that only they explain."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.gaussian.config import FEW

__all__ = ["find_rare_units"]


def find_rare_units(
    x: FloatArray,
    left: FloatArray,
    rng: np.random.Generator,
    *,
    tolerance: float,
) -> tuple[FloatArray, FloatArray]:
    """Units behind the few samples that the other units do not explain.

    Beyond its kink a unit adds ``a (w.x + b)``, a linear function: d + 1 of its
    samples give it, and two more confirm it exactly. Subsets are drawn among
    near neighbours, which tend to lie beyond the same kink.

    Parameters
    ----------
    x, left
        Unexplained points ``(k, d)`` and what is left of their labels.
    tolerance
        Absolute deviation of a sample that counts as explained.

    Returns
    -------
    ``a (w, b)`` of each unit found, ``(q, d + 1)``, oriented so that w.x + b > 0
    beyond the kink, and the sign of a, ``(q,)``.
    """
    d = x.shape[1]
    extended = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    remaining = np.arange(len(x))
    rows: list[FloatArray] = []
    signs: list[float] = []
    need = d + 3
    while len(remaining) >= need:
        picks = _neighbour_subsets(unit[remaining], left[remaining], d + 1, FEW, rng)
        if len(picks) == 0:
            break
        matrices = extended[remaining][picks]
        targets = left[remaining][picks]
        with np.errstate(all="ignore"):
            try:
                candidates = np.linalg.solve(matrices, targets[..., None])[..., 0]
            except np.linalg.LinAlgError:
                candidates = np.stack(
                    [
                        np.linalg.lstsq(a, b, rcond=None)[0]
                        for a, b in zip(matrices, targets, strict=True)
                    ]
                )
        errors = np.abs(candidates @ extended[remaining].T - left[remaining])
        votes = np.count_nonzero(errors <= tolerance, axis=1)
        winner = int(np.argmax(votes))
        if votes[winner] < need:
            break
        inside = errors[winner] <= tolerance
        members = remaining[inside]
        fitted = np.linalg.lstsq(extended[members], left[members], rcond=None)[0]
        positive = float(np.mean(left[members]) > 0)
        sign = 1.0 if positive else -1.0
        rows.append(np.asarray(fitted) * sign)
        signs.append(sign)
        remaining = remaining[~inside]
    if not rows:
        return np.empty((0, d + 1)), np.empty(0)
    return np.stack(rows), np.asarray(signs)


def _neighbour_subsets(
    unit: FloatArray, left: FloatArray, size: int, tries: int, rng: np.random.Generator
) -> np.ndarray[tuple[int, int], np.dtype[np.intp]]:
    """Random subsets of same-signed near neighbours, ``(tries, size)``."""
    subsets = []
    cosine = unit @ unit.T
    cosine[np.sign(left)[:, None] != np.sign(left)[None, :]] = -2.0
    order = np.argsort(-cosine, axis=1)
    usable = np.count_nonzero(cosine > -2.0, axis=1)
    for _ in range(tries):
        seed = int(rng.integers(len(unit)))
        if usable[seed] < size:
            continue
        pool = order[seed, : min(usable[seed], 2 * size)]
        subsets.append(rng.choice(pool, size, replace=False))
    return np.asarray(subsets, dtype=np.intp).reshape(-1, size)
