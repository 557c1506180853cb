"""One way to turn a caller's ``rng`` into a generator."""

from __future__ import annotations

import numpy as np

from unrelu.errors import InvalidInput

__all__ = ["RandomState", "as_generator"]

RandomState = int | np.random.Generator | np.random.SeedSequence | None


def as_generator(rng: RandomState) -> np.random.Generator:
    """Return a generator from a seed or a generator.

    The same integer seed gives the same stream on every machine. A generator
    is used as it is, so two calls with one generator continue its stream.
    """
    if isinstance(rng, bool):
        raise InvalidInput("rng must be an integer seed or a numpy Generator, not a bool")
    if isinstance(rng, (int, np.integer)) and rng < 0:
        raise InvalidInput(f"rng must be a non-negative seed, got {int(rng)}")
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"rng must be an integer seed or a numpy Generator, got {type(rng).__name__}"
        ) from error
