"""How a result looks: as text, in a notebook, as a figure."""

from __future__ import annotations

import html
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from unrelu.errors import MissingExtra

if TYPE_CHECKING:
    from unrelu.result import RecoveryResult

__all__ = ["as_html", "as_text", "plotted"]

SCREEN = (80, 24)
"""Of the smallest screen that people use: a terminal as it opens."""


def facts_of(result: RecoveryResult) -> list[tuple[str, str]]:
    """Return names and values that a person wants first, three digits each."""
    facts: list[tuple[str, str]] = []
    if result.network is not None:
        network = result.network
        facts.append(("network", f"{network.architecture}, {network.parameters:,} parameters"))
    if result.certificate is not None:
        facts.append(("largest deviation", f"{result.certificate.relative_deviation:.3g} of the "
                      f"spread, {result.certificate.samples:,} held-out inputs"))  # fmt: skip
    for name, value in result._own_fields().items():
        text = _told(value)
        if text:
            facts.append((name.replace("_", " "), text))
    if result.queries.samples:
        facts.append(("samples", f"{result.queries.samples:,}"))
    if result.queries.total or not result.queries.samples:
        facts.append(("queries", f"{result.queries.total:,} in "
                      f"{result.queries.round_trips:,} round trips"))  # fmt: skip
    return facts


def _told(value: Any) -> str:
    """Return a value in three digits, or nothing where it says nothing."""
    if value is None:
        return ""
    if isinstance(value, np.ndarray):
        return f"array {value.shape}" if value.size else ""
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def as_text(result: RecoveryResult) -> str:
    """Return a result as text that fits a screen: status, facts, queries by stage."""
    facts = facts_of(result)
    wide = max((len(name) for name, _ in facts), default=0)
    message = textwrap.wrap(
        result.message, SCREEN[0], initial_indent="  ", subsequent_indent="  ",
        break_on_hyphens=False,
    )  # fmt: skip
    lines = [f"{type(result).__name__}: {result.status.name}", *message]
    lines += [f"  {name:<{wide}}  {text}" for name, text in facts]
    room = max(1, SCREEN[1] - 1 - len(lines))  # the prompt takes a line
    lines += [f"    {stage:<16}{count:>12,}" for stage, count in _largest(result, room)]
    return "\n".join(lines)


def _largest(result: RecoveryResult, room: int) -> list[tuple[str, int]]:
    """Return stages and their queries in order, the small ones as one where there is no room."""
    stages = dict(result.queries.by_stage)
    if len(stages) <= room:
        return list(stages.items())
    kept = sorted(stages, key=lambda name: -stages[name])[: room - 1]
    rest = sum(count for name, count in stages.items() if name not in kept)
    shown = [(name, count) for name, count in stages.items() if name in kept]
    return [*shown, (f"{len(stages) - len(kept)} others", rest)]


def as_html(result: RecoveryResult) -> str:
    """Return a result as a small table, for notebooks."""
    rows = facts_of(result) + [
        (f"&emsp;{html.escape(stage)}", f"{count:,}")
        for stage, count in result.queries.by_stage.items()
    ]
    cells = "".join(
        f"<tr><th style='text-align:left'>{name if name.startswith('&') else html.escape(name)}"
        f"</th><td style='text-align:left'>{html.escape(text)}</td></tr>"
        for name, text in rows
    )
    return (
        f"<b>{type(result).__name__}: {result.status.name}</b>"
        f"<p>{html.escape(result.message)}</p><table>{cells}</table>"
    )


def plotted(result: RecoveryResult) -> Any:
    """Return a figure: first-layer units, queries by stage, and the certificate."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "report", "drawing a result") from error
    figure = Figure(figsize=(11.0, 3.4), layout="constrained")
    units, queries, certificate = figure.subplots(1, 3)
    figure.suptitle(f"{type(result).__name__}: {result.status.name}")
    _draw_units(units, result)
    stages = result.queries.by_stage
    queries.barh(list(stages), list(stages.values()))
    queries.invert_yaxis()
    queries.set(title="queries by stage", xlabel="queries")
    _draw_certificate(certificate, result)
    return figure


def _draw_units(axes: Any, result: RecoveryResult) -> None:
    """Show the first layer's weights, a row a unit."""
    rows = result.network.weights[0] if result.network is not None else result.findings().basis
    axes.set(title="first layer" if result.network is not None else "span", xlabel="input")
    if rows is None or not np.size(rows):
        axes.text(0.5, 0.5, "nothing found", ha="center", transform=axes.transAxes)
        return
    largest = float(np.abs(rows).max()) or 1.0
    axes.imshow(rows, aspect="auto", cmap="RdBu", vmin=-largest, vmax=largest)
    axes.set_ylabel("unit")


def _draw_certificate(axes: Any, result: RecoveryResult) -> None:
    """Show the largest deviation beside what was allowed."""
    axes.set(title="certificate", ylabel="over the answers' spread")
    found = result.certificate
    if found is None:
        axes.text(0.5, 0.5, "none", ha="center", transform=axes.transAxes)
        return
    scale = found.scale or 1.0
    values = {"largest\ndeviation": found.max_deviation / scale,
              "allowed": found.tolerance / scale}  # fmt: skip
    axes.bar(list(values), [max(value, np.finfo(float).tiny) for value in values.values()])
    axes.set_yscale("log")
