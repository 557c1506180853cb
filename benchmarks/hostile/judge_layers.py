"""Hold spans, layers, halfspaces and obfuscated inputs against the truth.

For these *false* is defined as for networks (:mod:`benchmarks.hostile.judge`):

* a span: a *spurious* direction, farther from the true rows' span than
  :data:`ANGLE_FACTOR` times the result's own ``angle``; or a *missing* one, by the
  certificate's own test: replacing all that lies outside the span changes the answers
  beyond its tolerance on more fresh inputs than its bound. From labels that test moves
  boundary points along the null space, as the certificate does.
* directions of units and halfspaces: one that lies farther from every true one than
  :data:`STANDARD_ERRORS` of its own ``angle_errors``; one unit twice; one that stands for
  two which are farther apart than that; or, for units that are on or off, labels that
  contradict the true ones on more fresh inputs than the certificate's bound (a unit may be
  missing that is rarer than that).
* binary supports: any set that is not the planted one.
* learning from samples: as for networks; with label noise also a misfit larger than
  :data:`MISFIT` times what noise leaves in a least-squares fit, sigma * sqrt(P / n).
* obfuscated inputs: what was added inside the span, measured again, exceeds what is said.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.hostile.case import Array, Function, Planted, Verdict
from benchmarks.hostile.judge import FRESH, judge_network, more_than, status_of
from unrelu import ReLUNetwork

ANGLE_FACTOR = 10.0
"""By its docs the estimated angle of a span is usually right within a factor of 3; a verdict
at confidence 0.9999 must leave room for what is unusual."""
STANDARD_ERRORS = 5.0
"""|N(0, 1)| exceeds 3.9 with chance 1e-4; the standard error itself is an estimate."""
FINEST = 1e-9
"""Angles below this are rounding, whatever was stated."""
MERGED = 0.1
"""A true unit this near to a found one, in radians, was not overlooked but taken for it."""
DETECTED = 1e-2
"""The detector states no angle: it settles units at 1e-4, and this leaves it two digits."""
MISFIT = 5.0


def _begin(result: Any) -> tuple[str, dict[str, Any]]:
    status = status_of(result)
    return status, {"status": status, "message": str(result.message)[:300]}


def row_space(rows: Array) -> Array:
    """Return an orthonormal basis of the rows' span, ``(r, n)``."""
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(vt[: int(np.count_nonzero(s > 1e-12 * s.max(initial=0.0)))])


def judge_span(
    planted: Planted, result: Any, *, rng: np.random.Generator, labels: bool = False
) -> Verdict:
    """Judge a recovered span; ``planted.rows`` hold the truth, or those of a later network."""
    targets = [planted]
    for phase in planted.phases() if planted.phases is not None else []:
        if isinstance(phase, ReLUNetwork):
            targets.append(planted.but(truth=phase, rows=phase.weights[0]))
    verdicts = [_judge_span_of(target, result, rng, labels) for target in targets]
    return next((v for v in verdicts if v.outcome != "false"), verdicts[0])


def _judge_span_of(
    planted: Planted, result: Any, rng: np.random.Generator, labels: bool
) -> Verdict:
    status, facts = _begin(result)
    if status != "RECOVERED":
        return Verdict("honest", status, facts)
    basis, certificate = np.asarray(result.basis), result.certificate
    assert planted.rows is not None
    true = row_space(planted.rows)
    outside = basis - basis @ true.T @ true
    sine = float(np.linalg.norm(outside, 2)) if outside.size else 0.0
    facts |= {"rank": len(basis), "true rank": len(true), "sine": sine, "angle": result.angle}
    if sine > max(ANGLE_FACTOR * float(result.angle), FINEST):
        return Verdict(
            "false", f"spurious: sine {sine:.2g}, stated {float(result.angle):.2g}", facts
        )
    if len(basis) < len(true) and certificate is not None:
        count, n = (_label_moves if labels else _value_moves)(planted, basis, certificate, rng)
        facts |= {"exceeding": count, "fresh": n, "bound": float(certificate.fraction_bound)}
        if more_than(count, n, float(certificate.fraction_bound)):
            return Verdict(
                "false",
                f"missing: rank {len(basis)} of {len(true)}; {count} of {n} inputs see more, at "
                f"most {certificate.fraction_bound:.2g} of them were to",
                facts,
            )
    return Verdict("right", "", facts)


def _outside(basis: Array, n: int, d: int, rng: np.random.Generator) -> Array:
    """Draw unit vectors orthogonal to the basis."""
    u = rng.standard_normal((n, d))
    u -= u @ basis.T @ basis
    return np.asarray(u / np.linalg.norm(u, axis=1, keepdims=True))


def _value_moves(
    planted: Planted, basis: Array, certificate: Any, rng: np.random.Generator
) -> tuple[int, int]:
    x = rng.standard_normal((FRESH, planted.d))
    length = np.linalg.norm(x, axis=1, keepdims=True)
    other = x @ basis.T @ basis + length * _outside(basis, FRESH, planted.d, rng)
    change = np.abs(planted.truth(x) - planted.truth(other)).max(axis=1)
    return int(np.count_nonzero(change > certificate.tolerance)), FRESH


def _label_moves(
    planted: Planted, basis: Array, certificate: Any, rng: np.random.Generator
) -> tuple[int, int]:
    def label(x: Array) -> Array:
        return planted.truth(x)[:, 0]

    p, q = rng.standard_normal((2, FRESH, planted.d))
    differ = label(p) != label(q)
    p, q = p[differ][:4000], q[differ][:4000]
    if len(p) == 0:
        return 0, 1
    start = label(p)
    for _ in range(60):
        middle = 0.5 * (p + q)
        same = (label(middle) == start)[:, None]
        p, q = np.where(same, middle, p), np.where(same, q, middle)
    step = q - p
    length = np.linalg.norm(step, axis=1, keepdims=True)
    within = float(certificate.details.get("within", 1e-6))
    # Rounding may leave no direction between two neighbouring floats: take a random one.
    across = np.where(length > 0, step / np.where(length > 0, length, 1.0), 0.0)
    move = math.sqrt(planted.d) * _outside(basis, len(p), planted.d, rng)
    near, far = p - 2.0 * within * across, q + 2.0 * within * across
    plain = (label(near) == start) & (label(far) != start)
    stays = (label(near + move) == label(near)) & (label(far + move) == label(far))
    return int(np.count_nonzero(plain & ~stays)), max(1, int(np.count_nonzero(plain)))


def _angles(found: Array, true: Array, either_sign: bool) -> Array:
    """Return the angle between every found and every true direction."""
    a = found / np.linalg.norm(found, axis=1, keepdims=True)
    b = true / np.linalg.norm(true, axis=1, keepdims=True)
    apart = np.linalg.norm(a[:, None] - b[None], axis=2)
    if either_sign:
        apart = np.minimum(apart, np.linalg.norm(a[:, None] + b[None], axis=2))
    return np.asarray(2.0 * np.arcsin(np.clip(apart / 2.0, 0.0, 1.0)))


def judge_directions(
    result: Any,
    true: Array,
    *,
    on: Function | None = None,
    either_sign: bool = False,
    stated: Array | None = None,
    complete: bool = False,
    rng: np.random.Generator,
) -> Verdict:
    """Judge directions ``(k, n)`` of units or halfspaces.

    ``on`` is the true label of an input, ``(n, d) -> (n,)``. With ``complete`` every
    true direction must lie within the stated error of one that was found.
    """
    status, facts = _begin(result)
    if status != "RECOVERED":
        return Verdict("honest", status, facts)
    found = np.asarray(result.directions)
    errors = np.asarray(result.angle_errors if stated is None else stated, dtype=float)
    facts |= {"units": len(found), "true units": len(true)}
    if len(found) == 0:
        if len(true) and complete:
            return Verdict("false", "missing: RECOVERED without a unit", facts)
    elif len(true) == 0:
        return Verdict("false", f"spurious: {len(found)} units, where there is none", facts)
    else:
        angles = _angles(found, true, either_sign)
        limit = np.maximum(STANDARD_ERRORS * np.nan_to_num(errors, nan=0.0), FINEST)
        nearest = angles.min(axis=1)
        facts["angle"] = float(nearest.max())
        if (nearest > limit).any():
            worst = int(np.argmax(nearest / limit))
            return Verdict(
                "false",
                f"spurious: {nearest[worst]:.2g} rad from every true unit, stated error "
                f"{errors[worst]:.2g}",
                facts,
            )
        owners = angles.argmin(axis=1)
        if len(set(owners.tolist())) < len(owners) and len(found) > len(true):
            return Verdict("false", f"spurious: {len(found)} units for {len(true)}", facts)
        alone = (angles > limit[:, None]).all(axis=0)  # true ones that no found one stands for
        if complete and alone.any():
            return Verdict("false", f"missing: {len(found)} units of {len(true)}", facts)
        if (alone & (angles.min(axis=0) < MERGED)).any():
            return Verdict(
                "false",
                f"merged: {len(found)} units for {len(true)}; one stands for two that are "
                f"farther apart than its error of {errors.max():.2g}",
                facts,
            )
    certificate = result.certificate
    if on is not None and certificate is not None:
        x = rng.standard_normal((FRESH, true.shape[1]))
        heights = x @ found.T - np.asarray(result.thresholds) if len(found) else np.zeros((1, 1))
        said = (heights > 0).any(axis=1) if len(found) else np.zeros(FRESH, dtype=bool)
        count = int(np.count_nonzero(said != on(x).astype(bool)))
        facts |= {"exceeding": count, "fresh": FRESH, "bound": float(certificate.fraction_bound)}
        if more_than(count, FRESH, float(certificate.fraction_bound)):
            return Verdict(
                "false",
                f"wrong: {count} of {FRESH} labels differ, at most "
                f"{certificate.fraction_bound:.2g} of them were to",
                facts,
            )
    return Verdict("right", "", facts)


def judge_supports(result: Any, true: Array) -> Verdict:
    """Judge binary supports, ``(k, n)``."""
    status, facts = _begin(result)
    if status != "RECOVERED":
        return Verdict("honest", status, facts)
    found = {tuple(row) for row in np.asarray(result.supports).astype(int).tolist()}
    wanted = {tuple(row) for row in np.asarray(true).astype(int).tolist()}
    if found != wanted:
        return Verdict("false", f"wrong: supports {sorted(found)} for {sorted(wanted)}", facts)
    return Verdict("right", "", facts)


def judge_samples(
    planted: Planted, result: Any, *, noise: float, rows: int, rng: np.random.Generator
) -> Verdict:
    """Judge a network learned from ``rows`` samples with label noise of ``noise``."""
    verdict = judge_network(planted.but(noise=noise), result, rng=rng)
    if verdict.outcome != "right" or noise == 0.0:
        return verdict
    x = (
        rng.standard_normal((FRESH, planted.d))
        if planted.draw is None
        else planted.draw(FRESH, rng)
    )
    misfit = float(np.sqrt(np.mean((planted.truth(x) - result.network(x)) ** 2)))
    due = noise * math.sqrt(result.network.parameters / rows)
    facts = {**verdict.facts, "misfit": misfit, "due": due}
    if misfit > MISFIT * due:
        return Verdict(
            "false",
            f"wrong: rms misfit {misfit:.2g} with noise {noise:.2g}, which alone would leave "
            f"{due:.2g}",
            facts,
        )
    return Verdict("right", "", facts)


def judge_obfuscation(
    x: Array, basis: Array, result: Any, box: tuple[float, float] | None
) -> Verdict:
    """Judge obfuscated inputs by what they say about themselves."""
    images = np.asarray(result.images)
    if images.shape != x.shape or not np.isfinite(images).all():
        return Verdict("false", f"wrong: images of shape {images.shape}, or not finite")
    norm = np.maximum(np.linalg.norm(x, axis=1), 1e-300)
    inside = np.linalg.norm((images - x) @ basis.T, axis=1) / norm
    stated = np.asarray(result.affine_residual)
    facts = {"inside": float(inside.max()), "stated": float(stated.max())}
    if (inside > stated + 1e-9).any():
        return Verdict(
            "false", f"wrong: {inside.max():.2g} of an input changed in the span", facts
        )
    if box is not None:
        excess = float(max((box[0] - images).max(), (images - box[1]).max(), 0.0))
        if excess > float(np.asarray(result.box_residual).max()) + 1e-12:
            return Verdict("false", f"wrong: {excess:.2g} outside the box", facts)
    return Verdict("right", "", facts)
