"""``unrelu extract``: recover a network from its answers."""

from __future__ import annotations

from typing import Annotated

import typer

from unrelu._types import ArrayLike
from unrelu.choose import ExtractionPlan, plan_extraction
from unrelu.choose import extract as choose_and_extract
from unrelu.cli._common import (
    BudgetOption,
    InputDimOption,
    JsonOption,
    LedgerOption,
    OutOption,
    QuietOption,
    SeedOption,
    TargetArgument,
    check_out,
    exit_for,
    friendly,
    open_target,
    print_json,
    show_progress,
    show_result,
)
from unrelu.cli._plan import priced, tell_plan
from unrelu.cli._target import given_rate
from unrelu.errors import BudgetExhausted, InvalidInput
from unrelu.extraction.three_layer import extract_three_layer
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.learner.algorithm import learn_from_queries
from unrelu.oracles import Oracle
from unrelu.progress import Progress
from unrelu.result import RecoveryResult

Domain = str | tuple[ArrayLike, ArrayLike]
DomainOption = Annotated[
    str,
    typer.Option(
        "--domain", help="Where inputs may lie: all, nonnegative, or LOW,HIGH for a box."
    ),
]


def parse_domain(text: str) -> str | tuple[float, float]:
    """Read ``all``, ``nonnegative`` or ``LOW,HIGH``."""
    if text in {"all", "nonnegative"}:
        return text
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInput(
            f"--domain must be all, nonnegative or LOW,HIGH (such as 0,1), got {text!r}"
        ) from error
    return low, high


def _check_options(area: Domain, depth: int | None, epsilon: float | None, relative: bool) -> None:
    if relative and epsilon is None:
        raise InvalidInput("--relative goes with --epsilon")
    if not is_everywhere(area) and (depth == 3 or epsilon is not None):
        raise InvalidInput(
            "--depth 3 and --epsilon need inputs from all of space; a bounded domain works with "
            "--depth 2"
        )
    if epsilon is not None and depth == 3:
        raise InvalidInput("--epsilon learns one hidden layer; leave --depth out")


def is_everywhere(area: Domain) -> bool:
    """Whether a domain is all of space."""
    return isinstance(area, str) and area == "all"


def _chosen_by_user(
    plan: ExtractionPlan, depth: int | None, epsilon: float | None
) -> ExtractionPlan:
    """Return the plan with the method that the options ask for, if they do."""
    if epsilon is not None:
        return plan.for_method("learn_from_queries", "as --epsilon says", epsilon)
    if depth is not None:
        name = "extract_two_layer" if depth == 2 else "extract_three_layer"
        return plan.for_method(name, f"as --depth {depth} says")
    return plan


def _run(
    oracle: Oracle,
    area: Domain,
    depth: int | None,
    epsilon: float | None,
    relative: bool,
    plan: ExtractionPlan | None,
    seed: int,
    progress: Progress | None,
) -> RecoveryResult:
    """Run the algorithm that the options ask for, or that the plan chose."""
    if epsilon is not None:
        return learn_from_queries(
            oracle, epsilon=epsilon, relative=relative, rng=seed, progress=progress
        )
    if depth == 3:
        return extract_three_layer(oracle, rng=seed, progress=progress)
    if depth == 2:
        return extract_two_layer(oracle, domain=area, rng=seed, progress=progress)
    return choose_and_extract(oracle, domain=area, plan=plan, rng=seed, progress=progress)


DepthOption = Annotated[
    int | None,
    typer.Option(
        "--depth",
        min=2,
        max=3,
        help="Layers, the output layer included: 2 or 3.",
        show_default="found out",
    ),
]
EpsilonOption = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        help="Learn one hidden layer to this root mean square error instead of exactly: "
        "for neurons that coincide or cancel, and noisy answers.",
        show_default="exact",
    ),
]
RelativeOption = Annotated[
    bool, typer.Option("--relative", help="--epsilon is a part of the answers' spread.")
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Look (about 700 queries), say method and price, and stop."),
]


def extract(
    target: TargetArgument,
    input_dim: InputDimOption = None,
    depth: DepthOption = None,
    epsilon: EpsilonOption = None,
    relative: RelativeOption = False,
    domain: DomainOption = "all",
    dry_run: DryRunOption = False,
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    ledger: LedgerOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Recover the network behind a target, by the method that fits it.

    Looks at the target, says which method it chose and what that costs, and
    runs it. Exit code 0: recovered, with a certificate. 1: not, or only
    approximated (what was found is kept). 2: a mistake in the command. 3: the
    target could not be asked. 130: interrupted.

    Examples: unrelu extract planted:784-128-1 --out clone.safetensors;
    unrelu extract planted:10-10-10-1 --dry-run --price 0.0001; unrelu
    extract planted:clusters --epsilon 1e-3 --relative
    """
    with friendly(ledger):
        chosen = parse_domain(domain)
        check_out(out)
        oracle = open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        area = oracle.box if chosen == "all" and oracle.box is not None else chosen
        _check_options(area, depth, epsilon, relative)
        rate = given_rate()
        plan: ExtractionPlan | None = None
        if dry_run or (depth is None and epsilon is None):
            with show_progress(quiet=quiet, oracle=oracle) as progress:
                if progress is not None:
                    progress.update("looking", 0, None)
                plan = _look(oracle, area, seed, dry_run)
        if plan is not None:
            plan = _chosen_by_user(plan, depth, epsilon)
            if dry_run and as_json:
                print_json(priced(plan, oracle, rate))
            elif dry_run or not quiet:
                tell_plan(plan, oracle, rate)
        if dry_run:
            return
        expected = None if plan is None else sum(plan.queries) // 2
        with show_progress(quiet=quiet, oracle=oracle, expected=expected, rate=rate) as progress:
            result = _run(oracle, area, depth, epsilon, relative, plan, seed, progress)
        show_result(result, as_json=as_json, quiet=quiet, out=out)
    exit_for(result)


def _look(oracle: Oracle, area: Domain, seed: int, dry_run: bool) -> ExtractionPlan | None:
    """Plan; without a budget for it there is no plan, and the extraction says so."""
    try:
        return plan_extraction(oracle, domain=area, rng=seed)
    except BudgetExhausted:
        if dry_run:
            raise
        return None
