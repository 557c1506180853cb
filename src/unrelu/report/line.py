"""One line through input space: the target's answers beside the clone's, and where it kinks."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.errors import UnreluError
from unrelu.oracles import Oracle
from unrelu.report.config import AuditConfig
from unrelu.report.simulation import Simulation

__all__ = ["answers_on_a_line"]


def answers_on_a_line(
    target: Oracle, simulation: Simulation, options: AuditConfig, rng: np.random.Generator
) -> tuple[FloatArray, tuple[float, ...]]:
    """Ask the target along one line, beside the clone's values; and where hyperplanes cross."""
    d = target.input_dim
    if target.box is None:
        direction = rng.standard_normal(d)
        ends = -0.6 * direction, 0.6 * direction
    else:
        low, high = target.box
        ends = low + (high - low) * rng.random(d), low + (high - low) * rng.random(d)
    t = np.linspace(0.0, 1.0, options.line_points)
    points = (1 - t)[:, None] * ends[0] + t[:, None] * ends[1]
    try:
        with target.stage("figure"):
            answers = target(points)
    except UnreluError:  # the budget may be spent: the figure shows the clone alone
        answers = np.full((len(points), target.output_dim), np.nan)
    clone = simulation.served()(points)
    if simulation.probabilities:  # log-odds are straight between kinks; probabilities are not
        answers, clone = _log_odds(answers), _log_odds(clone)
    column = int(np.argmax(clone.std(axis=0)))
    network = simulation.network
    kinks: tuple[float, ...] = ()
    if network.depth >= 2:
        start, stop = (network.weights[0] @ end + network.biases[0] for end in ends)
        crossed = start * stop < 0
        kinks = tuple(np.sort(start[crossed] / (start - stop)[crossed]).tolist())
    return np.column_stack([t, answers[:, column], clone[:, column]]), kinks


def _log_odds(p: FloatArray) -> FloatArray:
    """Return log-odds against the first column (or of the only one), cut at 1e-300."""
    if p.shape[1] == 1:
        p = np.column_stack([1.0 - p, p])
    logs = np.log(np.maximum(p, 1e-300))
    return np.asarray(logs[:, 1:] - logs[:, :1])
