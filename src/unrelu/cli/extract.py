"""``unrelu extract``: recover a network from its answers."""

from __future__ import annotations

from typing import Annotated

import typer

from unrelu._types import ArrayLike
from unrelu.algorithms.choose_depth import extract as choose_and_extract
from unrelu.algorithms.query_learner import learn_from_queries
from unrelu.algorithms.three_layer import extract_three_layer
from unrelu.algorithms.two_layer import extract_two_layer
from unrelu.cli._common import (
    BudgetOption,
    InputDimOption,
    JsonOption,
    LedgerOption,
    OutOption,
    QuietOption,
    SeedOption,
    TargetArgument,
    exit_for,
    friendly,
    open_target,
    show_progress,
    show_result,
)
from unrelu.errors import InvalidInput
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


def _extract(
    oracle: Oracle,
    area: Domain,
    depth: int | None,
    epsilon: float | None,
    relative: bool,
    seed: int,
    progress: Progress | None,
) -> RecoveryResult:
    """Run the algorithm that the options ask for."""
    if relative and epsilon is None:
        raise InvalidInput("--relative goes with --epsilon")
    everywhere = isinstance(area, str) and area == "all"
    if not everywhere and (depth == 3 or epsilon is not None):
        raise InvalidInput(
            "--depth 3 and --epsilon need inputs from all of space; a bounded domain works with "
            "--depth 2"
        )
    if epsilon is not None:
        if depth == 3:
            raise InvalidInput("--epsilon learns one hidden layer; leave --depth out")
        return learn_from_queries(
            oracle, epsilon=epsilon, relative=relative, rng=seed, progress=progress
        )
    if depth == 3:
        return extract_three_layer(oracle, rng=seed, progress=progress)
    if depth == 2 or not everywhere:
        return extract_two_layer(oracle, domain=area, rng=seed, progress=progress)
    return choose_and_extract(oracle, rng=seed, progress=progress)


def extract(
    target: TargetArgument,
    input_dim: InputDimOption = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth",
            min=2,
            max=3,
            help="Layers, the output layer included: 2 or 3.",
            show_default="found out",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            help="Learn one hidden layer to this root mean square error instead of exactly: "
            "for neurons that coincide or cancel, and noisy answers.",
            show_default="exact",
        ),
    ] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="--epsilon is a part of the answers' spread.")
    ] = False,
    domain: DomainOption = "all",
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    ledger: LedgerOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Recover the network behind a target, exactly or to a chosen error.

    Exit code 0: recovered, with a certificate. 1: not (what was found is kept).

    Examples: unrelu extract planted:784-128-1 --out clone.safetensors;
    unrelu extract planted:10-10-10-1; unrelu extract planted:clusters
    --epsilon 1e-3 --relative
    """
    with friendly(ledger):
        chosen = parse_domain(domain)
        oracle = open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        area = oracle.box if chosen == "all" and oracle.box is not None else chosen
        with show_progress(quiet=quiet, oracle=oracle) as progress:
            result = _extract(oracle, area, depth, epsilon, relative, seed, progress)
        show_result(result, as_json=as_json, quiet=quiet, out=out)
    exit_for(result)
