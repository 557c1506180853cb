"""Numerical breakdown as a status, not as a traceback.

A singular matrix, an overflow, an empty set of points: where a method's
arithmetic ends, its caller still gets a result, with what was found until then.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from unrelu.errors import UnreluError

__all__ = ["Breakdown", "as_breakdown"]

_NUMERICAL = (np.linalg.LinAlgError, ArithmeticError, ValueError, IndexError, Warning)


class Breakdown(Exception):
    """A method's arithmetic broke down; the message says where, for a person."""


@contextmanager
def as_breakdown() -> Iterator[None]:
    """Raise numerical errors from inside as :class:`Breakdown`; others pass unchanged."""
    try:
        yield
    except UnreluError:
        raise
    except _NUMERICAL as error:
        where = traceback.extract_tb(error.__traceback__)[-1].name
        ours = [
            frame.name
            for frame in traceback.extract_tb(error.__traceback__)
            if "unrelu" in frame.filename
        ]
        where = ours[-1] if ours else where
        raise Breakdown(
            f"the arithmetic broke down in {where} ({type(error).__name__}: {error}): the "
            "answers do not fit what the method assumes, or their scale is out of reach; what "
            "was found until then is returned. Try another seed, or scale inputs and outputs to "
            "about one"
        ) from error
