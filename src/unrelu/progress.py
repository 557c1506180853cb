"""How an algorithm tells a person where it stands, without printing.

Algorithms take ``progress=None`` and call :meth:`Progress.update`; the command
line passes an implementation that draws a bar, a library caller may pass any
object with the same method.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["NullProgress", "Progress", "as_progress"]


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


def as_progress(progress: Progress | None) -> Progress:
    """Return ``progress``, or one that ignores everything."""
    return NullProgress() if progress is None else progress
