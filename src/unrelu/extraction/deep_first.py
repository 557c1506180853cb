"""The first layer of a network: its lines, rows and signs (sections 3.5.1 to 3.5.3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from unrelu._types import FloatArray, IntArray
from unrelu.extraction.deep_answers import Saturated, usable_line
from unrelu.extraction.deep_layers import DEEPER, FIRST, find_first_layer, floored, measure_across
from unrelu.extraction.deep_numbers import FAINT
from unrelu.extraction.deep_rows import (
    PieceGradients,
    Rows,
    join_rows,
    lift_rows,
    measure_rows,
    missing_rank,
    random_basis,
    row_rank,
)
from unrelu.extraction.deep_rows_again import measure_rows_again
from unrelu.extraction.deep_session import Session
from unrelu.extraction.deep_signs import confirm_rows, drop_parallel, orient_rows
from unrelu.extraction.three_layer_config import Failed, ThreeLayerConfig
from unrelu.lines.kinks import LineScan
from unrelu.lines.survey import SurveyLine, calibrate, scan_line
from unrelu.result import Status

__all__ = ["FirstLayer", "find_rows", "orient"]

Expect = Callable[[int, int, int], None]
"""Told a line's kinks, and how many of them are of the first layer and of deeper ones."""


@dataclasses.dataclass(frozen=True)
class FirstLayer:
    """Rows of the first layer in the input space.

    Attributes
    ----------
    rows
        In the standard basis.
    parallel
        Hyperplanes parallel to a row that were left to the second layer.
    signed
        Whether the rows point to where their units are on.
    """

    rows: Rows
    parallel: int = 0
    signed: bool = False

    @property
    def weights(self) -> FloatArray:
        """Unit normals, ``(k, d)``."""
        return self.rows.weights

    @property
    def biases(self) -> FloatArray:
        """Offsets, ``(k,)``."""
        return self.rows.biases


@dataclasses.dataclass(frozen=True)
class _Line:
    """What one line, or several, have shown of the first layer."""

    line: SurveyLine
    rows: Rows
    measured: PieceGradients
    deeper: int
    parallel: int

    def joined(self, other: _Line) -> _Line:
        return _Line(
            self.line,
            join_rows(self.rows, other.rows),
            self.measured.joined(other.measured),
            self.deeper + other.deeper,
            self.parallel + other.parallel,
        )


def search_line(
    session: Session,
    line: SurveyLine,
    basis: FloatArray | None,
    config: ThreeLayerConfig,
    expect: Expect,
) -> _Line:
    """3.5.1 and 3.5.2: kinks of a line, their layers, and the first layer's normals.

    Without a basis, one is drawn that fits the number of rows found.
    """
    d, rng, oracle = session.domain.dimension, session.rng, session.oracle
    with session.stage("calibration"):
        line = usable_line(oracle, line, session.answers)
        noise, seeds = calibrate(session.ask_line, line, near=10.0 * session.domain.scale)
        noise = floored(oracle, noise, d, rng)
    session.progress.update("line search", 0, None)
    with session.stage("line search") as details:
        scan, noise = scan_line(session.ask_line, line, noise, seeds, config=config.survey)
        details |= {"kinks": len(scan.kinks), "rounds": scan.rounds}
    if not scan.complete:
        raise Failed(
            Status.ASSUMPTION_VIOLATED,
            f"a line shows {len(scan.kinks)} kinks and more: the answers are not piecewise "
            "affine with few pieces (smooth activations, probabilities, or noise)",
            final=True,
        )
    session.has_noise(noise)
    session.kinks = max(session.kinks, len(scan.kinks))
    first, deeper = tell_layers(session, line, scan, basis, config)
    expect(len(scan.kinks), len(first), deeper)
    session.progress.update("layer test", 1, 1, f"{len(first)} first-layer hyperplanes")
    if basis is None:
        n = len(first) + config.spare
        # A lift also costs one gradient per row: not worth it for a few directions.
        small = len(first) > 0 and n + config.spare < d
        basis = random_basis(n if small else d, d, rng, line.direction)
    with session.stage("first-layer rows") as details:
        rows, measured = measure_rows(
            oracle, line, scan, noise, first, basis, rng=rng, config=config.rows,
            gradient_config=config.gradients,
        )  # fmt: skip
        rows = measure_rows_again(
            oracle, rows, noise, scale=session.domain.scale, rng=rng,
            gradient_config=config.gradients,
        )  # fmt: skip
        if row_rank(rows) < rows.count or rows.count <= config.rows.few:
            rows = confirm_rows(
                oracle, rows, noise, scale=session.domain.scale, rng=rng, config=config.rows
            )
        kept = without_parallel(session, rows, config)
        details |= {"rows": kept.count, "directions": len(basis)}
    return _Line(line, kept, measured, deeper, rows.count - kept.count)


def tell_layers(
    session: Session,
    line: SurveyLine,
    scan: LineScan,
    basis: FloatArray | None,
    config: ThreeLayerConfig,
) -> tuple[IntArray, int]:
    """Return the kinks of a line that are the first layer's, and how many are deeper."""
    rng, d = session.rng, session.domain.dimension
    with session.stage("layer test") as details:
        if basis is None:
            across = rng.standard_normal(d)
        else:
            across = rng.standard_normal(len(basis)) @ basis
        across -= (across @ line.direction) * line.direction
        length = float(np.linalg.norm(across))
        verdict = np.full(len(scan.kinks), FIRST)
        if d > 1 and length > 0:
            across /= length
            noise = session.noise
            side = measure_across(session.oracle, line, scan, noise, across, config=config.layers)
            verdict = find_first_layer(
                session.oracle, line, scan, noise, side, across, config=config.layers
            )
        first = np.flatnonzero(verdict == FIRST)
        deeper = int(np.count_nonzero(verdict == DEEPER))
        details |= {"first": len(first), "deeper": deeper}
        details["unknown"] = len(verdict) - len(first) - deeper
    return first, deeper


def without_parallel(session: Session, rows: Rows, config: ThreeLayerConfig) -> Rows:
    """Leave hyperplanes that are parallel to a row, behind it, to the second layer."""
    if row_rank(rows) == rows.count:
        return rows
    return drop_parallel(session.oracle, rows, session.noise, config=config.rows)


def lively_line(session: Session, config: ThreeLayerConfig) -> SurveyLine:
    """Return a line through the typical input whose answer is the least usual."""
    points = session.domain.draw(session.answers.look.places, session.rng)
    with session.stage("calibration"):
        answers = session.oracle(points)
    usable = np.isfinite(answers).all(axis=1)
    if not usable.any():
        raise Saturated
    points, answers = points[usable], answers[usable]
    base = points[int(np.argmax(np.abs(answers - np.median(answers, axis=0)).max(axis=1)))]
    other = base + session.rng.standard_normal(session.domain.dimension)
    return session.domain.through(base, other, config.survey.reach)


def _across(session: Session, seen: _Line, config: ThreeLayerConfig) -> SurveyLine | None:
    """Draw a line orthogonal to the rows known; None where they span all of the basis."""
    basis, rng, scale = seen.rows.basis, session.rng, session.domain.scale
    _, _, span = np.linalg.svd(seen.rows.weights, full_matrices=True)
    null = span[seen.rows.count :]
    if len(null) == 0:
        return None
    z = rng.standard_normal(len(null)) @ null @ basis
    base = seen.line.base + rng.standard_normal(len(basis)) @ basis
    reach = config.survey.reach * scale
    return SurveyLine(base, z / np.linalg.norm(z), -reach, reach, scale)


def find_rows(session: Session, config: ThreeLayerConfig, expect: Expect) -> FirstLayer:
    """Find all rows: one line, then lines orthogonal to the rows known; then lift them."""
    d, reach = session.domain.dimension, config.survey.reach
    seen = search_line(session, session.domain.line(session.rng, reach), None, config, expect)
    if seen.rows.count == 0:  # a flat part of the top layer: go where it is not
        seen = search_line(session, lively_line(session, config), None, config, expect)
    for _ in range(config.tries):
        if seen.rows.count > d:
            break
        missing, _ = missing_rank(seen.rows, seen.measured, config=config.rows)
        size = len(seen.rows.basis)
        full = seen.rows.count + missing > size - 2 and size < d
        if missing == 0 and not full:
            break
        if full:
            # Rows may be missing that this basis cannot show: start over in a larger one.
            n = seen.rows.count + 2 * missing + 2 * config.spare
            line = session.domain.line(session.rng, reach)
            n = n if n + config.spare < d else d
            basis = random_basis(n, d, session.rng, line.direction)
            seen = search_line(session, line, basis, config, expect)
            continue
        other = _across(session, seen, config)
        if other is None:
            break
        seen = seen.joined(search_line(session, other, seen.rows.basis, config, expect))
        kept = without_parallel(session, seen.rows, config)
        seen = dataclasses.replace(
            seen, rows=kept, parallel=seen.parallel + seen.rows.count - kept.count
        )
    if seen.rows.count > d and not seen.deeper:
        raise Failed(
            Status.PARTIAL,
            f"{seen.rows.count} first-layer hyperplanes were found with only {d} inputs, and no "
            "hyperplane bends: try extract_two_layer",
            seen.rows,
            final=True,
        )
    if seen.rows.count > d:
        return FirstLayer(seen.rows, seen.parallel)
    return lifted(session, seen, config)


def _known_well(rows: Rows) -> Rows:
    """Leave out rows that were met in pieces too narrow to tell them."""
    good = rows.std <= FAINT
    return Rows(rows.basis, rows.weights[good], rows.std[good], rows.anchors[good])


def lifted(session: Session, seen: _Line, config: ThreeLayerConfig) -> FirstLayer:
    """Return the rows in the input space, where none is missing."""
    missing, part = missing_rank(seen.rows, seen.measured, config=config.rows)
    if missing:
        raise Failed(
            Status.PARTIAL,
            f"gradients leave the span of the {seen.rows.count} first-layer rows found by "
            f"{part:.1g} of their size: at least {missing} more exist whose hyperplanes no "
            "line showed (the top layer may be flat around them)",
            _known_well(seen.rows) if len(seen.rows.basis) == session.domain.dimension else None,
        )
    with session.stage("lift") as details:
        rows, details["condition"] = lift_rows(
            session.oracle, seen.rows, seen.measured, session.noise, rng=session.rng,
            config=config.rows, gradient_config=config.gradients,
        )  # fmt: skip
        # The right inverse magnifies errors by one over the least singular value; the cone
        # of a row should not have to be narrower for it.
        least = float(np.linalg.svd(rows.weights, compute_uv=False).min(initial=1.0))
        rows = measure_rows_again(
            session.oracle, rows, session.noise, scale=session.domain.scale, rng=session.rng,
            worst=config.top.tilt * least, gradient_config=config.gradients,
        )  # fmt: skip
        details["largest error"] = float(rows.std.max(initial=0.0))
    return FirstLayer(rows, seen.parallel)


def orient(session: Session, first: FirstLayer, config: ThreeLayerConfig) -> FirstLayer:
    """3.5.3: signs, and whether the rows behave as a first layer."""
    rows = first.rows
    if rows.count == 0:
        return dataclasses.replace(first, signed=True)
    condition = float(np.linalg.cond(rows.weights))
    if condition > config.ill:
        raise Failed(
            Status.ILL_CONDITIONED,
            f"the first layer's rows are almost dependent (condition {condition:.1g}); "
            "its right inverse would magnify rounding beyond use",
        )
    with session.stage("signs") as details:
        sign, flat, broken = orient_rows(
            session.oracle, rows.weights, rows.biases, rows.anchors, session.noise,
            rng=session.rng, config=config.rows,
        )  # fmt: skip
        details |= {"flat": int(flat.sum()), "broken": int(broken.sum())}
    # A second-layer kink taken for a row is flat in every direction that leaves the true rows
    # alone; what remains is oriented all the same.
    keep = ~flat
    broken = broken[keep]
    if broken.any():
        raise Failed(
            Status.PARTIAL,
            f"{int(broken.sum())} of {len(broken)} first-layer rows change the answer on both "
            "sides of their hyperplane while all other rows are held: a row is missing or "
            "wrong, or the target is not a network with a first layer of at most d units",
        )
    turned = Rows(
        rows.basis, rows.weights[keep] * sign[keep, None], rows.std[keep], rows.anchors[keep]
    )
    return FirstLayer(turned, first.parallel, signed=True)
