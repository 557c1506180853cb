"""Assemble the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from unrelu._version import __version__
from unrelu.cli import ledger, reproduce, targets
from unrelu.cli._common import takes_target
from unrelu.cli._help import add_command, new_group
from unrelu.cli.audit import audit
from unrelu.cli.demo import demo
from unrelu.cli.doctor import doctor
from unrelu.cli.extract import extract
from unrelu.cli.learn import learn
from unrelu.cli.obfuscate import obfuscate
from unrelu.cli.serve import serve
from unrelu.cli.span import span

app = new_group(name="unrelu", pretty_exceptions_enable=False)


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


for command in (
    demo,
    takes_target(doctor),
    takes_target(extract),
    learn,
    takes_target(span),
    takes_target(obfuscate),
    takes_target(audit),
    takes_target(serve),
):
    add_command(app)(command)
app.add_typer(targets.app, name="targets")
app.add_typer(ledger.app, name="ledger")
app.add_typer(reproduce.app, name="reproduce")


def run() -> None:
    """Entry point of the ``unrelu`` command."""
    app(prog_name="unrelu")
