"""``unrelu audit``: whether a model can be cloned, at what price, and what helps."""

from __future__ import annotations

import enum
import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from unrelu._files import replace_file
from unrelu._types import FloatArray
from unrelu.choose import ExtractionPlan, plan_extraction
from unrelu.cli._common import (
    NOT_RECOVERED,
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
from unrelu.cli._target import OUTPUT_PANEL, TARGET_PANEL, given_rate
from unrelu.errors import InvalidInput, MissingExtra
from unrelu.oracles import Oracle
from unrelu.report import audit as run_audit
from unrelu.report import render_page
from unrelu.report.audit import Audit
from unrelu.report.compare import changes, read_audit
from unrelu.report.risk import CLOSE
from unrelu.result import Status


class FailIf(enum.Enum):
    """What an audit that guards a release fails on."""

    CLONED = "cloned"
    APPROXIMATED = "approximated"


ReportOption = Annotated[
    Path, typer.Option("--out", help="The report, one HTML file.", envvar="UNRELU_OUT",
                       rich_help_panel=OUTPUT_PANEL)
]  # fmt: skip
ImageOption = Annotated[
    str | None,
    typer.Option("--image", help="HEIGHT,WIDTH of inputs that are images.",
                 show_default="as the shape says", rich_help_panel=TARGET_PANEL),
]  # fmt: skip
ExamplesOption = Annotated[
    Path | None,
    typer.Option("--examples", help="Images (.npy, rows of inputs) to show before and after "
                 "obfuscation.", show_default="handwritten digits",
                 rich_help_panel=OUTPUT_PANEL),
]  # fmt: skip
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Look (about 700 queries), say the price, stop."),
]
FailIfOption = Annotated[
    FailIf | None,
    typer.Option("--fail-if", help="Exit with 1 if the model was cloned (or: at least copied "
                 "closely), for a gate before a release.", show_default="never"),
]  # fmt: skip
CompareOption = Annotated[
    Path | None,
    typer.Option("--compare", help="An earlier audit (from --json): tell what changed.",
                 rich_help_panel=OUTPUT_PANEL),
]  # fmt: skip


def audit(
    target: TargetArgument,
    input_dim: InputDimOption = None,
    out: ReportOption = Path("report.html"),
    image: ImageOption = None,
    examples: ExamplesOption = None,
    fail_if: FailIfOption = None,
    compare: CompareOption = None,
    dry_run: DryRunOption = False,
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Attack a model of your own as an outsider would, and write a report.

    Tells whether it can be copied, with how many queries, at what price, and
    which defence helps. Defences are tried on the clone, not on the target.
    Exit code 0: the audit is complete, whatever its verdict, unless --fail-if
    says otherwise (then 1).

    Example: unrelu audit planted:64-32-10 --out report.html
    """
    with friendly(ledger):
        shape = _image_shape(image)
        check_folder(out)
        _check_extras()
        earlier = None if compare is None else read_audit(compare)
        oracle = open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        shown = None if examples is None else _read_examples(examples, oracle.input_dim)
        if shape is not None and shape[0] * shape[1] != oracle.input_dim:
            raise InvalidInput(
                f"--image {image}: the target takes {oracle.input_dim} inputs, not "
                f"{shape[0] * shape[1]}"
            )
        plan, rate = _planned(oracle, seed, dry_run=dry_run, as_json=as_json, quiet=quiet)
        if dry_run:
            return
        expected = sum(plan.queries) // 2
        with show_progress(quiet=quiet, oracle=oracle, expected=expected, rate=rate) as progress:
            facts = run_audit(
                oracle, rng=seed, plan=plan, rate=rate, image_shape=shape, examples=shown,
                progress=progress, command=_command(), name=target,
            )  # fmt: skip
        replace_file(out, render_page(facts).encode())
        if as_json:
            print_json(facts.to_json())
    if not as_json:
        _tell(facts, out, quiet=quiet)
    if earlier is not None:
        for sentence in changes(earlier, json.loads(facts.to_json())):
            console.print(sentence, markup=False)
    if _fails(facts, fail_if):
        raise typer.Exit(NOT_RECOVERED)


def _planned(
    oracle: Oracle, seed: int, *, dry_run: bool, as_json: bool, quiet: bool
) -> tuple[ExtractionPlan, float | None]:
    """Look, and say what it would cost; returns the plan and the rate limit."""
    rate = given_rate()
    with show_progress(quiet=quiet, oracle=oracle) as progress:
        if progress is not None:
            progress.update("looking", 0, None)
        domain: Any = "all" if oracle.box is None else oracle.box
        plan = plan_extraction(oracle, domain=domain, rng=seed)
    if dry_run and as_json:
        print_json(priced(plan, oracle, rate))
    elif dry_run or not quiet:
        tell_plan(plan, oracle, rate)
    return plan, rate


def _tell(facts: Audit, out: Path, *, quiet: bool) -> None:
    """Tell a person the verdict and what to do."""
    colour = {"high": "red", "medium": "yellow", "low": "green"}.get(facts.risk.level, "yellow")
    say(f"{facts.headline}.", facts.verdict, colour)
    say(f"risk: {facts.risk.level}.", f"{facts.risk.reason}.", colour)
    if not quiet:
        for number, action in enumerate(facts.actions, 1):
            console.print(f"{number}. {action}", markup=False)
    console.print(f"report: {out}", markup=False)


def _fails(facts: Audit, fail_if: FailIf | None) -> bool:
    """Whether a gate before a release closes."""
    if fail_if is None:
        return False
    if fail_if is FailIf.CLONED:
        return facts.result.status is Status.RECOVERED and facts.recovered
    close = max((point.agreement for point in facts.copies), default=0.0) >= CLOSE
    return facts.recovered or close


def _check_extras() -> None:
    """Miss what the report needs before anything is asked."""
    for module in ("jinja2", "markupsafe"):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(module, "report", "writing the report")


def _command() -> str:
    """Return the command as the user wrote it; there are no secrets on a command line of ours."""
    return shlex.join(["unrelu", *sys.argv[1:]]) if sys.argv[1:2] == ["audit"] else ""


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
