"""Turn an audit into one self-contained HTML page."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import MissingExtra
from unrelu.report.audit import Audit
from unrelu.report.risk import RULE
from unrelu.report.structure import first_rows

__all__ = ["new_environment", "render_page"]


def render_page(audit: Audit) -> str:
    """Return the report: HTML without scripts, links to elsewhere or outside files."""
    template = new_environment().get_template("template.html")
    page = str(template.render(audit=audit, **_figures(audit)))
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", page)  # a number stays with its unit


def new_environment() -> Any:
    """Return jinja2's environment with this package's templates; every value is escaped."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtra("jinja2", "report", "writing the report") from error
    folder = resources.files("unrelu.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["number"] = _number
    environment.filters["duration"] = _duration
    return environment


def _number(value: float) -> str:
    return f"{value:.2g}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _figures(audit: Audit) -> dict[str, Any]:
    from unrelu.report.figures import pictures_image, weights_image

    shape = audit.image_shape
    rows = first_rows(audit.result)
    values = audit.singular_values()
    image = before = after = ""
    if shape is not None and len(rows) and np.prod(shape) == rows.shape[1]:
        image = weights_image(rows, shape)
    if audit.blind is not None and shape is not None:
        before = pictures_image(audit.blind.before, shape)
        after = pictures_image(audit.blind.after, shape)
    return {
        "before": before,
        "after": after,
        "is_span": audit.findings.rank > 0,
        "line_figure": _line_figure(audit),
        "leak_figure": _leak_figure(audit),
        "copy_figure": _copy_figure(audit),
        "trade_figure": _trade_figure(audit),
        "rule": RULE,
        "has_data": audit.with_data,
        "spectrum_figure": _spectrum_figure(values),
        "image": image,
        "singular_values": values.tolist(),
        "units": _units(rows),
        "line_rows": audit.line[:: max(1, len(audit.line) // 20)].tolist(),
    }


def _line_figure(audit: Audit) -> str:
    """Draw answers and clone along one line, less the straight line between the ends."""
    from unrelu.report.figures import Series, line_chart

    if not len(audit.line):
        return ""
    t, answers, clone = audit.line.T
    # Less the straight line between the ends: what is left is made by the kinks.
    chord = clone[0] + (clone[-1] - clone[0]) * (t - t[0]) / (t[-1] - t[0])
    return line_chart(
        [Series("answers", t[::4].tolist(), (answers - chord)[::4].tolist(), dots=True),
         Series("clone", t.tolist(), (clone - chord).tolist())],
        x_label="position along a line through input space",
        y_label="log-odds" if audit.diagnosis.kind == "probabilities" else "output",
        description="Answers of the target along a line, and the clone through them",
        marks=audit.kinks,
    )  # fmt: skip


def _leak_figure(audit: Audit) -> str:
    """Draw the clone's error against the queries spent."""
    from unrelu.report.figures import Series, line_chart

    if not audit.leaks:
        return ""
    return line_chart(
        [Series("clone's error", [p.queries for p in audit.leaks],
                [max(p.error, 1e-16) for p in audit.leaks])],
        x_label="queries", y_label="relative error", log_y=True,
        description="Error of the clone against queries spent",
    )  # fmt: skip


def _copy_figure(audit: Audit) -> str:
    """Draw the agreement of an ordinary copy against the answers that it was trained on."""
    from unrelu.report.figures import Series, line_chart

    if not audit.copies:
        return ""
    queries = [point.queries for point in audit.copies]
    return line_chart(
        [Series("ordinary copy", queries, [100.0 * point.agreement for point in audit.copies])],
        x_label="answers it was trained on", y_label="agreement, %",
        description="Agreement of an ordinary copy against the answers it was trained on",
    )  # fmt: skip


def _trade_figure(audit: Audit) -> str:
    """Draw what each defence does to the attack, and to an honest user."""
    from unrelu.report.figures import bar_chart

    if not audit.defences:
        return ""
    return bar_chart(
        [f"{i}. {d.name}" for i, d in enumerate(audit.defences, 1)],
        [d.attack_error if d.finished else None for d in audit.defences],
        x_label="over the answers' spread",
        description="Error of the attack's clone behind each defence, and how much the "
        "defence changes an honest user's answers",
        dots=[d.answer_change for d in audit.defences],
        key=("clone's error", "change for an honest user"),
    )


def _spectrum_figure(values: FloatArray) -> str:
    """Draw singular values: the directions of input space that the model looks at."""
    from unrelu.report.figures import Series, line_chart

    if not len(values):
        return ""
    return line_chart(
        [Series("singular values", list(range(1, len(values) + 1)), values.tolist(),
                dots=True)],
        x_label="index", y_label="singular value", log_y=True,
        description="Singular values: the directions of input space that the model looks at",
    )  # fmt: skip


def _units(rows: FloatArray) -> list[tuple[float, int]]:
    """Return the length and the number of inputs of the units shown, the largest first."""
    size = np.abs(rows)
    lengths = np.linalg.norm(rows, axis=1)
    counts = (size > 1e-6 * size.max(axis=1, keepdims=True, initial=0.0)).sum(axis=1)
    order = np.argsort(-lengths)[:64]
    return [(float(lengths[i]), int(counts[i])) for i in order]
