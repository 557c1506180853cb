"""The figures of Jayaram, Woodruff & Zhang: what was measured, as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

from benchmarks.span_curves import RankCurves
from unrelu._types import FloatArray
from unrelu.datasets import ImageSet, train_classifier
from unrelu.errors import MissingExtra
from unrelu.progress import Progress, as_progress
from unrelu.span.algorithm import obfuscate, recover_span

__all__ = ["draw_curves", "draw_obfuscation", "obfuscation_experiment"]


def obfuscation_experiment(
    data: ImageSet,
    *,
    images: int = 8,
    held_out: int = 1000,
    noise: float = 10.0,
    seed: int = 0,
    epochs: int = 5,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train a classifier, recover its span from queries, and obfuscate held-out digits.

    On the 8 by 8 digits the first layer has 30 units, so that a null space remains.
    """
    hidden = (80, 40, 30, 20) if data.x_train.shape[1] > 80 else (30, 20)
    watch = as_progress(progress)
    watch.update("training", 0, None, f"{epochs} epochs")
    net = train_classifier(data, *hidden, seed=seed, epochs=epochs)
    span = recover_span(net, rng=seed, tolerance=1e-10, progress=progress)
    x, labels = data.x_test[:held_out], data.y_test[:held_out]
    before = net(x)
    picks = np.array([np.flatnonzero(labels == d % 10)[d // 10] for d in range(images)])
    shown: list[tuple[str, FloatArray, FloatArray, dict[str, float]]] = [
        ("original", x, before, {})
    ]
    for name, box in (("null-space noise", None), ("noise within the pixel box", (0.0, 1.0))):
        watch.update("obfuscation", len(shown) - 1, 2, name)
        made = obfuscate(x, span, noise=noise, box=box, rng=seed)
        after = net(made.images)
        report = {
            "unchanged": float(np.mean(after.argmax(1) == before.argmax(1))),
            "largest_logit_change": float(np.abs(after - before).max() / np.ptp(before)),
            "noise_norm": float(np.median(made.noise_norm)),
            "correlation": float(np.median(made.correlation)),
            "affine_residual": float(made.affine_residual.max()),
            "box_residual": float(made.box_residual.max()),
        }
        shown.append((name, made.images, after, report))
    return {
        "data": data.name,
        "network": net.architecture,
        "shape": list(data.shape),
        "accuracy": float(np.mean(net(data.x_test).argmax(1) == data.y_test)),
        "status": span.status.name,
        "rank": span.rank,
        "angle": span.angle,
        "queries": span.queries.total,
        "rows": [
            {
                "name": name,
                "pixels": pixels[picks].tolist(),
                "prediction": logits[picks].argmax(1).tolist(),
                "probability": scipy.special.softmax(logits[picks], axis=1).max(1).tolist(),
                **report,
            }
            for name, pixels, logits, report in shown
        ],
    }


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("matplotlib", "report", "drawing a figure") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_curves(curves: Sequence[RankCurves], title: str, path: Path) -> Path:
    """Draw one panel per method: per shape the median over networks, and each of them."""
    pyplot = _pyplot()
    methods = list(dict.fromkeys(curve.method for curve in curves))
    figure, axes = pyplot.subplots(
        1, len(methods), figsize=(4.2 * len(methods), 3.9), sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for axis, method in zip(axes[0], methods, strict=True):
        chosen = [curve for curve in curves if curve.method == method]
        for curve, style in zip(chosen, ["-", "--", "-.", ":", "-"], strict=False):
            ranks = np.array(curve.ranks)
            (line,) = axis.plot(
                curve.samples, np.median(ranks, axis=0), style, label=curve.network, linewidth=2
            )
            if len(ranks) > 1:  # each network, thin
                axis.plot(
                    curve.samples, ranks.T, color=line.get_color(), linewidth=0.8, alpha=0.35,
                    zorder=1,
                )  # fmt: skip
        full = chosen[0].full
        for level, words in ((full, "k"), (full / 2, "k/2")):
            axis.axhline(level, color="0.55", linestyle=(0, (1, 2)), linewidth=1, zorder=0)
            axis.annotate(
                words, (1, level), xytext=(2, 2), textcoords="offset points", color="0.4",
                fontsize=8,
            )  # fmt: skip
        axis.set_title(method, fontsize=10)
        axis.set_xlabel("samples")
        axis.set_xlim(0, chosen[0].samples[-1])
        axis.set_ylim(0, 1.08 * full)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("rank of the gradients (cut at 1e-5)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False,
                  fontsize=9)  # fmt: skip
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def draw_obfuscation(facts: dict[str, Any], path: Path) -> Path:
    """Draw rows of original and obfuscated digits with prediction and probability."""
    pyplot = _pyplot()
    rows, shape = facts["rows"], tuple(facts["shape"])
    count = len(rows[0]["pixels"])
    figure, axes = pyplot.subplots(
        len(rows), count, figsize=(1.25 * count, 1.6 * len(rows)), squeeze=False
    )
    for line, row in zip(axes, rows, strict=True):
        for i, axis in enumerate(line):
            axis.imshow(np.reshape(row["pixels"][i], shape), cmap="gray")
            axis.set_title(f"{row['prediction'][i]}  ({row['probability'][i]:.3f})", fontsize=8)
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(row["name"].replace("within ", "within\n"), fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path
