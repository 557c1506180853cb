"""What is shown while a command runs: a bar a stage, and what was asked and spent."""

from __future__ import annotations

import contextlib
import textwrap
import time
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from unrelu.oracles import Oracle

__all__ = ["console", "duration", "show_progress"]

console = Console(stderr=True, highlight=False)


class _Live(RichProgress):
    """Bars by stage, and under them what was asked and spent, and what is left."""

    def __init__(self, oracle: Oracle | None, expected: int | None, rate: float | None) -> None:
        self._oracle, self._expected, self._rate = oracle, expected, rate
        self.certified = False
        self._start = time.monotonic()
        self._before = 0 if oracle is None else oracle.queries.total - oracle.meter.sent
        self._first = 0 if oracle is None else oracle.meter.sent
        columns = (
            TextColumn("{task.fields[mark]} {task.description}"), BarColumn(bar_width=16),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )  # fmt: skip
        super().__init__(*columns, console=console, transient=True)

    def get_renderables(self) -> Iterator[RenderableType]:
        """Draw the bars, then the account."""
        yield self.make_tasks_table(self.tasks)
        if self._oracle is not None:
            yield Text(self.account(), no_wrap=True, overflow="ellipsis")

    def account(self) -> str:
        """Say queries, money, time left and the certificate in one line."""
        assert self._oracle is not None
        meter = self._oracle.meter
        total = self._before + meter.sent
        parts = [f"{total:,} queries"]
        if meter.budget is not None:
            parts[0] += f" of {meter.budget:,}"
        if meter.price is not None:
            parts.append(f"{total * meter.price:,.4g} spent")
        now = meter.sent - self._first
        seconds = time.monotonic() - self._start
        asking = meter.stage_name == "certificate"
        # The plan is for the attack: what comes after the certificate asks little or nothing.
        if self._expected is not None and now > 0 and not (asking or self.certified):
            left = max(0, self._expected - now)
            speed = now / max(seconds, 1e-3)
            if self._rate is not None:
                speed = min(speed, self._rate)
            parts.append(f"about {duration(left / speed)} left" if left else "about to end")
        if asking:
            parts.append("certificate: held-out inputs")
        elif not self.certified:
            parts.append("certificate: not yet")
        return " | ".join(parts)


class _Bars:
    """Draws one bar a stage and marks the one that runs.

    Satisfies :class:`unrelu.progress.Progress`.
    """

    def __init__(self, bars: _Live) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._last = 0.0
        self._running = ""

    def update(self, stage: str, done: float, total: float | None = None, note: str = "") -> None:
        if stage != self._running:
            self._goes_on_to(stage, total)
        elif time.monotonic() - self._last < 0.05 and (total is None or done < total):
            return  # drawing must not cost more than the work
        self._last = time.monotonic()
        note = textwrap.shorten(note, _NOTE, placeholder=" ...")
        self._bars.update(self._tasks[stage], completed=done, total=total, note=note)

    def _goes_on_to(self, stage: str, total: float | None) -> None:
        """Mark the stage that runs now; a bar of unknown length that ran before it is full."""
        self._bars.certified |= self._running == "certificate"
        before = self._tasks.get(self._running)
        if before is not None:
            length = self._bars.tasks[before].total or 1.0
            self._bars.update(before, completed=length, total=length, mark=" ")
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total, note="", mark=">")
        self._bars.update(self._tasks[stage], mark=">")
        self._running = stage


_NOTE = 40  # columns that remain beside a bar


@contextlib.contextmanager
def show_progress(
    *,
    quiet: bool,
    oracle: Oracle | None = None,
    expected: int | None = None,
    rate: float | None = None,
) -> Iterator[_Bars | None]:
    """Show bars on stderr while the body runs; nothing when quiet or not a terminal.

    ``expected`` queries and ``rate`` give the time left.
    """
    if quiet or not console.is_terminal:
        yield None
        return
    with _Live(oracle, expected, rate) as bars:
        yield _Bars(bars)


def duration(seconds: float) -> str:
    """Say a duration with its unit."""
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
