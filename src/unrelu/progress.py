"""How an algorithm tells a person where it stands, without printing.

Algorithms take ``progress=None`` and call :meth:`Progress.update`; the command
line passes an implementation that draws a bar, a library caller may pass any
object with the same method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

__all__ = ["Callback", "NullProgress", "Progress", "as_progress", "told_too"]

Callback = Callable[[str, float, float | None, str], object]
"""Called with a stage, how much of it is done, of how much (None: unknown), and a phrase."""


@runtime_checkable
class Progress(Protocol):
    """Receives updates; must be cheap, and must not raise."""

    def update(self, stage: str, done: float, total: float | None = None, note: str = "") -> None:
        """Report that ``done`` of ``total`` units of ``stage`` are finished.

        ``total`` is None while it is unknown; ``note`` is a short phrase for a
        person, such as "neuron 57 of at least 128".
        """
        ...


class NullProgress:
    """Ignores every update."""

    def update(self, stage: str, done: float, total: float | None = None, note: str = "") -> None:
        """Do nothing."""


class _ToldToo:
    """Passes every update on to a function as well."""

    def __init__(self, progress: Progress, callback: Callback) -> None:
        self._progress, self._callback = progress, callback

    def update(self, stage: str, done: float, total: float | None = None, note: str = "") -> None:
        """Tell both."""
        self._progress.update(stage, done, total, note)
        self._callback(stage, done, total, note)


def told_too(progress: Progress | None, callback: Callback | None) -> Progress:
    """Return a progress that tells a function, too, where one is given."""
    told = as_progress(progress)
    return told if callback is None else _ToldToo(told, callback)


def as_progress(progress: Progress | None) -> Progress:
    """Return ``progress``, or one that ignores everything."""
    return NullProgress() if progress is None else progress
