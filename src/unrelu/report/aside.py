"""Work in processes of its own that may take only so long; what takes longer is ended.

A child is started anew for each piece of work, not forked: it can be killed at any
time, and it may be a child of a worker that may have no children of other kinds.
"""

from __future__ import annotations

import importlib.util
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
import pickle, sys, time
try:
    import resource
except ImportError:  # no such limits here: the parent looks at the clock
    resource = None

def limit():
    if resource is not None:
        end = int(time.process_time() + seconds + 1)  # the system counts whole seconds
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))

out, sys.stdout = sys.stdout.buffer, sys.stderr
sys.path[:], seconds = pickle.load(sys.stdin.buffer)
function, argument = pickle.load(sys.stdin.buffer)
limit()
for value in function(argument):
    pickle.dump(value, out)
    out.flush()
    limit()
"""
HAS_LIMITS = importlib.util.find_spec("resource") is not None
"""Whether the system itself ends a process after so much computing, however busy it is."""


def run_aside(
    function: Callable[[Any], Iterable[Any]], arguments: Sequence[Any], seconds: float
) -> Iterator[list[Any]]:
    """Run ``function`` on each argument, as many at a time as there are cores.

    Parameters
    ----------
    function
        Found by its module and name; gives values one after the other.
    seconds
        Of computing for each value, after which a child is ended.

    Yields
    ------
    list
        The values that were given in time, for each argument in turn.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        yield from pool.map(lambda argument: _child(function, argument, seconds), arguments)


def _child(function: Callable[[Any], Iterable[Any]], argument: Any, seconds: float) -> list[Any]:
    """Run one piece of work; returns what it gave before its end."""
    work = pickle.dumps((sys.path, seconds)) + pickle.dumps((function, argument))
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        given = subprocess.run(
            [sys.executable, "-c", _CHILD], input=work, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, **one_thread},
            timeout=None if HAS_LIMITS else seconds, check=False,
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
