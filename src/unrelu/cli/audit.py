"""``unrelu audit``: whether a model can be cloned, at what price, and what helps."""

from __future__ import annotations

import enum
import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from unrelu._files import replace_file
from unrelu.choose import ExtractionPlan
from unrelu.cli._attack import (
    AnswerChoice,
    AnswersOption,
    Attack,
    DepthOption,
    DomainOption,
    EpsilonOption,
    RelativeOption,
    look,
    parse_domain,
)
from unrelu.cli._common import (
    NOT_RECOVERED,
    TARGET_HELP,
    UNREACHED,
    BudgetOption,
    InputDimOption,
    JsonOption,
    LedgerOption,
    QuietOption,
    SeedOption,
    check_folder,
    console,
    duration,
    entry,
    friendly,
    open_target,
    print_json,
    say,
    show_progress,
)
from unrelu.cli._images import read_images
from unrelu.cli._plan import priced, tell_plan
from unrelu.cli._target import COST_PANEL, OUTPUT_PANEL, TARGET_PANEL, given_rate
from unrelu.cli._zoo import audit_list
from unrelu.errors import InvalidInput, MissingExtra
from unrelu.oracles import Oracle
from unrelu.report import audit as run_audit
from unrelu.report import render_page
from unrelu.report.audit import Audit
from unrelu.report.compare import changes, read_audit
from unrelu.report.config import AuditConfig
from unrelu.report.risk import CLOSE
from unrelu.report.structure import check_images
from unrelu.result import Status


class FailIf(enum.Enum):
    """What an audit that guards a release fails on."""

    CLONED = "cloned"
    APPROXIMATED = "approximated"


ReportOption = Annotated[
    Path, typer.Option("--out", help="Write the report here: one HTML file.", envvar="UNRELU_OUT",
                       rich_help_panel=OUTPUT_PANEL)
]  # fmt: skip
ImageOption = Annotated[
    str | None,
    typer.Option("--image", metavar="HEIGHT,WIDTH", help="Inputs are images of this size.",
                 show_default="as the shape says", rich_help_panel=TARGET_PANEL),
]  # fmt: skip
ExamplesOption = Annotated[
    Path | None,
    typer.Option("--examples", help="Show these images (.npy, rows of inputs) before and "
                 "after obfuscation.", show_default="handwritten digits",
                 rich_help_panel=OUTPUT_PANEL),
]  # fmt: skip
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Look (about 700 queries), say the price, and stop."),
]
FailIfOption = Annotated[
    FailIf | None,
    typer.Option("--fail-if", help="Exit with 1 if the model was cloned, or at least copied "
                 "closely: a gate before a release.", show_default="never"),
]  # fmt: skip
CompareOption = Annotated[
    Path | None,
    typer.Option("--compare", help="Tell what changed since an earlier audit (from --json).",
                 rich_help_panel=OUTPUT_PANEL),
]  # fmt: skip


PatienceOption = Annotated[
    float | None,
    typer.Option("--patience", min=0.0, metavar="SECONDS", help="Give each defence that "
                 "is tried on the clone so much computing; one that takes longer is shown as "
                 "unknown.",
                 show_default="until each is done", rich_help_panel=COST_PANEL),
]  # fmt: skip
TargetArgument = Annotated[
    str | None, typer.Argument(metavar="TARGET", help=TARGET_HELP, show_default=False)
]
TargetsOption = Annotated[
    Path | None,
    typer.Option("--targets", help="Audit every target that this file describes instead, "
                 "side by side (extra dask).", rich_help_panel=TARGET_PANEL),
]  # fmt: skip
SchedulerOption = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Address of a dask scheduler for "
                 "--targets, such as tcp://host:8786.", show_default="this machine's cores",
                 rich_help_panel=TARGET_PANEL),
]  # fmt: skip


def audit(
    target: TargetArgument = None,
    input_dim: InputDimOption = None,
    targets: TargetsOption = None,
    scheduler: SchedulerOption = None,
    depth: DepthOption = None,
    epsilon: EpsilonOption = None,
    relative: RelativeOption = False,
    domain: DomainOption = "all",
    answers: AnswersOption = AnswerChoice.AUTO,
    out: ReportOption = Path("report.html"),
    image: ImageOption = None,
    examples: ExamplesOption = None,
    patience: PatienceOption = None,
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

    Examples: unrelu audit planted:64-32-10 --out report.html; unrelu audit
    --targets zoo.toml
    """
    with friendly(ledger):
        check_folder(out)
        _check_extras()
        _check_one_or_many(target, targets, scheduler, compare, dry_run)
        wanted = Attack(parse_domain(domain), depth, epsilon, relative, answers)
        wanted.check()
        if target is None:
            _audit_many(targets, out, scheduler, fail_if, as_json=as_json, quiet=quiet)
            return
        earlier = None if compare is None else read_audit(compare)
        attack, oracle = wanted.on(
            open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        )
        shape, shown = read_images(image, examples)
        check_images(shape, shown, oracle.input_dim)
        plan = look(oracle, attack, seed, quiet=quiet)
        if _told(plan, oracle, dry_run=dry_run, as_json=as_json, quiet=quiet):
            return
        rate, expected = given_rate(), sum(plan.queries) // 2
        with show_progress(quiet=quiet, oracle=oracle, expected=expected, rate=rate) as progress:
            found = run_audit(
                oracle, rng=seed, domain=attack.domain, attack=attack, look=attack.look,
                plan=plan, rate=rate, image_shape=shape, examples=shown, progress=progress,
                command=_command(), name=target, config=AuditConfig(seconds=patience),
            )  # fmt: skip
        replace_file(out, render_page(found).encode())
        if as_json:
            print_json(found.to_json())
        _conclude(found, out, earlier, fail_if, as_json=as_json, quiet=quiet)


def _check_one_or_many(
    target: str | None,
    targets: Path | None,
    scheduler: str | None,
    compare: Path | None,
    dry_run: bool,
) -> None:
    """Refuse options that do not go together."""
    if (target is None) == (targets is None):
        raise InvalidInput("give a TARGET, or a list of them with --targets FILE")
    if targets is None and scheduler is not None:
        raise InvalidInput("--scheduler goes with --targets FILE")
    if targets is not None and (compare is not None or dry_run):
        raise InvalidInput("--compare and --dry-run take one TARGET, not --targets")


def _audit_many(
    targets: Path | None,
    out: Path,
    scheduler: str | None,
    fail_if: FailIf | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Audit a list; leaves with 1 where --fail-if says so, with 3 where one was not asked."""
    assert targets is not None
    zoo = audit_list(targets, out, scheduler, as_json=as_json, quiet=quiet)
    if any(_fails(facts, fail_if) for facts in zoo.facts.values()):
        raise typer.Exit(NOT_RECOVERED)
    if zoo.errors:
        raise typer.Exit(UNREACHED)


def _conclude(
    found: Audit,
    out: Path,
    earlier: dict[str, Any] | None,
    fail_if: FailIf | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Tell the verdict, what changed, and whether a gate closes."""
    facts = json.loads(found.to_json())
    if not as_json:
        _tell(found, out, quiet=quiet)
    if earlier is not None:
        for sentence in changes(earlier, facts):
            console.print(sentence, markup=False)
    if _fails(facts, fail_if):
        raise typer.Exit(NOT_RECOVERED)


def _told(
    plan: ExtractionPlan, oracle: Oracle, *, dry_run: bool, as_json: bool, quiet: bool
) -> bool:
    """Say what it would cost; returns whether that was all."""
    if dry_run and as_json:
        print_json(priced(plan, oracle, given_rate()))
    elif dry_run or not quiet:
        tell_plan(plan, oracle, given_rate())
    return dry_run


def _tell(facts: Audit, out: Path, *, quiet: bool) -> None:
    """Tell a person the verdict and what to do."""
    colour = {"high": "red", "medium": "yellow", "low": "green"}.get(facts.risk.level, "yellow")
    say(f"{facts.headline}.", facts.verdict, colour)
    say(f"risk: {facts.risk.level},", f"as {facts.risk.reason}.", colour)
    if facts.cost is not None:
        console.print(
            f"cost: {facts.cost:,.4g} in money, at {facts.price:g} a query", markup=False
        )
    if facts.duration_at_rate is not None:
        text = f"time: {duration(facts.duration_at_rate)} at {facts.rate:g} queries a second"
        console.print(text, markup=False)
    if not quiet:
        for number, action in enumerate(facts.actions, 1):
            entry(f"{number}.", action, width=3)
    console.print(f"report: {out}", markup=False)


def _fails(facts: dict[str, Any], fail_if: FailIf | None) -> bool:
    """Whether a gate before a release closes."""
    if fail_if is None:
        return False
    if fail_if is FailIf.CLONED:
        return bool(facts["recovered"]) and facts["result"]["status"] == Status.RECOVERED.name
    close = max((point["agreement"] for point in facts["copies"]), default=0.0) >= CLOSE
    return bool(facts["recovered"]) or close


def _check_extras() -> None:
    """Miss what the report needs before anything is asked."""
    for module in ("jinja2", "markupsafe"):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(module, "report", "writing the report")


def _command() -> str:
    """Return the command as the user wrote it; there are no secrets on a command line of ours."""
    return shlex.join(["unrelu", *sys.argv[1:]]) if sys.argv[1:2] == ["audit"] else ""
