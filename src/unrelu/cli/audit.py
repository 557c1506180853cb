"""``unrelu audit``: whether a model can be cloned, at what price, and what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrelu._files import replace_file
from unrelu.cli._common import (
    BudgetOption,
    InputDimOption,
    JsonOption,
    LedgerOption,
    QuietOption,
    SeedOption,
    TargetArgument,
    console,
    friendly,
    open_target,
    print_json,
    show_progress,
)
from unrelu.cli._target import given_option
from unrelu.errors import InvalidInput
from unrelu.oracles import Oracle
from unrelu.oracles.http import parse_rate
from unrelu.report import audit as run_audit
from unrelu.report import render_page

_WIDTHS = (16, 64, 256, 1024)


def audit(
    target: TargetArgument,
    input_dim: InputDimOption = None,
    out: Annotated[
        Path, typer.Option("--out", help="The report, one HTML file.", envvar="UNRELU_OUT")
    ] = Path("report.html"),
    image: Annotated[
        str | None,
        typer.Option("--image", help="HEIGHT,WIDTH of inputs that are images.",
                     show_default="as the shape says"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would cost; attack nothing.")
    ] = False,
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:  # fmt: skip
    """Attack a model of your own as an outsider would, and write a report.

    Tells whether it can be cloned, with how many queries, at what price, and
    which defence helps. Defences are tried on the clone, not on the target.
    Exit code 0: the audit is complete, whatever its verdict.

    Example: unrelu audit planted:64-32-10 --out report.html
    """
    with friendly(ledger):
        shape = _image_shape(image)
        if not out.absolute().parent.is_dir():
            raise InvalidInput(f"the folder of {out} does not exist")
        oracle = open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        rate_text = given_option("rate")
        rate = None if rate_text is None else parse_rate(rate_text)
        if dry_run or not quiet:
            _tell_price(oracle, rate)
        if dry_run:
            return
        with show_progress(quiet=quiet, oracle=oracle) as progress:
            facts = run_audit(oracle, rng=seed, rate=rate, image_shape=shape, progress=progress)
        replace_file(out, render_page(facts).encode())
    if as_json:
        print_json(facts.to_json())
        return
    colour = "red" if facts.recovered else "green"
    console.print(f"[{colour}]{facts.headline}.[/]", end=" ")
    console.print(facts.verdict, markup=False)
    if not quiet:
        console.print(facts.recommendation, markup=False)
    console.print(f"report: {out}", markup=False)


def _image_shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise InvalidInput(f"--image takes HEIGHT,WIDTH such as 28,28, got {text!r}")
    return int(parts[0]), int(parts[1])


def _tell_price(oracle: Oracle, rate: float | None) -> None:
    """Say what the attack costs, by the width that is not known yet."""
    d, m, price = oracle.input_dim, oracle.output_dim, oracle.meter.price
    console.print("The price depends on the width, which is found out on the way; at most about:")
    for width in _WIDTHS:
        # Two a parameter is what the extraction keeps to; then diagnosis, line, certificate.
        queries = 2 * (width * (d + 1) + m * (width + 1)) + 320 + 161 + 4000
        money = "" if price is None else f"  {queries * price:.2f} in money"
        duration = "" if rate is None else f"  {queries / rate / 60:,.1f} minutes at the rate"
        console.print(f"  width {width:>5}  {queries:>12,} queries{money}{duration}")
    if oracle.meter.budget is not None:
        console.print(f"  and never more than the budget of {oracle.meter.budget:,}")
