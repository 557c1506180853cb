"""What every command shares: options, targets, progress, errors, output.

Machine output goes to stdout, everything for a person to stderr. Exit codes:
0 recovered, 1 not recovered or only approximated (a budget that ended included),
2 a mistake in the command or its files, 3 the target could not be asked, 130
interrupted.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.table import Table
from rich.text import Text

from unrelu import planted
from unrelu.cli._progress import console, duration, show_progress
from unrelu.cli._target import (
    COST_PANEL,
    OUTPUT_PANEL,
    TARGET_PANEL,
    connect_options,
    takes_target,
    with_flags,
)
from unrelu.errors import BudgetExhausted, InvalidInput, MissingExtra, OracleError, UnreluError
from unrelu.ledger import Ledger
from unrelu.networks import ReLUNetwork
from unrelu.oracles import Oracle, connect
from unrelu.result import RecoveryResult, Status

__all__ = [
    "BudgetOption",
    "InputDimOption",
    "JsonOption",
    "LedgerOption",
    "OutOption",
    "QuietOption",
    "SeedOption",
    "TargetArgument",
    "check_folder",
    "check_out",
    "console",
    "duration",
    "entry",
    "exit_for",
    "friendly",
    "open_target",
    "print_json",
    "say",
    "show_progress",
    "show_result",
    "takes_target",
]

NOT_RECOVERED, USAGE, UNREACHED, INTERRUPTED = 1, 2, 3, 130

TARGET_HELP = (
    "What to look at: a model file (.safetensors, .onnx, .skops, TorchScript .pt), "
    "MODULE:FUNCTION (with --input-dim), the address of a prediction API "
    "(http://HOST/v2/models/NAME, http://HOST/invocations), or a practice target: "
    "planted:20-10-1, planted:20-10-1:SEED, planted:NAME"
)
TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help=TARGET_HELP, show_default=False)
]
InputDimOption = Annotated[
    int | None,
    typer.Option("--input-dim", min=1, help="Number of inputs of a MODULE:FUNCTION.",
                 rich_help_panel=TARGET_PANEL, envvar="UNRELU_INPUT_DIM"),
]  # fmt: skip
SeedOption = Annotated[
    int,
    typer.Option("--seed", min=0, help="The same seed gives the same result.",
                 envvar="UNRELU_SEED"),
]  # fmt: skip
BudgetOption = Annotated[
    int | None,
    typer.Option("--budget", min=0, help="Send at most this many queries; earlier runs of the "
                 "ledger count.", envvar="UNRELU_BUDGET", show_default="no limit",
                 rich_help_panel=COST_PANEL),
]  # fmt: skip
LedgerOption = Annotated[
    Path | None,
    typer.Option("--ledger", help="Keep every answer in this file; run the command again to "
                 "resume. Three points are sent again then, to see that it is the same model.",
                 rich_help_panel=COST_PANEL, envvar="UNRELU_LEDGER", show_default="none"),
]  # fmt: skip
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="Write the result here (.safetensors; .onnx for the network).",
                 rich_help_panel=OUTPUT_PANEL, envvar="UNRELU_OUT", show_default="don't write"),
]  # fmt: skip
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the facts as JSON on stdout.",
        rich_help_panel=OUTPUT_PANEL,
        envvar="UNRELU_JSON",
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Write only the essentials to stderr.",
                       rich_help_panel=OUTPUT_PANEL, envvar="UNRELU_QUIET")
]  # fmt: skip


class _Notes(logging.Handler):
    """Shows what the library has to say beside its results."""

    def emit(self, record: logging.LogRecord) -> None:
        say("note:", record.getMessage(), "yellow")


@contextlib.contextmanager
def friendly(ledger: Path | None = None) -> Iterator[None]:
    """Turn our errors and Ctrl-C into a sentence and an exit code, and notes into sentences."""
    log, notes = logging.getLogger("unrelu"), _Notes()
    log.addHandler(notes)
    try:
        with machine_output_alone():
            yield
    except KeyboardInterrupt:
        if ledger is not None:
            console.print(
                f"\n[yellow]Interrupted.[/] Every answer so far is safe in {ledger}; run the same "
                "command again to go on from there.",
            )
        else:
            console.print(
                "\n[yellow]Interrupted.[/] No ledger was in use, so nothing was kept; add "
                "--ledger FILE to be able to resume.",
            )
        raise typer.Exit(INTERRUPTED) from None
    except OracleError as error:
        _complain(error)
        if ledger is not None:
            console.print(f"What was answered before is safe in {ledger}.", markup=False)
        ended = isinstance(error, BudgetExhausted)
        raise typer.Exit(NOT_RECOVERED if ended else UNREACHED) from None
    except UnreluError as error:
        _complain(error)
        raise typer.Exit(USAGE) from None
    except BrokenPipeError:  # who reads our output has gone; typer knows what to do
        raise
    except OSError as error:  # a file that cannot be read or written
        _complain(error)
        raise typer.Exit(USAGE) from None
    except MemoryError:
        say("error:", "this needs more memory than there is", "red")
        raise typer.Exit(USAGE) from None
    finally:
        log.removeHandler(notes)


_machine: contextvars.ContextVar[TextIO | None] = contextvars.ContextVar("machine", default=None)


@contextlib.contextmanager
def machine_output_alone() -> Iterator[None]:
    """Send what a target prints to stderr: stdout is for facts that a machine reads."""
    if _machine.get() is not None:
        yield
        return
    token = _machine.set(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _machine.reset(token)


def _complain(error: Exception) -> None:
    say("error:", with_flags(str(error)), "red")


def say(head: str, text: str, colour: str) -> None:
    """Print a coloured word and a sentence, wrapped together."""
    console.print(Text.assemble((head, colour), " ", text))


def entry(name: str, text: Any, *, width: int = 14, indent: int = 0) -> None:
    """Print a name and what belongs to it, lines that wrap under the text and not the name."""
    grid = Table.grid()
    grid.add_column(width=indent + width)
    grid.add_column(overflow="fold")
    grid.add_row(Text(" " * indent + name), Text(str(text)))
    console.print(grid)


def open_target(
    target: str,
    *,
    input_dim: int | None = None,
    budget: int | None = None,
    ledger: Path | None = None,
) -> Oracle:
    """Connect to a target named on the command line, as the shared options say."""
    chosen: str | ReLUNetwork = target
    if target.startswith("planted:"):
        chosen = planted_network(target)
    options = connect_options()
    if options.pop("store_points", False):
        if ledger is None:
            raise InvalidInput("--store-points goes with --ledger FILE")
        options["ledger"] = Ledger(ledger, store_points=True)
    given = {"input_dim": input_dim, "budget": budget, "ledger": ledger}
    return connect(chosen, **(given | options))


def planted_network(target: str) -> ReLUNetwork:
    """Return the practice network ``planted:NAME[:SEED]`` or ``planted:20-10-1[:SEED]``."""
    _, name, *rest = target.split(":")
    seed_text = rest[0] if rest else "0"
    if not seed_text.isdecimal() or len(rest) > 1:
        raise InvalidInput(f"{target!r}: expected planted:NAME or planted:NAME:SEED")
    seed = int(seed_text)
    widths = name.split("-")
    if len(widths) >= 2 and all(width.isdecimal() for width in widths):
        return planted.random_network(*map(int, widths), rng=seed)
    makers = {key.replace(" ", "-"): maker for key, maker in planted.HOSTILE.items()}
    if name not in makers:
        raise InvalidInput(
            f"there is no planted network {name!r}; use widths such as 20-10-1, or one of: "
            + ", ".join(makers)
        )
    return makers[name](seed)


def print_json(facts: Any) -> None:
    """Write facts to stdout as JSON."""
    text = facts if isinstance(facts, str) else json.dumps(facts, indent=2, default=str)
    typer.echo(text, file=_machine.get() or sys.stdout)


def check_out(out: Path | None, suffixes: tuple[str, ...] = (".safetensors", ".onnx")) -> None:
    """Refuse a place that cannot be written before anything is spent."""
    if out is None:
        return
    if out.suffix not in suffixes:
        raise InvalidInput(f"--out {out}: the name must end in {' or '.join(suffixes)}")
    if out.suffix == ".onnx" and importlib.util.find_spec("onnx") is None:
        raise MissingExtra("onnx", "onnx", "writing an ONNX file")
    check_folder(out)


def check_folder(out: Path) -> None:
    """Refuse a file whose folder is not there or not writable."""
    folder = out.absolute().parent
    if not folder.is_dir():
        raise InvalidInput(f"--out {out}: the folder does not exist")
    if not os.access(folder, os.W_OK) or out.is_dir():
        raise InvalidInput(f"--out {out}: no file can be written there")


def show_result(
    result: RecoveryResult, *, as_json: bool, quiet: bool, out: Path | None = None
) -> None:
    """Write the result where asked, and tell a person or a machine how it went."""
    if out is not None and out.suffix == ".onnx" and result.network is None:
        say("note:", f"there is no network, so {out} was not written", "yellow")
        out = None
    elif out is not None and out.suffix == ".onnx":
        assert result.network is not None
        result.network.to_onnx(out)
    elif out is not None:
        result.save(out)
    if as_json:
        print_json(result.to_json())
        return
    colour = "green" if result.success else "yellow"
    say(f"{result.status.name}:", result.message, colour)
    if quiet:
        return
    if result.network is not None:
        entry("network", repr(result.network), indent=2)
    if result.queries.total:
        console.print(
            f"  queries       {result.queries.total:,} in {result.queries.round_trips:,} "
            "round trips"
        )
        for stage, count in result.queries.by_stage.items():
            console.print(f"    {stage:<16}{count:>12,}", markup=False)
    if result.queries.samples:
        console.print(f"  samples       {result.queries.samples:,}")
    if result.certificate is not None and str(result.certificate) not in result.message:
        entry("certificate", result.certificate, indent=2)
    if out is not None:
        entry("written to", out, indent=2)


def exit_for(result: RecoveryResult) -> None:
    """Leave with 0 if recovered, 1 if not or only approximated."""
    if result.status is not Status.RECOVERED:
        raise typer.Exit(NOT_RECOVERED)
