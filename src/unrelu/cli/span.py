"""``unrelu span``: recover the subspace of inputs that a target depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from unrelu.cli._common import (
    BudgetOption,
    InputDimOption,
    JsonOption,
    LedgerOption,
    OutOption,
    QuietOption,
    SeedOption,
    check_out,
    console,
    exit_for,
    friendly,
    open_target,
    print_json,
    show_progress,
    show_result,
)
from unrelu.errors import InvalidInput
from unrelu.oracles import Oracle
from unrelu.oracles.wrappers import Labels
from unrelu.span.algorithm import SpanPlan, SpanResult, recover_span, recover_span_from_replies

__all__ = ["recover_for_command", "span"]


def recover_for_command(
    oracle: Oracle,
    *,
    rank: int | None,
    labels: bool,
    argmax: bool,
    threshold: float | None,
    output: int | None,
    tolerance: float | None,
    scale: float,
    seed: int,
    quiet: bool,
) -> SpanResult:
    """Recover a span with the options that the commands share."""
    if threshold is not None:
        oracle = Labels(oracle, threshold=threshold, output=output or 0)
    elif argmax:
        oracle = Labels(oracle)
    by_label = labels or argmax or threshold is not None
    with show_progress(quiet=quiet, oracle=oracle) as progress:
        return recover_span(
            oracle,
            rank=rank,
            answers="labels" if by_label else "values",
            outputs="all" if output is None or by_label else output,
            tolerance=tolerance,
            scale=scale,
            rng=seed,
            progress=progress,
        )


TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help="A saved network, MODULE:FUNCTION, or planted:784-80-40-10; see `unrelu doctor`. "
        "Not needed with --replies.",
        show_default=False,
    ),
]
RankOption = Annotated[int | None, typer.Option("--rank", min=1, help="The rank, if known.")]
LabelsOption = Annotated[
    bool, typer.Option("--labels", help="The target answers labels, in one column.")
]
ArgmaxOption = Annotated[
    bool, typer.Option("--argmax", help="Look only at which output is the largest.")
]
ThresholdOption = Annotated[
    float | None,
    typer.Option("--threshold", help="Look only at whether an output exceeds this."),
]
OutputOption = Annotated[
    int | None,
    typer.Option("--output", min=0, help="Use one output.", show_default="all of them"),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        min=0.0,
        help="Sine of the largest angle that is sharp enough.",
        show_default="1e-8 from values, 1e-10 from labels",
    ),
]
ScaleOption = Annotated[
    float, typer.Option("--scale", help="Typical size of an input coordinate.")
]
PlanOption = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        help="Write all queries of the non-adaptive algorithm here (.npy); "
        "with --replies, the file that was written.",
    ),
]
GradientsOption = Annotated[
    int | None, typer.Option("--gradients", min=1, help="Gradients in the plan.")
]
StepOption = Annotated[float | None, typer.Option("--step", help="Coordinate steps of the plan.")]
RepliesOption = Annotated[
    Path | None,
    typer.Option("--replies", help="Replies to the queries in --plan (.npy), row by row."),
]


def span(
    target: TargetArgument = None,
    rank: RankOption = None,
    labels: LabelsOption = False,
    argmax: ArgmaxOption = False,
    threshold: ThresholdOption = None,
    output: OutputOption = None,
    tolerance: ToleranceOption = None,
    scale: ScaleOption = 1.0,
    plan: PlanOption = None,
    gradients: GradientsOption = None,
    step: StepOption = None,
    replies: RepliesOption = None,
    input_dim: InputDimOption = None,
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    ledger: LedgerOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Recover the span of a network's first weights, from values or labels.

    Examples: unrelu span planted:784-80-40-10;
    unrelu span planted:50-10-8-5 --argmax;
    unrelu span model.safetensors --plan queries.npy --gradients 100, then
    unrelu span --plan queries.npy --replies replies.npy

    Exit code 0: recovered, 1: not, 2: a mistake in the command, 3: the target
    could not be asked, 130: interrupted.
    """  # fmt: skip
    with friendly(ledger):
        check_out(out, (".safetensors",))
        if replies is not None:
            if plan is None:
                raise InvalidInput("--replies needs --plan, the file with the queries")
            which: Literal["all"] | int = "all" if output is None else output
            result = recover_span_from_replies(plan, replies, rank=rank, outputs=which)
        else:
            if target is None:
                raise InvalidInput("name a target, or pass --plan and --replies")
            oracle = open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
            if plan is not None:
                _write_plan(oracle, plan, gradients, rank, step, scale, seed, as_json)
                return
            result = recover_for_command(
                oracle, rank=rank, labels=labels, argmax=argmax, threshold=threshold,
                output=output, tolerance=tolerance, scale=scale, seed=seed, quiet=quiet,
            )  # fmt: skip
        show_result(result, as_json=as_json, quiet=quiet, out=out)
    exit_for(result)


def _write_plan(
    oracle: Oracle,
    path: Path,
    gradients: int | None,
    rank: int | None,
    step: float | None,
    scale: float,
    seed: int,
    as_json: bool,
) -> None:
    if gradients is None:
        if rank is None:
            raise InvalidInput("--plan needs --gradients, or --rank to choose 1.25 per rank")
        gradients = -(-5 * rank // (4 * oracle.output_dim)) + 3
    drawn = SpanPlan.draw(oracle.input_dim, gradients=gradients, step=step, scale=scale, rng=seed)
    drawn.write(path)
    if as_json:
        print_json({"plan": str(path), "queries": len(drawn), "gradients": gradients})
        return
    console.print(
        f"{len(drawn):,} queries for {gradients} gradients are in {path}; let the target answer "
        "them row by row, save the replies with numpy.save, and pass --plan and --replies.",
        markup=False,
    )
