"""``unrelu obfuscate``: images that the target reads and people don't."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from unrelu._types import FloatArray
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
    say,
)
from unrelu.cli.span import recover_for_command
from unrelu.datasets import load_digit_images
from unrelu.errors import InvalidInput
from unrelu.oracles import Oracle
from unrelu.result import RecoveryResult
from unrelu.span.algorithm import obfuscate as add_noise
from unrelu.span.obfuscate import Obfuscation

__all__ = ["obfuscate"]


def _load_images(path: Path | None, count: int, n: int) -> FloatArray:
    if path is not None and path.is_file():
        try:
            images = np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        except (OSError, ValueError, EOFError) as error:
            raise InvalidInput(f"cannot read images from {path}: {error}") from error
        images = images.reshape(len(images), -1) if images.ndim > 1 else images[None]
    else:
        if path is not None and not path.is_dir():
            raise InvalidInput(f"there is no file or folder {path}")
        images = load_digit_images(path).x_test
    if images.shape[1] != n:
        raise InvalidInput(f"images have {images.shape[1]} pixels, the target takes {n} inputs")
    return images[:count]


def _predictions(oracle: Oracle, x: FloatArray) -> tuple[FloatArray, Any]:
    with oracle.stage("images"):
        answers = oracle(x)
    return answers, answers.argmax(axis=1) if answers.shape[1] > 1 else answers[:, 0]


ImagesOption = Annotated[
    Path | None,
    typer.Option(
        "--images",
        help="Images (.npy, one a row) or a folder with MNIST's IDX files.",
        show_default="$UNRELU_MNIST or scikit-learn's digits",
    ),
]
CountOption = Annotated[int, typer.Option("--count", min=1, help="Images to take.")]
NoiseOption = Annotated[
    float, typer.Option("--noise", min=0.0, help="Norm of the noise over the image's.")
]
BoxOption = Annotated[
    tuple[float, float] | None,
    typer.Option("--box", help="Keep pixels in this range, such as 0 1."),
]
SpanOption = Annotated[
    Path | None,
    typer.Option(
        "--span", help="A result of `unrelu span --out`.", show_default="recovered first"
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Write the obfuscated images here (.npy).")
]
ArgmaxOption = Annotated[
    bool, typer.Option("--argmax", help="Recover the span from the largest output alone.")
]
ScaleOption = Annotated[
    float, typer.Option("--scale", help="Typical size of an input coordinate.")
]


def obfuscate(
    target: TargetArgument,
    images: ImagesOption = None,
    count: CountOption = 1000,
    noise: NoiseOption = 10.0,
    box: BoxOption = None,
    span: SpanOption = None,
    out: OutOption = None,
    argmax: ArgmaxOption = False,
    scale: ScaleOption = 1.0,
    input_dim: InputDimOption = None,
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Add noise to images that the target cannot see; report what it answers.

    Example: unrelu obfuscate net.safetensors --images mnist/ --noise 10
    """  # fmt: skip
    with friendly(ledger):
        oracle = open_target(target, input_dim=input_dim, budget=budget, ledger=ledger)
        x = _load_images(images, count, oracle.input_dim)
        found: RecoveryResult
        if span is not None:
            found = RecoveryResult.load(span)
            if not found.findings().rank:
                raise InvalidInput(f"{span} does not hold a span")
        else:
            found = recover_for_command(
                oracle, rank=None, labels=False, argmax=argmax, threshold=None, output=None,
                tolerance=None, scale=scale, seed=seed, quiet=quiet,
            )  # fmt: skip
        if not found.success and not quiet:
            say(f"{found.status.name}:", found.message, "yellow")
        made = add_noise(x, found, noise=noise, box=box, rng=seed)
        if out is not None:
            np.save(out, made.images)
        facts = _measured(oracle, x, made) | {
            "span": found.status.name,
            "rank": found.findings().rank,
            "queries": oracle.queries.total,
        }
    if as_json:
        print_json(facts)
    else:
        _tell(facts, None if quiet else out, quiet=quiet)
    if not found.success:
        raise typer.Exit(1)


def _measured(oracle: Oracle, x: FloatArray, made: Obfuscation) -> dict[str, Any]:
    """Ask for images before and after, and say what changed."""
    before, first = _predictions(oracle, x)
    after, second = _predictions(oracle, made.images)
    spread = float(np.ptp(before)) or 1.0
    return {
        "images": len(x),
        "unchanged": float(np.mean(np.isclose(first, second, rtol=0, atol=1e-6 * spread))),
        "largest_change": float(np.abs(after - before).max()) / spread,
        "noise_norm": float(np.median(made.noise_norm)),
        "correlation": float(np.median(made.correlation)),
        "affine_residual": float(made.affine_residual.max()),
        "box_residual": float(made.box_residual.max()),
    }


def _tell(facts: dict[str, Any], out: Path | None, *, quiet: bool) -> None:
    """Tell a person what changed."""
    console.print(
        f"{facts['unchanged']:.2%} of {facts['images']} predictions unchanged; answers moved by "
        f"at most {facts['largest_change']:.1e} of their range"
    )
    if quiet:
        return
    console.print(
        f"  noise norm {facts['noise_norm']:.3g} times the image's, correlation with the "
        f"image {facts['correlation']:.2f}\n  seen by the target "
        f"{facts['affine_residual']:.1e} of the image's norm, outside the box "
        f"{facts['box_residual']:.1e}"
    )
    if out is not None:
        console.print(f"  written to    {out}", markup=False)
