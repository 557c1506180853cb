"""Coarse answers in a box or in the orthant: the search of a box, checked beyond it."""

from __future__ import annotations

import dataclasses

import numpy as np

from unrelu.core.run import Run
from unrelu.extraction.box import BoxConfig, BoxResult, BoxRun
from unrelu.extraction.two_layer_result import TwoLayerResult
from unrelu.lines.domains import Domain, as_domain
from unrelu.result import Status

__all__ = ["recover_in_bounds"]


def recover_in_bounds(run: Run, domain: Domain, answers: str) -> TwoLayerResult:
    """Recover one hidden layer in a bounded domain.

    Of the orthant a box is searched, as far out along each axis as typical inputs are long;
    what lies beyond is compared with a few answers there.
    """
    area, config = domain, BoxConfig()
    if domain.kind == "nonnegative":
        area = as_domain((0.0, domain.scale), domain.dimension)
    search = BoxRun(run, area, config)
    search.look(answers, None)
    result = search.searched()
    certified = result.status in (Status.RECOVERED, Status.APPROXIMATED)
    if certified and domain.kind == "nonnegative":
        result = _beyond(run, domain, search, result)
    return TwoLayerResult(
        status=result.status,
        message=result.message,
        queries=run.target.queries,
        provenance=run.provenance,
        network=result.network,
        certificate=result.certificate,
        stages=tuple(run.stages),
        width=result.width,
        signs_determined=result.signs_determined,
        noise=result.noise,
        answers=result.answers,
    )


def _beyond(run: Run, domain: Domain, search: BoxRun, result: BoxResult) -> BoxResult:
    """Certify the orthant at its own inputs; look at far ones, one on every half-axis."""
    d, n = domain.dimension, search.config.held_out
    far = domain.scale ** run.rng.uniform(1.0, 4.0, size=(d, 1)) * np.eye(d)
    with run.stage("certificate"):
        held = search.beyond(domain.draw(2 * n, run.rng))
        wide = search.beyond(np.concatenate([domain.draw_wide(n, run.rng), far]))
    seen = search.compared(held, domain.distribution)
    over = np.concatenate([seen.over, search.compared(wide, domain.distribution).over])
    status, message = result.status, f"{result.width} hidden units; {seen.certificate}"
    if not seen.exact:
        status, message = Status.APPROXIMATED, f"{message}; the answers are coarse"
    if over.any():
        status = Status.PARTIAL
        message = (
            f"the network agrees with the target in the box [0, {domain.scale:.3g}]^{d}, but not "
            f"at {np.count_nonzero(over)} of {len(over)} inputs beyond: units switch there; give "
            "domain=(low, high) to search another box"
        )
    certificate = seen.certificate
    return dataclasses.replace(result, status=status, message=message, certificate=certificate)
