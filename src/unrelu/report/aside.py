"""Work in processes of its own that may take only so long; what takes longer is ended.

A child is started anew, not forked: it can be killed at any time, and it may be a child of a
worker that may have no children of other kinds. It loads the library once and takes one piece
of work after the other; only one that was ended is replaced.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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

def give(*word):
    pickle.dump(word, out)
    out.flush()

out, sys.stdout = sys.stdout.buffer, sys.stderr
sys.path[:], seconds = pickle.load(sys.stdin.buffer)
while True:
    try:
        function, argument = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    limit()
    for value in function(argument):
        give(value)
        limit()
    give()
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
    idle: queue.SimpleQueue[_Child] = queue.SimpleQueue()
    with contextlib.ExitStack() as cleanup:
        for _ in range(min(os.cpu_count() or 1, len(arguments))):
            child = _Child(seconds)
            cleanup.callback(child.stop)
            idle.put(child)

        def one(argument: Any) -> list[Any]:
            child = idle.get()
            try:
                return child.run(function, argument)
            finally:
                idle.put(child)

        with ThreadPoolExecutor(idle.qsize() or 1) as pool:
            yield from pool.map(one, arguments)


class _Child:
    """A process that works until one piece of work takes too long; then another one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, function: Callable[[Any], Iterable[Any]], argument: Any) -> list[Any]:
        """Do one piece of work; returns what it gave before its end."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        values: list[Any] = []
        try:
            process.stdin.write(pickle.dumps((function, argument)))
            process.stdin.flush()
            while word := self._next(process):
                values += word
        except (EOFError, OSError, pickle.UnpicklingError):  # ended, in the middle of a word even
            self.stop()
        return values

    def _next(self, process: subprocess.Popen[bytes]) -> tuple[Any, ...]:
        """Wait for the next value; empty where there are no more."""
        assert process.stdout is not None
        clock = threading.Timer(self._seconds, process.kill)
        if not HAS_LIMITS:
            clock.start()
        try:
            word: tuple[Any, ...] = pickle.load(process.stdout)
        finally:
            clock.cancel()
        return word

    def _start(self) -> subprocess.Popen[bytes]:
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        self._process = process = subprocess.Popen(
            [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=os.environ | dict.fromkeys(names, "1"),
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(pickle.dumps((sys.path, self._seconds)))
        return process

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
