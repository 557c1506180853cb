"""Grow a span from gradients, one well-chosen point at a time.

The search keeps its state in one object, so that what was found survives a
budget that runs out.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu._types import FloatArray
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress
from unrelu.span.config import SpanConfig
from unrelu.span.subspace import (
    SpanEstimate,
    seen_again,
    spectrum_of_rows,
)
from unrelu.span.values import (
    GradientRows,
    find_neighbourhood,
    locate_change,
    measure_gradient,
    screen_points,
)

__all__ = ["SpanSearch", "add_gradient", "complete_gradient", "confirm_span", "grow_span"]


@dataclasses.dataclass(kw_only=True)
class SpanSearch(SpanEstimate):
    """State of a search for the span of gradients.

    ``spectrum`` belongs to the gradients as first measured (until a sharpening pass replaces
    them; ``measured`` keeps them as they were) and to the ``contrasts``, differences of two
    gradients.
    """

    gradients: GradientRows
    measured: GradientRows
    contrasts: GradientRows
    rejected: int = 0
    undecided: int = 0

    @classmethod
    def start(cls, n: int) -> SpanSearch:
        """Return a search that has seen nothing in n dimensions."""
        none = GradientRows.none(n)
        spectrum = spectrum_of_rows(none.rows, none.noise, margin=1.0)
        return cls(
            gradients=none, measured=none, contrasts=none,
            spectrum=spectrum, basis=spectrum.basis,
        )  # fmt: skip

    def add(self, more: GradientRows, margin: float) -> bool:
        """Add gradients; tell whether the rank grew."""
        before = self.spectrum.rank
        self.gradients = self.gradients.with_more(more)
        self.measured = self.measured.with_more(more)
        self.decide(margin)
        self.ranks.append(self.spectrum.rank)
        return self.spectrum.rank > before

    def decide(self, margin: float) -> None:
        """Take the basis from all rows at hand."""
        rows = self.gradients.with_more(self.contrasts)
        self.estimate_from(rows.rows, rows.noise, margin)


def _leak(search: SpanSearch, noise: FloatArray, step: float, config: SpanConfig) -> float:
    """Change that the basis' own error may cause over a step, in units of its noise.

    At worst, a gradient of typical length points along the weakest direction,
    is turned by the estimated angle and spread over the n - r directions
    outside. Typically the error is that of one gradient, measured over a step
    shorter by ``step / measured``. Directions below ``negligible`` of the
    gradient may be taken for leak, so the worst case is used where it lies
    below that, and the typical case where the noise is larger.
    """
    g = search.gradients
    if search.spectrum.rank == 0:
        return 0.0
    outside = np.sqrt(max(1, g.rows.shape[1] - len(search.basis)))
    length = np.median(np.linalg.norm(g.rows, axis=1) / (np.sqrt(2.0) * noise[g.outputs]))
    typical = np.median(g.noise / (np.sqrt(2.0) * noise[g.outputs])) * step
    change = step * length / outside
    return float(min(change * search.angle, max(typical, change * config.negligible)))


def grow_span(
    oracle: Oracle,
    search: SpanSearch,
    rng: np.random.Generator,
    noise: FloatArray,
    *,
    step: float,
    scale: float,
    limit: int,
    config: SpanConfig,
    progress: Progress,
) -> None:
    """Complete gradients that leave the span until ``patience`` points do not.

    While directions are missing, short steps around Gaussian points find them
    everywhere. Once a batch of candidates stays inside, the rest of the
    ``patience`` points is moved by an input's norm, which also shows units that
    are off at the point itself; where an answer changes, the change is traced
    to its place. Ends as well when the rank reaches ``limit``, or after
    ``rounds`` gradients that added nothing.
    """
    n = oracle.input_dim
    setbacks = 0
    while search.spectrum.rank < limit and setbacks < config.rounds:
        calm = search.quiet > 0
        wanted = config.patience - search.quiet if calm else config.probes
        size = scale * np.sqrt(n) if calm else step
        x = scale * rng.standard_normal((wanted, n))
        answers, change, moved = screen_points(
            oracle, x, search.basis, noise, rng, step=size, probes=config.probes
        )
        threshold = config.margin * np.sqrt(1.0 + _leak(search, noise, size, config) ** 2)
        if change.max() <= threshold:
            search.quiet += wanted
            if search.quiet >= config.patience:
                search.finished = True
                return
            continue
        search.quiet = 0
        best = np.argsort(-change)[: min(np.count_nonzero(change > threshold), config.probes)]
        grew = any(
            add_gradient(
                oracle, search, None if calm else (x[i], answers[i]), (x[i], moved[i]), noise, rng,
                step=step, config=config,
            )
            for i in best
        )  # fmt: skip
        setbacks = 0 if grew else setbacks + 1
        search.undecided += not grew
        progress.update("gradients", search.spectrum.rank, None, f"rank {search.spectrum.rank}")
    search.finished = search.spectrum.rank >= limit


def add_gradient(
    oracle: Oracle,
    search: SpanSearch,
    place: tuple[FloatArray, FloatArray] | None,
    between: tuple[FloatArray, FloatArray],
    noise: FloatArray,
    rng: np.random.Generator,
    *,
    step: float,
    config: SpanConfig,
) -> bool:
    """Add a gradient that grows the span: at a place, or else where the answer changes."""
    for here in (None,) if place is None else (place, None):
        if here is None:
            y = locate_change(oracle, *between, noise, step=step / config.shrink**2)
            here = (y, oracle(y[None])[0])
        gradient = complete_gradient(oracle, here, noise, rng, step=step, config=config)
        if gradient is None:
            search.rejected += 1
        elif search.add(gradient, config.margin):
            return True
    return False


def complete_gradient(
    oracle: Oracle,
    place: tuple[FloatArray, FloatArray],
    noise: FloatArray,
    rng: np.random.Generator,
    *,
    step: float,
    config: SpanConfig,
) -> GradientRows | None:
    """Measure the gradient at a point and its answer, if it lies in a linear piece."""
    around = find_neighbourhood(oracle, *place, noise, rng, step=step, config=config)
    if around is None:
        return None
    return measure_gradient(oracle, around, config=config)


def confirm_span(oracle: Oracle, search: SpanSearch, *, config: SpanConfig) -> bool:
    """Look at every direction once more, from the other side; drop what does not return.

    Each basis direction is asked for at the point whose gradient holds most of
    it, by a step backwards. A kink that forward steps crossed, or a stroke of
    noise, does not show there: its gradient is dropped. Returns whether all
    directions were seen again.
    """
    g, basis = search.gradients, search.basis
    if len(basis) == 0:
        return True
    parts = g.rows @ basis.T
    best = np.argmax(np.abs(parts) / g.noise[:, None], axis=0)
    step = g.reach[best] / config.shrink
    points = g.points[best]
    asked = oracle(np.concatenate([points, points - step[:, None] * basis]))
    ahead, behind = asked.reshape(2, len(basis), -1)[:, np.arange(len(basis)), g.outputs[best]]
    expected = parts[best, np.arange(len(basis))]
    lost = ~seen_again((ahead - behind) / step, expected)
    if not lost.any():
        return True
    keep = np.setdiff1d(np.arange(len(g.rows)), best[lost])
    search.gradients, search.measured = g.take(keep), search.measured.take(keep)
    search.rejected += len(g.rows) - len(keep)
    search.decide(config.margin)
    return False
