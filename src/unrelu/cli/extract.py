"""``unrelu extract``: recover a network from its answers."""

from __future__ import annotations

from typing import Annotated

import typer

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
from unrelu.errors import BudgetExhausted

DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Look (about 700 queries), say the method and its price, and stop."
    ),
]


def extract(
    target: TargetArgument,
    input_dim: InputDimOption = None,
    depth: DepthOption = None,
    epsilon: EpsilonOption = None,
    relative: RelativeOption = False,
    domain: DomainOption = "all",
    answers: AnswersOption = AnswerChoice.AUTO,
    dry_run: DryRunOption = False,
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    ledger: LedgerOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Recover the network behind a target, by the method that fits it.

    The command looks at the target, says which method it chose and what that
    costs, and runs it. Exit code 0 means recovered, with a certificate; 1 means
    not recovered or only approximated (what was found is kept); 2 is a mistake
    in the command; 3 means that the target could not be asked; and 130 that
    the run was interrupted.

    Examples: unrelu extract planted:784-128-1 --out clone.safetensors;
    unrelu extract planted:10-10-10-1 --dry-run --price 0.0001; unrelu
    extract planted:clusters --epsilon 1e-3 --relative
    """
    with friendly(ledger):
        wanted = Attack(parse_domain(domain), depth, epsilon, relative, answers)
        wanted.check()
        check_out(out)
        attack, oracle = wanted.on(
            open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        )
        rate = given_rate()
        plan: ExtractionPlan | None = None
        if dry_run or not attack.chosen_by_hand:
            try:
                plan = look(oracle, attack, seed, quiet=quiet)
            except BudgetExhausted:
                if dry_run:
                    raise  # else the extraction says so
        if plan is not None:
            if dry_run and as_json:
                print_json(priced(plan, oracle, rate))
            elif dry_run or not quiet:
                tell_plan(plan, oracle, rate)
        if dry_run:
            return
        expected = None if plan is None else sum(plan.queries) // 2
        with show_progress(quiet=quiet, oracle=oracle, expected=expected, rate=rate) as progress:
            result = attack(oracle, plan, seed, progress)
        show_result(result, as_json=as_json, quiet=quiet, out=out)
    exit_for(result)
