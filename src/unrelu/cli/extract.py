"""``unrelu extract``: recover a network from its answers."""

from __future__ import annotations

from typing import Annotated

import typer

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


def extract(
    target: TargetArgument,
    input_dim: InputDimOption = None,
    depth: Annotated[
        int, typer.Option("--depth", min=2, max=2, help="Layers, the output layer included.")
    ] = 2,
    domain: DomainOption = "all",
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    ledger: LedgerOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Recover the network behind a target, exactly.

    Exit code 0: recovered, with a certificate. 1: not (what was found is kept).

    Example: unrelu extract planted:784-128-1 --out clone.safetensors
    """
    del depth
    with friendly(ledger):
        chosen = parse_domain(domain)
        oracle = open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        area = oracle.box if chosen == "all" and oracle.box is not None else chosen
        with show_progress(quiet=quiet, oracle=oracle) as progress:
            result = extract_two_layer(oracle, domain=area, rng=seed, progress=progress)
        show_result(result, as_json=as_json, quiet=quiet, out=out)
    exit_for(result)
