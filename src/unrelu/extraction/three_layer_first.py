"""The first layer in depth-3 extraction: its lines, rows and signs.

:mod:`unrelu.extraction.three_layer_stages` goes on from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.levels import output_levels
from unrelu.core.noise import NoiseModel
from unrelu.core.run import reported_stage
from unrelu.extraction.deep_answers import Recorder, Saturated, as_log_odds, usable_line
from unrelu.extraction.deep_layers import DEEPER, FIRST, find_first_layer, floored, measure_across
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
from unrelu.extraction.deep_signs import confirm_rows, drop_parallel, orient_rows
from unrelu.extraction.three_layer_config import Failed, ThreeLayerConfig
from unrelu.lines.domains import as_domain
from unrelu.lines.survey import SurveyLine, calibrate, scan_line
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle
from unrelu.oracles.wrappers import LogOdds
from unrelu.progress import Progress
from unrelu.result import StageReport, Status

__all__ = ["FirstLayer"]


class FirstLayer:
    """The state that all stages share, and the stages up to the signs of the rows."""

    def __init__(
        self,
        oracle: Oracle,
        rng: np.random.Generator,
        progress: Progress,
        config: ThreeLayerConfig,
    ) -> None:
        self.oracle = Recorder(oracle)
        self.rng, self.progress, self.config = rng, progress, config
        self.domain = as_domain("all", oracle.input_dim)
        self.stages: list[StageReport] = []
        self.noise: NoiseModel | None = None
        self.rows: Rows | None = None
        self.weights = np.empty((0, oracle.input_dim))
        self.biases = np.empty(0)
        self.signed = False
        self.best = (self.weights, self.biases, False)
        self.condition = 0.0
        self.network: ReLUNetwork | None = None
        self.free: list[BoolArray] = []
        self.second_width = 0
        self.check_error = np.inf
        self.reference = 0
        self.starts = 0
        self.deeper = 0
        self.kinks = 0
        self.parallel = 0
        self.all_rows = False
        self.expect: Callable[[int, int, int], None] = lambda kinks, first, deeper: None

    def stage(self, name: str) -> AbstractContextManager[dict[str, Any]]:
        """Charge and time what happens inside; details may be filled in."""
        return reported_stage(self.oracle, self.stages, name)

    def look(self, answers: str, reference: int | None = None) -> None:
        """Find out whether the answers are probabilities, and turn to log-odds if so.

        With a ``reference`` class they are known to be.
        """
        config, target = self.config.answers, self.oracle.inner
        if reference is not None:
            view: LogOdds | None = LogOdds(target, reference=reference)
        else:
            with self.stage("calibration"):
                view = as_log_odds(target, answers, self.rng, config)
        if view is not None:
            single = view.inner.output_dim == 1
            high = config.highest_single if single else config.deepest
            self.oracle = Recorder(view, low=-config.deepest, high=high)
            self.reference = view.reference
        elif target.output_dim > 1:
            with self.stage("calibration"):
                typical = self.rng.standard_normal((config.balance, target.input_dim))
                self.oracle = Recorder(target, units=output_levels(target(typical)))

    def remember(self) -> bool:
        """Keep the rows of a start that failed; whether it has no fewer than any before."""
        better = len(self.weights) >= len(self.best[0])
        if better:
            self.best = (self.weights, self.biases, self.signed)
        return better

    def ask_line(self, points: FloatArray) -> FloatArray:
        """Ask where every answer is needed."""
        answers = self.oracle(points)
        if np.isnan(answers).any():
            raise Saturated
        return answers

    def spreads(self, answers: FloatArray) -> FloatArray:
        """Return how much each output varies among answers at typical inputs, ``(m,)``.

        A target that is flat there varies at inputs that found its kinks; an output that
        never does is judged by the others, or by its size.
        """
        config = self.config
        near = [y for _, y in self.oracle.batches(config.around * self.domain.scale)]
        spread = np.maximum(answers.std(axis=0), config.flat * np.concatenate(near).std(axis=0))
        largest = float(spread.max()) or float(np.abs(answers).max(initial=0.0)) or 1.0
        return np.where(spread > 0.0, spread, largest)

    def search_line(
        self, line: SurveyLine, basis: FloatArray | None
    ) -> tuple[Rows, PieceGradients, FloatArray]:
        """3.5.1 and 3.5.2: kinks of a line, their layers, and the first layer's normals.

        Without a basis, one is drawn that fits the number of rows found.
        """
        config = self.config
        with self.stage("calibration"):
            line = usable_line(self.oracle, line, config.answers)
            noise, seeds = calibrate(self.ask_line, line, near=10.0 * self.domain.scale)
            noise = floored(self.oracle, noise, self.domain.dimension, self.rng)
        self.progress.update("line search", 0, None)
        with self.stage("line search") as details:
            scan, noise = scan_line(self.ask_line, line, noise, seeds, config=config.survey)
            details |= {"kinks": len(scan.kinks), "rounds": scan.rounds}
        if not scan.complete:
            raise Failed(
                Status.ASSUMPTION_VIOLATED,
                f"a line shows {len(scan.kinks)} kinks and more: the answers are not piecewise "
                "affine with few pieces (smooth activations, probabilities, or noise)",
                final=True,
            )
        self.noise = noise
        self.kinks = max(self.kinks, len(scan.kinks))
        with self.stage("layer test") as details:
            if basis is None:
                across = self.rng.standard_normal(self.domain.dimension)
            else:
                across = self.rng.standard_normal(len(basis)) @ basis
            across -= (across @ line.direction) * line.direction
            length = float(np.linalg.norm(across))
            if self.domain.dimension > 1 and length > 0:
                across /= length
                side = measure_across(self.oracle, line, scan, noise, across, config=config.layers)
                verdict = find_first_layer(
                    self.oracle, line, scan, noise, side, across, config=config.layers
                )
            else:
                verdict = np.full(len(scan.kinks), FIRST)
            first = np.flatnonzero(verdict == FIRST)
            deeper = int(np.count_nonzero(verdict == DEEPER))
            details |= {"first": len(first), "deeper": deeper}
            details["unknown"] = len(verdict) - len(first) - deeper
        self.deeper += deeper
        self.expect(len(scan.kinks), len(first), deeper)
        self.progress.update("layer test", 1, 1, f"{len(first)} first-layer hyperplanes")
        if basis is None:
            n = len(first) + config.spare
            d = self.domain.dimension
            # A lift also costs one gradient per row: not worth it for a few directions.
            small = len(first) > 0 and n + 3 < d and not self.all_rows
            basis = random_basis(n if small else d, d, self.rng, line.direction)
        with self.stage("first-layer rows") as details:
            rows, measured = measure_rows(
                self.oracle,
                line,
                scan,
                noise,
                first,
                basis,
                rng=self.rng,
                config=config.rows,
                gradient_config=config.gradients,
            )
            rows = measure_rows_again(
                self.oracle,
                rows,
                noise,
                scale=self.domain.scale,
                rng=self.rng,
                gradient_config=config.gradients,
            )
            details |= {"rows": rows.count, "directions": len(basis)}
            if row_rank(rows) < rows.count or rows.count <= config.rows.few:
                rows = confirm_rows(
                    self.oracle,
                    rows,
                    noise,
                    scale=self.domain.scale,
                    rng=self.rng,
                    config=config.rows,
                )
                details["confirmed"] = rows.count
            rows = self.without_parallel(rows)
            details["parallel"] = self.parallel
        return rows, measured, basis

    def without_parallel(self, rows: Rows) -> Rows:
        """Leave hyperplanes that are parallel to a row, behind it, to the second layer.

        Where a start has failed for it, they are taken for rows.
        """
        assert self.noise is not None
        if self.all_rows or row_rank(rows) == rows.count:
            return rows
        kept = drop_parallel(self.oracle, rows, self.noise, config=self.config.rows)
        self.parallel += rows.count - kept.count
        return kept

    def lively_line(self) -> SurveyLine:
        """Return a line through the typical input whose answer is the least usual."""
        points = self.rng.standard_normal((self.config.lively, self.domain.dimension))
        with self.stage("calibration"):
            answers = self.oracle(points)
        usable = np.isfinite(answers).all(axis=1)
        if not usable.any():
            raise Saturated
        points, answers = points[usable], answers[usable]
        base = points[int(np.argmax(np.abs(answers - np.median(answers, axis=0)).max(axis=1)))]
        other = base + self.rng.standard_normal(self.domain.dimension)
        return self.domain.through(base, other, self.config.survey.reach)

    def first_layer(self) -> None:
        """Find all rows: one line, then lines orthogonal to the rows known."""
        config, d = self.config, self.domain.dimension
        line = self.domain.line(self.rng, config.survey.reach)
        rows, measured, basis = self.search_line(line, None)
        if rows.count == 0:  # a flat part of the top layer: go where it is not
            line = self.lively_line()
            rows, measured, basis = self.search_line(line, None)
        self.rows = rows
        for _ in range(config.more_lines):
            if rows.count > d:
                break
            missing, _ = missing_rank(rows, measured, config=config.rows)
            full = rows.count + missing > len(basis) - 2 and len(basis) < d
            if missing == 0 and not full:
                break
            if full:
                # Rows may be missing that this basis cannot show: start over in a larger one.
                n = rows.count + 2 * missing + 2 * config.spare
                line = self.domain.line(self.rng, config.survey.reach)
                basis = random_basis(n if n + 3 < d else d, d, self.rng, line.direction)
                rows, measured, basis = self.search_line(line, basis)
                self.rows = rows
                continue
            _, _, span = np.linalg.svd(rows.weights, full_matrices=True)
            null = span[rows.count :]
            if len(null) == 0:
                break
            z = self.rng.standard_normal(len(null)) @ null @ basis
            scale = self.domain.scale
            base = line.base + self.rng.standard_normal(len(basis)) @ basis
            reach = config.survey.reach * scale
            other = SurveyLine(base, z / np.linalg.norm(z), -reach, reach, scale)
            new, more, _ = self.search_line(other, basis)
            rows, measured = join_rows(rows, new), measured.joined(more)
            self.rows = rows = self.without_parallel(rows)
        self.rows = rows
        if self.all_rows and len(basis) == d and row_rank(rows) < rows.count:
            self.weights, self.biases = rows.weights, rows.biases
            return
        if rows.count > d:
            self.weights, self.biases = rows.weights, rows.biases
            if self.deeper:
                return  # without a right inverse the layers above need another way
            raise Failed(
                Status.PARTIAL,
                f"{rows.count} first-layer hyperplanes were found with only {d} inputs, and no "
                "hyperplane bends: try extract_two_layer",
                final=True,
            )
        missing, part = missing_rank(rows, measured, config=config.rows)
        if missing:
            if len(basis) == d:
                self.weights, self.biases = rows.weights @ basis, rows.biases
            raise Failed(
                Status.PARTIAL,
                f"gradients leave the span of the {rows.count} first-layer rows found by "
                f"{part:.1g} of their size: at least {missing} more exist whose hyperplanes no "
                "line showed (the top layer may be flat around them)",
            )
        assert self.noise is not None
        with self.stage("lift") as details:
            lifted, details["condition"] = lift_rows(
                self.oracle,
                rows,
                measured,
                self.noise,
                rng=self.rng,
                config=config.rows,
                gradient_config=config.gradients,
            )
            # The right inverse magnifies errors by one over the least singular value; the cone
            # of a row should not have to be narrower for it.
            least = float(np.linalg.svd(lifted.weights, compute_uv=False).min(initial=1.0))
            lifted = measure_rows_again(
                self.oracle,
                lifted,
                self.noise,
                scale=self.domain.scale,
                rng=self.rng,
                worst=config.top.tilt * least,
                gradient_config=config.gradients,
            )
            details["largest error"] = float(lifted.std.max(initial=0.0))
        self.rows = lifted
        self.weights, self.biases = lifted.weights, lifted.biases

    def orient(self) -> None:
        """3.5.3: signs, and whether the rows behave as a first layer."""
        assert self.rows is not None
        assert self.noise is not None
        if len(self.weights) == 0:
            self.signed = True
            return
        self.condition = float(np.linalg.cond(self.weights))
        if self.condition > self.config.ill:
            raise Failed(
                Status.ILL_CONDITIONED,
                f"the first layer's rows are almost dependent (condition {self.condition:.1g}); "
                "its right inverse would magnify rounding beyond use",
            )
        with self.stage("signs") as details:
            sign, flat, broken = orient_rows(
                self.oracle,
                self.weights,
                self.biases,
                self.rows.anchors,
                self.noise,
                rng=self.rng,
                config=self.config.rows,
            )
            details |= {"flat": int(flat.sum()), "broken": int(broken.sum())}
        if flat.any() or broken.any():
            # A second-layer kink taken for a row is flat in every direction that
            # leaves the true rows alone; what remains is oriented all the same.
            keep = ~flat
            self.weights, self.biases = self.weights[keep], self.biases[keep]
            self.rows = dataclasses.replace(
                self.rows,
                weights=self.rows.weights[keep],
                std=self.rows.std[keep],
                anchors=self.rows.anchors[keep],
            )
            sign, broken = sign[keep], broken[keep]
        if broken.any():
            raise Failed(
                Status.PARTIAL,
                f"{int(broken.sum())} of {len(broken)} first-layer rows change the answer on both "
                "sides of their hyperplane while all other rows are held: a row is missing or "
                "wrong, or the target is not a network with a first layer of at most d units",
            )
        self.weights, self.biases = self.weights * sign[:, None], self.biases * sign
        self.signed = True
