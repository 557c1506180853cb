"""What every way of recovering a span shares: options, result, bookkeeping."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unrelu._types import ArrayLike, FloatArray, IntArray
from unrelu.errors import InvalidInput
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress
from unrelu.result import Certificate, Provenance, RecoveryResult, StageReport, Status
from unrelu.span.grow import GrowthConfig, SpanSearch
from unrelu.span.label_search import LabelConfig, LabelSearch
from unrelu.span.labels import LabelScales
from unrelu.span.subspace import complement
from unrelu.span.values import ValueScales

__all__ = ["SpanConfig", "SpanResult", "SpanRun", "unseen_share"]


@dataclasses.dataclass(frozen=True)
class SpanConfig:
    """Every number that a span recovery uses, by part.

    Attributes
    ----------
    scales, growth
        For values: steps and noise; candidates, patience and margins.
    label_scales, labels
        The same for labels.
    step_share, step_points
        The first step is the longest at which this share of this many Gaussian
        points looks linear: half of them, so that the search for a roomy point
        succeeds at once or at the second attempt.
    tolerance, label_tolerance
        Angles that are sharp enough unless the caller says otherwise: what a
        first round of float64 values reaches, and what one sharpening pass of
        labels does.
    held_out, held_out_boundary
        Held-out inputs of the certificate, for values and for labels (where
        each costs a bisection).
    certificate_margin
        Deviations on held-out inputs are explained by noise and the estimated
        angle up to this factor: the angle is an estimate to within 3, and
        gradients vary in length.
    confidence
        Of the certificate's bound.
    blurred
        Sine of the angle above which a basis is not called recovered.
    saturated
        Gradients in a row that must add nothing before a non-adaptive run
        counts as complete.
    """

    scales: ValueScales = dataclasses.field(default_factory=ValueScales)
    growth: GrowthConfig = dataclasses.field(default_factory=GrowthConfig)
    label_scales: LabelScales = dataclasses.field(default_factory=LabelScales)
    labels: LabelConfig = dataclasses.field(default_factory=LabelConfig)
    step_share: float = 0.5
    step_points: int = 12
    tolerance: float = 1e-8
    label_tolerance: float = 1e-10
    held_out: int = 200
    held_out_boundary: int = 40
    certificate_margin: float = 20.0
    confidence: float = 0.95
    blurred: float = 0.1
    saturated: int = 3


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
    """What every way of recovering shares: options, stages, the final result."""

    def __init__(
        self,
        oracle: Oracle,
        rng: np.random.Generator,
        config: SpanConfig,
        provenance: Provenance,
        progress: Progress,
        scale: float = 1.0,
    ) -> None:
        self.oracle, self.rng, self.config, self.scale = oracle, rng, config, scale
        self.provenance, self.progress = provenance, progress
        self.stages: list[StageReport] = []
        self.search: SpanSearch | LabelSearch | None = None
        self.certificate: Certificate | None = None
        self.noise = 0.0  # of the noisiest output, once it is measured

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Count queries and time of one stage; details may be added to the dict."""
        details: dict[str, Any] = {}
        before, start = self.oracle.queries.total, time.perf_counter()
        try:
            with self.oracle.stage(name):
                yield details
        finally:
            spent = self.oracle.queries.total - before
            seconds = time.perf_counter() - start
            self.stages.append(StageReport(name, spent, seconds, details=details))

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
            self.provenance,
            certificate=self.certificate,
            stages=tuple(self.stages),
            **found,
        )

    def conclude(self, rank: int | None, finished: bool, unseen: str) -> SpanResult:
        """Turn the state of the search and the certificate into a status."""
        assert self.search is not None
        search, found, n = self.search, len(self.search.basis), self.oracle.input_dim
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
        if search.inconsistent or search.angle > self.config.blurred:
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


def unseen_share(points: int, confidence: float, what: str) -> str:
    """Say which share of inputs may show more although none of ``points`` did."""
    share = 1.0 - (1.0 - confidence) ** (1.0 / points) if points else 1.0
    return (
        f"no {what} left the span at {points} points in a row, so with {confidence:.0%} "
        f"confidence fewer than {share:.1%} do"
    )
