"""Work in processes of its own that may take only so long; what takes longer is ended.

A child is started anew for each piece of work, not forked: it can be killed at any
time, and it may be a child of a worker that may have no children of other kinds.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

__all__ = ["run_aside"]

_CHILD = """
import pickle, sys
out, sys.stdout = sys.stdout.buffer, sys.stderr
sys.path[:] = pickle.load(sys.stdin.buffer)
function, argument = pickle.load(sys.stdin.buffer)
for value in function(argument):
    pickle.dump(value, out)
    out.flush()
"""


def run_aside(
    function: Callable[[Any], Iterable[Any]], arguments: Sequence[Any], seconds: float
) -> Iterator[list[Any]]:
    """Run ``function`` on each argument, as many at a time as there are cores.

    Parameters
    ----------
    function
        Found by its module and name; gives values one after the other.
    seconds
        After which a child is ended, its start included.

    Yields
    ------
    list
        The values that were given in time, for each argument in turn.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        yield from pool.map(lambda argument: _child(function, argument, seconds), arguments)


def _child(function: Callable[[Any], Iterable[Any]], argument: Any, seconds: float) -> list[Any]:
    """Run one piece of work; returns what it gave before its end."""
    work = pickle.dumps(sys.path) + pickle.dumps((function, argument))
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        given = subprocess.run(
            [sys.executable, "-c", _CHILD], input=work, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, **one_thread}, timeout=seconds,
            check=False,
        ).stdout  # fmt: skip
    except subprocess.TimeoutExpired as late:
        given = late.stdout or b""
    values = []
    stream = BytesIO(given)
    while stream.tell() < len(given):
        try:
            values.append(pickle.load(stream))
        except (EOFError, pickle.UnpicklingError):  # ended in the middle of a word
            break
    return values
