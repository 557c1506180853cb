"""What becomes of the result of the method that was chosen: its form, its units, its words."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._choose_plan import ExtractionPlan
from unrelu._types import FloatArray
from unrelu.core.frame import Frame
from unrelu.core.record import Remembered
from unrelu.extraction.leaky import LeakyResult
from unrelu.extraction.three_layer import ThreeLayerResult
from unrelu.labels.algorithm import LabelsResult
from unrelu.lines.facts import Facts
from unrelu.networks import ReLUNetwork
from unrelu.result import Provenance, RecoveryResult, Status
from unrelu.smooth.piecewise import in_own_form, layers_in_own_form
from unrelu.span.algorithm import SpanResult

__all__ = [
    "DeepSpanResult",
    "called_no_network",
    "in_its_own_form",
    "in_its_own_units",
    "nothing_recovered",
    "with_first_layer",
]


@dataclasses.dataclass(frozen=True, repr=False)
class DeepSpanResult(SpanResult):
    """The span of a network too deep to be recovered, and the first layer as far as found.

    Attributes
    ----------
    first_width
        First-layer hyperplanes found.
    first_weights, first_biases
        The hyperplanes, ``(k, d)`` and ``(k,)``, of unit length.
    """

    first_width: int = 0
    first_weights: FloatArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    first_biases: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))


def nothing_recovered(
    target: Remembered, plan: ExtractionPlan, provenance: Provenance
) -> RecoveryResult:
    seen = plan.diagnosis
    message = (
        f"This is no ReLU network, and none is returned. What was still learned: {seen.outline}"
    )
    if seen.kind == "labels":
        message = "Nothing was recovered; give no range if the target takes any input"
    message = f"{plan.reason}. {message}"
    return RecoveryResult(Status.ASSUMPTION_VIOLATED, message, target.queries, provenance)


def called_no_network(result: RecoveryResult, facts: Facts) -> RecoveryResult:
    """Say of a smooth target's span that the target is no ReLU network."""
    if facts.diagnosis.piecewise_linear is not False or not isinstance(result, SpanResult):
        return result
    status = result.status
    if status is not Status.BUDGET_EXHAUSTED:
        status = Status.ASSUMPTION_VIOLATED
    return dataclasses.replace(
        result,
        status=status,
        message="This is no ReLU network that could be recovered, and none is returned. What was "
        f"seen and still learned: {result.message}",
    )


def with_first_layer(result: RecoveryResult, facts: Facts) -> RecoveryResult:
    """Join a span with the hyperplanes of the first layer that an attempt has found."""
    deep = facts.tried("extract_three_layer") or facts.tried("extract_from_labels")
    if not isinstance(result, SpanResult):
        return result
    if not isinstance(deep, (ThreeLayerResult, LabelsResult)):
        return result
    fields = {f.name: getattr(result, f.name) for f in dataclasses.fields(SpanResult)}
    width = len(deep.first_weights)
    if width:
        fields["message"] = f"{result.message}. {width} hyperplanes of the first layer were found"
    return DeepSpanResult(
        **fields,
        first_width=width,
        first_weights=deep.first_weights,
        first_biases=deep.first_biases,
    )


def in_its_own_form(result: RecoveryResult) -> RecoveryResult:
    """Return ReLUs that are another piecewise linear activation in disguise as that."""
    network, certificate = result.network, result.certificate
    if not result.success or certificate is None or network is None:
        return result
    if isinstance(result, LeakyResult):
        form = layers_in_own_form(network)
    elif isinstance(network, ReLUNetwork) and network.depth == 2:
        form = in_own_form(network)
    else:
        return result
    if form.recognised == "relu" or form.difference * certificate.scale > certificate.tolerance:
        return result
    return dataclasses.replace(
        result, network=form.network, message=f"{result.message}. In its own form: {form.message}"
    )


def in_its_own_units(result: RecoveryResult, frame: Frame) -> RecoveryResult:
    """Return a result of a frame's coordinates in the target's own."""
    changes: dict[str, Any] = {}
    if result.network is not None:
        changes["network"] = frame.network(result.network)
    if isinstance(result, SpanResult):
        changes["basis"] = frame.basis(result.basis)
    rows = getattr(result, "first_weights", None)
    if rows is not None and len(rows):
        length = np.linalg.norm(rows / frame.scale, axis=1)
        biases = getattr(result, "first_biases") - rows @ (frame.center / frame.scale)  # noqa: B009
        changes["first_weights"] = rows / frame.scale / length[:, None]
        changes["first_biases"] = biases / length
    if result.certificate is not None:
        told = result.certificate.distribution.replace("standard Gaussian", "Gaussian")
        told = f"{told} (centre and scale: {frame.source})"
        certificate = dataclasses.replace(result.certificate, distribution=told)
        changes["certificate"] = certificate
        changes["message"] = result.message.replace(str(result.certificate), str(certificate))
    return dataclasses.replace(result, **changes)
