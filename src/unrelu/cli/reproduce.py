"""``unrelu reproduce``: a paper's figures, drawn by the benchmarks of a checkout.

The experiments are no part of the library, so they are not installed with it; from a checkout
the command runs them, and elsewhere it says where they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import typer

import unrelu
from unrelu.cli._common import friendly
from unrelu.cli._help import new_group
from unrelu.errors import InvalidInput

__all__ = ["app"]

FIGURES = "benchmarks.span_figures"
CHECKOUT = Path(unrelu.__file__).parents[2]

app = new_group(help="Repeat a paper's experiments (from a checkout).")


@app.callback()
def reproduce() -> None:
    """Repeat a paper's experiments and write its figures; needs a checkout of the sources."""


@app.command(
    "span",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def span(context: typer.Context) -> None:
    """Draw the figures of Jayaram, Woodruff & Zhang: python -m benchmarks.span_figures."""
    with friendly():
        if not (CHECKOUT / f"{FIGURES.replace('.', '/')}.py").exists():
            raise InvalidInput(
                "the papers' figures are drawn by the benchmarks, which are not installed: in a "
                f"checkout of the sources run python -m {FIGURES} {' '.join(context.args)}"
            )
        path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", FIGURES, *context.args]
        code = subprocess.call(command, env=os.environ | {"PYTHONPATH": path})
    raise typer.Exit(code)
