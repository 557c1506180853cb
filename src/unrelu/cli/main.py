"""Assemble the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from unrelu._version import __version__
from unrelu.cli import ledger, reproduce, targets
from unrelu.cli._common import takes_target
from unrelu.cli.audit import audit
from unrelu.cli.demo import demo
from unrelu.cli.doctor import doctor
from unrelu.cli.extract import extract
from unrelu.cli.learn import learn
from unrelu.cli.obfuscate import obfuscate
from unrelu.cli.serve import serve
from unrelu.cli.span import span

app = typer.Typer(
    name="unrelu",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unrelu {__version__}")
        raise typer.Exit


@app.callback()
def unrelu(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Recover a ReLU network from the outside: from queries or from samples.

    Start with `unrelu demo`, then point `unrelu doctor` at a target of your
    own. Only test models that you may test.
    """


app.command()(demo)
app.command()(takes_target(doctor))
app.command()(takes_target(extract))
app.command()(learn)
app.command()(takes_target(span))
app.command()(takes_target(obfuscate))
app.command()(takes_target(audit))
app.command()(takes_target(serve))
app.add_typer(targets.app, name="targets")
app.add_typer(ledger.app, name="ledger")
app.add_typer(reproduce.app, name="reproduce")


def run() -> None:
    """Entry point of the ``unrelu`` command."""
    app()
