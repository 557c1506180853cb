"""``unrelu ledger``: look into the file that keeps the answers."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from unrelu._files import write_tensors
from unrelu.cli._common import JsonOption, console, friendly, print_json
from unrelu.cli._help import add_command, new_group
from unrelu.errors import InvalidInput
from unrelu.ledger import Ledger

app = new_group(help="Show, verify, export or prune a ledger of answers.")
PathArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The ledger file.", show_default=False)
]
OracleOption = Annotated[
    str | None,
    typer.Option("--oracle", help="Only this oracle's section.", show_default="all of them"),
]


@add_command(app)
def show(path: PathArgument, as_json: JsonOption = False) -> None:
    """Tell what the ledger holds, and how large it is."""
    with friendly(), Ledger(path, read_only=True) as book:
        entries, size = book.entries(), book.size()
    if as_json:
        print_json({"bytes": size, "oracles": [dataclasses.asdict(entry) for entry in entries]})
        return
    rows = sum(entry.answers for entry in entries)
    each = f", about {size / rows:,.0f} bytes an answer" if rows else ""
    console.print(f"{path}: {size:,} bytes, {rows:,} answers{each}", markup=False)
    for entry in entries:
        since = datetime.fromtimestamp(entry.created, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
        console.print(f"\n{entry.identity}", markup=False)
        console.print(f"  since         {since}")
        console.print(f"  inputs        {entry.input_dim}")
        console.print(f"  outputs       {entry.output_dim or 'not known yet'}")
        console.print(f"  answers       {entry.answers:,} ({entry.points:,} with their points)")
        console.print(f"  queries sent  {entry.queries:,} in {entry.round_trips:,} round trips")
        for stage, count in entry.by_stage.items():
            console.print(f"    {stage:<16}{count:>12,}", markup=False)


@add_command(app)
def verify(path: PathArgument, as_json: JsonOption = False) -> None:
    """Check the file's structure and every answer's checksum."""
    with friendly(), Ledger(path, read_only=True) as book:
        problems = book.verify()
    if as_json:
        print_json({"sound": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            console.print(f"[red]damaged:[/] {problem}")
    else:
        console.print(f"{path} is sound", markup=False)
    if problems:
        raise typer.Exit(1)


@add_command(app)
def export(
    path: PathArgument,
    out: Annotated[
        Path, typer.Option("--out", help="A .npz or .safetensors file.", show_default=False)
    ],
    oracle: OracleOption = None,
) -> None:
    """Write stored points and answers as arrays x and y.

    Points are kept by runs with --store-points (in Python: Ledger(path,
    store_points=True)); answers alone are enough to resume.
    """
    with friendly():
        if out.suffix not in {".npz", ".safetensors"}:
            raise InvalidInput(f"--out must end in .npz or .safetensors, got {out}")
        with Ledger(path, read_only=True) as book:
            parts = list(book.export(oracle))
        if not parts:
            raise InvalidInput(
                f"{path} holds no points for that; run the command that asks with --store-points "
                "and a new ledger"
            )
        if len(parts) > 1:
            names = ", ".join(identity for identity, _, _ in parts)
            raise InvalidInput(f"{path} holds several oracles; choose with --oracle: {names}")
        _, x, y = parts[0]
        if out.suffix == ".npz":
            np.savez(out, x=x, y=y)
        else:
            write_tensors(out, {"x": x, "y": y}, {"format": "unrelu.samples/1"})
    console.print(f"{len(x):,} points written to {out}", markup=False)


@add_command(app)
def prune(
    path: PathArgument,
    oracle: OracleOption = None,
    points_only: Annotated[
        bool, typer.Option("--points-only", help="Drop stored points, keep answers.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Delete answers (or only points) and give the space back."""
    with friendly():
        if not path.exists():
            raise InvalidInput(f"there is no ledger {path}")
        what = "stored points" if points_only else "answers and counts"
        whose = "every oracle" if oracle is None else oracle
        if not yes and not typer.confirm(f"Delete the {what} of {whose} in {path}?", err=True):
            console.print("Nothing was deleted.")
            return
        with Ledger(path) as book:
            freed = book.prune(oracle, points_only=points_only)
    console.print(f"{freed:,} bytes freed")
