"""What a run of the learner amounts to: its result, what was assumed, its status in words."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from unrelu.learner.certificate import SquareLoss
from unrelu.learner.formulas import width_seen
from unrelu.learner.neurons import Neurons
from unrelu.learner.run import Learning
from unrelu.networks import ReLUNetwork
from unrelu.result import RecoveryResult, Status

__all__ = ["LearnerResult", "bounds_in_force", "result_of", "verdict"]


@dataclasses.dataclass(frozen=True, repr=False)
class LearnerResult(RecoveryResult):
    """A learned network and what was assumed about the target.

    Attributes
    ----------
    epsilon
        Root mean square error asked for, in answer units.
    reached
        Upper confidence bound on the root mean square error that was reached.
    width
        Hidden neurons of the learned network.
    norm_bound, bias_bound
        R and B in force: given, or the largest seen.
    narrowest
        Width of the narrowest bump that was looked for, in input units.
    assumed
        The same in words, with what was given and what was assumed.
    noise
        Standard deviation of an answer's error near the origin.
    """

    epsilon: float = 0.0
    reached: float = math.inf
    width: int = 0
    norm_bound: float = 0.0
    bias_bound: float = 0.0
    narrowest: float = math.inf
    assumed: str = ""
    noise: float = 0.0


def result_of(
    learning: Learning,
    status: Status,
    message: str,
    network: ReLUNetwork | None,
    checked: SquareLoss | None = None,
) -> LearnerResult:
    """Return what is known now."""
    seen = learning.seen
    facts = {} if network is None else bounds_in_force(learning, network)
    return LearnerResult(
        status=status,
        message=message,
        queries=learning.target.queries,
        provenance=learning.run.provenance,
        network=network,
        certificate=None if checked is None else checked.certificate,
        stages=tuple(learning.run.stages),
        epsilon=seen.epsilon if len(seen.x) else learning.request.epsilon,
        reached=math.inf if checked is None else math.sqrt(checked.bound),
        width=0 if network is None else network.hidden_widths[0],
        norm_bound=float(facts.get("norm bound R", 0.0)),
        bias_bound=float(facts.get("bias bound B", 0.0)),
        narrowest=float(facts.get("narrowest bump looked for", math.inf)),
        assumed=str(facts.get("assumed", "")),
        noise=seen.level,
    )


def bounds_in_force(learning: Learning, network: ReLUNetwork) -> dict[str, float | str]:
    """Return the bounds in force, given or seen, in numbers and in words."""
    request, seen = learning.request, learning.seen
    rows, outputs = network.weights[0], network.weights[1]
    skip = np.zeros((len(outputs), learning.d)) if network.skip is None else network.skip
    strength = np.linalg.norm(outputs, axis=0)
    seen_bias = float((np.abs(network.biases[0]) * strength).max(initial=0.0))
    compressed = Neurons(rows, network.biases[0], outputs, skip, network.biases[1])
    learned = compressed if learning.learned is None else learning.learned
    norm, total = seen.radius(learned), seen.hidden_total(learned)
    if request.told:
        # Neurons of F that are found may be so wrongly: the difference has those of both.
        total += float(learned.strengths.sum())
    bias = request.bias_bound if request.bias_bound is not None else seen_bias
    looked = width_seen(seen.samples, learning.config.miss)

    def said(given: object) -> str:
        return "given" if given is not None else "assumed, as seen"

    words = [
        f"k = {request.width} given" if request.width is not None
        else f"k assumed {len(rows)}, as found",
        f"R = {norm:.3g} {said(request.norm_bound)}",
        f"B = {bias:.3g} {said(request.bias_bound)}",
        f"norms of neurons that may hide add up to {total:.3g}",
        f"bumps looked for down to a width of {looked:.2g}",
    ]  # fmt: skip
    return {
        "norm bound R": norm,
        "bias bound B": bias,
        "norms that may hide, in all": total,
        "narrowest bump looked for": looked,
        "assumed": "; ".join(words),
    }


def verdict(learning: Learning, network: ReLUNetwork, checked: SquareLoss) -> tuple[Status, str]:
    """Judge a certificate: a status, and what was seen and what to try in words."""
    seen, certificate = learning.seen, checked.certificate
    reached, error = math.sqrt(checked.bound), math.sqrt(certificate.details["square loss"])
    base = (
        f"{network.hidden_widths[0]} hidden neurons; root mean square error {error:.2g} on "
        f"held-out inputs, at most {reached:.2g} with {1 - learning.request.delta:.0%} "
        f"confidence, {seen.epsilon:.2g} asked"
    )
    # Inputs that stand out refute what was assumed, and the bound with it; what was given
    # holds, and the bound counts them.
    against = 0 if learning.request.told else len(checked.hit_inputs)
    if learning.learned is not None:
        against += seen.unexplained(learning.learned)
    if reached <= seen.epsilon and not against:
        return Status.RECOVERED, base + _too_quiet(learning)
    if error <= seen.epsilon and against:
        where = np.concatenate([checked.hit_inputs, seen.doubts[0]])
        return Status.APPROXIMATED, (
            f"{base}: most inputs agree, but {against} stand out, one at "
            f"{np.array2string(where[0][:6], precision=3)}, and lines through them found no "
            "neurons that explain it; try another seed, or narrowest=... for thin bumps"
        )
    if error <= seen.epsilon:
        narrow = certificate.details["narrowest bump that could be seen"]
        asked = certificate.samples + int(certificate.details["wide inputs"])
        return Status.PARTIAL, (
            f"{base}: the {asked:,} held-out inputs agree, but a bump narrower "
            f"than {narrow:.2g} could hide between them; raise "
            "certificate_samples or the budget, or give a smaller norm_bound"
        )
    if learning.neurons is None:
        return Status.PARTIAL, (
            f"{base}: the intervals of the line are too long or do not reach far enough; use "
            "constants closer to the paper's, or leave faithful off"
        )
    much = error > learning.config.foreign * certificate.scale
    if much and seen.level < learning.config.foreign * error:
        return Status.ASSUMPTION_VIOLATED, (
            f"{base}: much is left unexplained, so the target may have more than one hidden "
            "layer, a smooth activation, or bumps thinner than were looked for (narrowest=...)"
        )
    return Status.PARTIAL, (
        f"{base}; noise of the answers {seen.level:.2g}. Try another seed, a larger epsilon, or "
        "narrowest=... where thin bumps are expected"
    )


def _too_quiet(learning: Learning) -> str:
    """Name the outputs that epsilon, which counts all together, says nothing about."""
    seen = learning.seen
    quiet = np.flatnonzero(seen.y[seen.gaussian].std(axis=0) <= seen.epsilon)
    if len(quiet) == 0 or learning.m == 1:
        return ""
    names = ", ".join(str(i) for i in quiet[:8]) + (", ..." if len(quiet) > 8 else "")
    return (
        f". The error is that of all outputs together; output {names} varies by less than that, "
        "and nothing is said about it: learn it alone, or scale the outputs alike"
    )
