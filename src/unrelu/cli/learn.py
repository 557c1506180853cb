"""``unrelu learn``: learn from labelled samples on disk."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from unrelu.cli._common import (
    JsonOption,
    OutOption,
    QuietOption,
    SeedOption,
    check_out,
    exit_for,
    friendly,
    show_progress,
    show_result,
)
from unrelu.errors import InvalidInput
from unrelu.progress import Progress
from unrelu.result import RecoveryResult
from unrelu.samples import as_source


class ModelChoice(enum.StrEnum):
    """What is assumed to have labelled the samples."""

    NETWORK = "network"
    LOWEST_LAYER = "lowest-layer"
    HALFSPACES = "halfspaces"


DataArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A folder of *.parquet, *.npz or x*.npy/y*.npy files, one such file, or an x.npy "
        "file (with --labels).",
        show_default=False,
    ),
]
ModelOption = Annotated[
    ModelChoice,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="What labelled the samples: a network, a network's lowest-layer, or halfspaces.",
        envvar="UNRELU_MODEL",
    ),
]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="File with the labels of an x.npy file.")
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target", metavar="COLUMN", help="Column of Parquet files that holds the labels."
    ),
]
WidthOption = Annotated[
    int | None,
    typer.Option("--width", min=0, help="Number of units.", show_default="discovered"),
]
OrderOption = Annotated[
    int | None,
    typer.Option(
        "--order",
        min=1,
        max=2,
        help="For a network: take the paper's own route, of this order.",
        show_default="stacked moments",
    ),
]
NoPolishOption = Annotated[
    bool, typer.Option("--no-polish", help="Do not refine on the samples themselves.")
]
AnyInputsOption = Annotated[
    bool,
    typer.Option(
        "--no-check-gaussian",
        help="For a network: take inputs that are clearly not Gaussian, too.",
    ),
]
ActivationOption = Annotated[
    str, typer.Option("--activation", help="For a lowest layer: the units' activation.")
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        help="For a lowest layer: the units' threshold, if it is known.",
        show_default="estimated",
    ),
]
KindOption = Annotated[str, typer.Option("--kind", help="For halfspaces: intersection or union.")]
JobsOption = Annotated[
    int,
    typer.Option("--jobs", min=1, help="For a network: number of threads.", envvar="UNRELU_JOBS"),
]


def learn(
    data: DataArgument,
    model: ModelOption = ModelChoice.NETWORK,
    labels: LabelsOption = None,
    target: TargetOption = "y",
    width: WidthOption = None,
    order: OrderOption = None,
    no_polish: NoPolishOption = False,
    any_inputs: AnyInputsOption = False,
    activation: ActivationOption = "relu",
    threshold: ThresholdOption = None,
    kind: KindOption = "intersection",
    jobs: JobsOption = 1,
    seed: SeedOption = 0,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Learn what labelled a set of samples with Gaussian inputs.

    The samples are read batch by batch, so they may be larger than memory.

    Exit code 0 means recovered; 1 means not recovered or only approximated; 2 is
    a mistake in the command or in the samples; and 130 means interrupted.

    Example: unrelu learn samples/ --out network.safetensors
    """  # fmt: skip
    with friendly(), show_progress(quiet=quiet) as progress:
        check_out(out)
        result = _learn(
            data, model, labels, target, width, order, not no_polish, not any_inputs, activation,
            threshold, kind, jobs, seed, progress,
        )  # fmt: skip
    with friendly():
        show_result(result, as_json=as_json, quiet=quiet, out=out)
    exit_for(result)


def _learn(
    data: Path,
    model: ModelChoice,
    labels: Path | None,
    target: str,
    width: int | None,
    order: int | None,
    polish: bool,
    check_gaussian: bool,
    activation: str,
    threshold: float | None,
    kind: str,
    jobs: int,
    seed: int,
    progress: Progress | None,
) -> RecoveryResult:
    if not data.exists():
        raise InvalidInput(f"{data} does not exist")
    source = as_source(data, labels, target=target)
    if model is ModelChoice.NETWORK:
        from unrelu.gaussian.algorithm import learn_from_samples

        return learn_from_samples(
            source, width=width, order=order, polish=polish, check_gaussian=check_gaussian,
            jobs=jobs, rng=seed, progress=progress,
        )  # fmt: skip
    from unrelu.thresholds.algorithm import learn_halfspaces, recover_lowest_layer

    if model is ModelChoice.LOWEST_LAYER:
        return recover_lowest_layer(
            source, activation=activation, threshold=threshold, units=width,  # type: ignore[arg-type]
            refine=polish, rng=seed, progress=progress,
        )  # fmt: skip
    return learn_halfspaces(
        source, kind=kind, units=width, rng=seed, progress=progress,  # type: ignore[arg-type]
    )  # fmt: skip
