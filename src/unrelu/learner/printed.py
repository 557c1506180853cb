"""``faithful=True``: Algorithms 1-4 as printed, within a run of the learner."""

from __future__ import annotations

import dataclasses

from unrelu.errors import InvalidInput
from unrelu.learner.boxes import (
    FaithfulBounds,
    learn_from_queries_as_printed,
    plan_faithful,
)
from unrelu.learner.run import Learning
from unrelu.networks import ReLUNetwork

__all__ = ["neurons_as_printed"]


def neurons_as_printed(learning: Learning) -> ReLUNetwork:
    """Algorithms 1-4 as printed."""
    request, config = learning.request, learning.config
    width, norm, bias = request.width, request.norm_bound, request.bias_bound
    if width is None or norm is None or bias is None:
        raise InvalidInput("faithful=True needs width (k), norm_bound (R) and bias_bound (B)")
    learning.sample(config.pilot)
    epsilon = learning.seen.epsilon
    # Neurons of norm below epsilon / k may be replaced by constants (proof of Theorem 4.8).
    smallest = max(epsilon / width, config.constants.smallest * norm)
    bounds = FaithfulBounds(width, norm, bias, smallest)
    # The boxes cost what their formulas say, and a certificate comes on top.
    asked = plan_faithful(epsilon, request.delta, learning.d, bounds, config.constants).queries
    learning.target.allowance.plan((asked, asked + config.most))
    with learning.run.stage("as printed") as details:
        network, plan = learn_from_queries_as_printed(
            learning.target,
            epsilon,
            request.delta,
            bounds=bounds,
            constants=config.constants,
            rng=learning.rng,
            most=config.most,
            each=2.0 * config.samples_per_parameter,
        )
        details |= dataclasses.asdict(plan)
    return network
