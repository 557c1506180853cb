"""``unrelu doctor``: say what a target is."""

from __future__ import annotations

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
)
from unrelu.diagnostics import diagnose


def doctor(
    target: TargetArgument,
    input_dim: InputDimOption = None,
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure a target's noise, precision, determinism and kind of output.

    This takes about 320 queries, and recovers nothing.

    Example: unrelu doctor planted:20-10-1
    """
    with friendly(ledger):
        oracle = open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        diagnosis = diagnose(oracle, rng=seed)
    if as_json:
        print_json(diagnosis.to_dict())
        return
    for line in diagnosis.sentences():
        console.print(line, markup=False)
    if not quiet:
        console.print(f"({oracle.queries.total:,} queries in all)")
