"""``unrelu audit``: whether a model can be cloned, at what price, and what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from unrelu._files import replace_file
from unrelu._types import FloatArray
from unrelu.choose import plan_extraction
from unrelu.cli._common import (
    BudgetOption,
    InputDimOption,
    JsonOption,
    LedgerOption,
    QuietOption,
    SeedOption,
    TargetArgument,
    check_folder,
    console,
    friendly,
    open_target,
    print_json,
    say,
    show_progress,
)
from unrelu.cli._plan import priced, tell_plan
from unrelu.cli._target import given_option
from unrelu.errors import InvalidInput
from unrelu.oracles.http import parse_rate
from unrelu.report import audit as run_audit
from unrelu.report import render_page


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
    examples: Annotated[
        Path | None,
        typer.Option("--examples", help="Images (.npy, rows of inputs) to show before and after "
                     "obfuscation.", show_default="handwritten digits"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Look (about 700 queries), say the price, stop.")
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
        check_folder(out)
        oracle = open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        shown = None if examples is None else _read_examples(examples, oracle.input_dim)
        if shape is not None and shape[0] * shape[1] != oracle.input_dim:
            raise InvalidInput(
                f"--image {image}: the target takes {oracle.input_dim} inputs, not "
                f"{shape[0] * shape[1]}"
            )
        rate_text = given_option("rate")
        rate = None if rate_text is None else parse_rate(rate_text)
        with show_progress(quiet=quiet, oracle=oracle) as progress:
            if progress is not None:
                progress.update("looking", 0, None)
            domain: Any = "all" if oracle.box is None else oracle.box
            plan = plan_extraction(oracle, domain=domain, rng=seed)
        if dry_run and as_json:
            print_json(priced(plan, oracle, rate))
        elif dry_run or not quiet:
            tell_plan(plan, oracle, rate)
        if dry_run:
            return
        expected = sum(plan.queries) // 2
        with show_progress(quiet=quiet, oracle=oracle, expected=expected, rate=rate) as progress:
            facts = run_audit(
                oracle, rng=seed, plan=plan, rate=rate, image_shape=shape, examples=shown,
                progress=progress,
            )  # fmt: skip
        replace_file(out, render_page(facts).encode())
    if as_json:
        print_json(facts.to_json())
        return
    colour = "red" if facts.recovered else "yellow" if facts.leaking else "green"
    say(f"{facts.headline}.", facts.verdict, colour)
    if not quiet:
        console.print(facts.recommendation, markup=False)
    console.print(f"report: {out}", markup=False)


def _read_examples(path: Path, inputs: int) -> FloatArray:
    try:
        images = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(f"cannot read images from {path}: {error}") from error
    rows = images.reshape(len(images), -1) if images.ndim else images
    if rows.ndim != 2 or len(rows) == 0 or rows.shape[1] != inputs:
        raise InvalidInput(f"{path} must hold rows of {inputs} inputs, got shape {images.shape}")
    return np.asarray(rows, dtype=np.float64)


def _image_shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise InvalidInput(f"--image takes HEIGHT,WIDTH such as 28,28, got {text!r}")
    return int(parts[0]), int(parts[1])
