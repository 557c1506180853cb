"""Turn an audit into one self-contained HTML page."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np

from unrelu.errors import MissingExtra
from unrelu.report.audit import Audit

__all__ = ["render_page"]


def render_page(audit: Audit) -> str:
    """Return the report: HTML without scripts, links to elsewhere or outside files."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtra("jinja2", "report", "writing the report") from error
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = _number
    environment.filters["duration"] = _duration
    source = resources.files("unrelu.report").joinpath("template.html").read_text("utf-8")
    return environment.from_string(source).render(audit=audit, **_figures(audit))


def _number(value: float) -> str:
    return f"{value:.2g}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _figures(audit: Audit) -> dict[str, Any]:
    from unrelu.report.figures import Series, bar_chart, line_chart, weights_image

    line, leak, trade, spectrum, image = "", "", "", "", ""
    if len(audit.line):
        t, answers, clone = audit.line.T.tolist()
        line = line_chart(
            [Series("answers", t, answers, dots=True), Series("clone", t, clone)],
            x_label="position along a line through input space",
            y_label="log-odds" if audit.diagnosis.kind == "probabilities" else "output",
            description="Answers of the target along a line, and the clone through them",
        )
    if audit.leaks:
        leak = line_chart(
            [Series("clone's error", [p.queries for p in audit.leaks],
                    [max(p.error, 1e-16) for p in audit.leaks])],
            x_label="queries", y_label="relative error", log_y=True,
            description="Error of the clone against queries spent",
        )  # fmt: skip
    if audit.defences:
        trade = bar_chart(
            [d.name for d in audit.defences],
            [d.attack_error or 0.0 for d in audit.defences],
            y_label="clone's relative error",
            description="Error of the attack's clone behind each defence; higher is safer",
        )
    values = audit.singular_values()
    if len(values):
        spectrum = line_chart(
            [Series("singular values", list(range(1, len(values) + 1)), values.tolist(),
                    dots=True)],
            x_label="index", y_label="singular value", log_y=True,
            description="Singular values of the recovered first layer",
        )  # fmt: skip
    network = None if audit.result is None else audit.result.network
    shape = audit.image_shape
    if network is not None and shape is not None and np.prod(shape) == network.input_dim:
        image = weights_image(network.weights[0], shape)
    return {
        "line_figure": line,
        "leak_figure": leak,
        "trade_figure": trade,
        "spectrum_figure": spectrum,
        "image": image,
        "singular_values": values.tolist(),
        "line_rows": audit.line[:: max(1, len(audit.line) // 20)].tolist(),
    }
