"""LayerNorm on the inputs or on the hidden layer, recognised by what it does not see."""

from __future__ import annotations

import numpy as np

from unrelu.smooth.run import SmoothRun

__all__ = ["invariances"]


def invariances(run: SmoothRun) -> str:
    """Say whether answers change with the mean and the scale of an input; empty if they do."""
    points = run.draw(run.config.hessians)
    mean = points.mean(axis=1, keepdims=True)
    moved = points + 1.0
    scaled = mean + 2.0 * (points - mean)
    other = mean + 2.0 * np.roll(points - mean, 1, axis=1)
    with run.stage("invariances"):
        answers = run.ask(np.concatenate([points, moved, scaled, other]))
    here, shift, scale, turn = np.split(answers, 4)
    # LayerNorm adds a small constant to the variance.
    least = run.config.trace * float(np.nanmean(np.abs(turn - here)))
    still = float(np.nanmean(np.abs(shift - here))) <= least
    same = float(np.nanmean(np.abs(scale - here))) <= least
    if still and same:
        return "answers do not change with mean and scale of the input: LayerNorm comes first"
    if same:
        return "answers do not change with the scale of the input: it is normalised first"
    if _normed_far_out(run):
        return (
            "far out answers change with the direction of the input, little by little, and not "
            "with its length: LayerNorm on the hidden layer"
        )
    return ""


def _normed_far_out(run: SmoothRun) -> bool:
    """Whether biases vanish far out, and what is left is normalised.

    Units that saturate are constant there but for jumps: no small turn changes all answers.
    """
    small = run.config.trace
    far = run.draw(run.config.hessians) / small**2
    turned = far + small * run.draw(len(far)) / small**2
    with run.stage("invariances"):
        answers = run.ask(np.concatenate([far, 2.0 * far, turned]))
    here, longer, turn = np.split(answers, 3)
    change = np.abs(turn - here).max(axis=1)
    least = np.maximum(np.abs(longer - here).max(axis=1), float(run.noise.max()))
    return bool((change > run.config.margin * least).all())
