"""What every way of recovering a span shares: its result, and the run that makes it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._types import ArrayLike, FloatArray, IntArray
from unrelu.core.run import Run
from unrelu.errors import InvalidInput
from unrelu.oracles.base import Oracle
from unrelu.result import Certificate, RecoveryResult, Status
from unrelu.span.config import SpanConfig
from unrelu.span.grow import SpanSearch
from unrelu.span.label_search import LabelSearch
from unrelu.span.subspace import complement

__all__ = ["SpanResult", "SpanRun", "unseen_share"]


@dataclasses.dataclass(frozen=True, repr=False)
class SpanResult(RecoveryResult):
    """A recovered span; ``network`` is None.

    Attributes
    ----------
    basis
        Orthonormal rows, ``(r, n)``.
    singular_values
        Of the gradients (normals), weighted by their noise, over the largest.
    noise_floor
        What noise alone would give, in the same units.
    gap
        The smallest accepted singular value over the largest rejected one.
    angle
        Estimated sine of the largest angle between ``basis`` and the span.
    rank_history
        Rank after each gradient, or each batch of normals.
    """

    basis: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    singular_values: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    noise_floor: float = 0.0
    gap: float = 0.0
    angle: float = 1.0
    rank_history: IntArray = dataclasses.field(default_factory=lambda: np.empty(0, dtype=np.intp))

    @property
    def rank(self) -> int:
        """Dimension of the span, r."""
        return len(self.basis)

    def null_space(self) -> FloatArray:
        """Return an orthonormal basis ``(n - r, n)`` of what the target does not see."""
        return complement(self.basis)

    def project(self, x: ArrayLike) -> FloatArray:
        """Project inputs ``(N, n)`` or ``(n,)`` onto the span: all that the target sees."""
        points = np.asarray(x, dtype=np.float64)
        if points.shape[-1:] != self.basis.shape[1:]:
            raise InvalidInput(f"x must end in {self.basis.shape[1]} inputs, got {points.shape}")
        return np.asarray((points @ self.basis.T) @ self.basis)


class SpanRun:
    """A run in search of a span: where it asks, what it found, and the final result.

    ``oracle`` is the run's target, or one output of it.
    """

    def __init__(self, run: Run, oracle: Oracle, config: SpanConfig, scale: float = 1.0) -> None:
        self.run, self.oracle, self.config, self.scale = run, oracle, config, scale
        self.rng, self.progress = run.rng, run.progress
        self.search: SpanSearch | LabelSearch | None = None
        self.certificate: Certificate | None = None
        self.noise = 0.0  # of the noisiest output, once it is measured
        self.stage = run.stage

    def result(self, status: Status, message: str) -> SpanResult:
        """Return what was found so far."""
        n = self.oracle.input_dim
        found: dict[str, Any] = {"basis": np.empty((0, n))}
        if self.search is not None and len(self.search.spectrum.singular_values):
            spectrum = self.search.spectrum
            largest = float(spectrum.singular_values[0]) or 1.0
            found = {
                "basis": self.search.basis,
                "singular_values": spectrum.singular_values / largest,
                "noise_floor": spectrum.floor / largest,
                "gap": spectrum.gap,
                "angle": self.search.angle,
                "rank_history": np.asarray(self.search.ranks, dtype=np.intp),
            }
        return SpanResult(
            status,
            message,
            self.oracle.queries,
            self.run.provenance,
            certificate=self.certificate,
            stages=tuple(self.run.stages),
            **found,
        )

    def stopped(self, status: Status, message: str) -> SpanResult:
        """Return what was found until something ended the run."""
        found = 0 if self.search is None else len(self.search.basis)
        return self.result(status, f"{message}; rank {found} had been found by then")

    def conclude(
        self, search: SpanSearch | LabelSearch, rank: int | None, finished: bool, unseen: str
    ) -> SpanResult:
        """Turn the state of the search and the certificate into a status."""
        found, n = len(search.basis), self.oracle.input_dim
        seen = f"rank {found} of {n} inputs, gap {search.spectrum.gap:.1e}"
        # The limit of whole gradients from one output; a label is one bit of one slope.
        limit = found * n if isinstance(search, SpanSearch) else 0
        spent = self.oracle.queries.without_certificate
        cost = f"{spent:,} queries ({spent / limit:.2f} r·n)" if limit else f"{spent:,} queries"
        if rank is not None and found < rank:
            return self.result(
                Status.PARTIAL,
                f"{seen}, but the rank was said to be {rank}: the rest shows in no gradient "
                f"above the noise; try other outputs, another scale, or sharper answers",
            )
        if search.inconsistent or search.angle * self.config.trust > 1.0:
            return self.result(
                Status.ILL_CONDITIONED,
                f"{seen}, estimated angle {search.angle:.1e}: further directions hide below "
                f"the noise of the answers; sharper answers would show them",
            )
        if not finished:
            return self.result(
                Status.PARTIAL,
                f"{seen}: gradients still leave the span, but none adds a direction above "
                f"the noise; try sharper answers or another scale",
            )
        if self.certificate is not None and self.certificate.exceeding:
            return self.result(
                Status.PARTIAL,
                f"{seen}: {self.certificate.exceeding} of {self.certificate.samples} held-out "
                f"inputs show that the target sees more than this span; ask again with more "
                f"patience or another scale",
            )
        whole = "; the target sees every direction, there is no null space" if found == n else ""
        return self.result(
            Status.RECOVERED,
            f"{seen}, estimated angle {search.angle:.1e}, {cost}; {unseen}{whole}",
        )


def unseen_share(points: int, what: str) -> str:
    """Say which share of inputs may show more although none of ``points`` did."""
    if points == 0:
        return f"the last {what} completed the span"
    seen = Certificate.from_deviations(np.zeros(points), scale=1.0, tolerance=0.0)
    return (
        f"no {what} left the span at {points} points in a row, so with {100 * seen.confidence:g}% "
        f"confidence fewer than {seen.fraction_bound:.1%} do"
    )
