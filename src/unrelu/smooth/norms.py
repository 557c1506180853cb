"""LayerNorm on the inputs, recognised by what it does not see."""

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
    return ""
