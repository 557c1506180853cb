"""The stages of depth-3 extraction, and the state that they share.

:mod:`unrelu.algorithms.three_layer` runs them; its docstring maps them to the paper.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.errors import BudgetExhausted
from unrelu.kernels.deep_polish import PolishConfig, polish
from unrelu.kernels.deep_regions import cover_gates
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle
from unrelu.progress import Progress
from unrelu.result import Certificate, StageReport, Status
from unrelu.steps.deep_certify import DeepCertifyConfig, certify_network
from unrelu.steps.deep_layers import (
    DEEPER,
    FIRST,
    LayerTestConfig,
    find_first_layer,
    floored,
    measure_across,
)
from unrelu.steps.deep_orthant import OrthantConfig, recover_on_orthant
from unrelu.steps.deep_rows import (
    PieceGradients,
    RowConfig,
    Rows,
    confirm_rows,
    join_rows,
    lift_rows,
    measure_rows,
    missing_rank,
    orient_rows,
    random_basis,
    row_rank,
)
from unrelu.steps.deep_top import Recorder, TopConfig, TopOracle, assemble
from unrelu.steps.domains import as_domain
from unrelu.steps.gradients import GradientConfig
from unrelu.steps.noise import NoiseModel
from unrelu.steps.survey import SurveyConfig, SurveyLine, calibrate, scan_line

__all__ = ["Extraction", "Failed", "ThreeLayerConfig"]


@dataclasses.dataclass(frozen=True)
class ThreeLayerConfig:
    """Every choice of the extraction that is a number."""

    survey: SurveyConfig = dataclasses.field(default_factory=lambda: SurveyConfig(attempts=2))
    """A line that takes more than 12,000 queries bends everywhere: the target is smooth."""
    layers: LayerTestConfig = dataclasses.field(default_factory=LayerTestConfig)
    rows: RowConfig = dataclasses.field(default_factory=RowConfig)
    gradients: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    top: TopConfig = dataclasses.field(default_factory=TopConfig)
    orthant: OrthantConfig = dataclasses.field(default_factory=OrthantConfig)
    polish: PolishConfig = dataclasses.field(default_factory=PolishConfig)
    polish_gently: PolishConfig = dataclasses.field(
        default_factory=lambda: PolishConfig(inner=15, ridge=1e-8)
    )
    """Used where the first setting makes the checks worse: few steps hold weak directions."""
    certify: DeepCertifyConfig = dataclasses.field(default_factory=DeepCertifyConfig)
    spare: int = 3
    """Directions of the basis beyond the number of rows found; they show a missing row."""
    more_lines: int = 8
    """Lines searched for missing rows."""
    restarts: int = 3
    """Fresh starts after a failed check."""
    checks: int = 60
    checks_more: float = 0.12
    checks_most: int = 300
    """Gaussian inputs at which the network is looked at before the certificate, and how many
    more per parameter, up to a limit: a larger network has more corners."""
    many: float = 3.0
    """Second-layer units, over the kinks that one line shows, that are too many. A line meets
    nearly every unit once or more."""
    around: float = 3.0
    flat: float = 0.01
    """The checks' spread counts as at least ``flat`` times that of all answers at up to
    ``around`` times typical inputs."""
    good: float = 1e-12
    """Largest deviation at the checks, over their spread, at which no polish is needed."""
    close: float = 1e-3
    """The same below which the structure is right, and more answers can sharpen it."""
    sharp: float = 1e-11
    """The same below which the answers at hand suffice for the polish."""
    unsharp: float = 3e-10
    """The same after a polish above which another round follows."""
    rounds: int = 3
    extra: float = 0.8
    """Answers per parameter asked at typical inputs otherwise."""
    pool: int = 10_000
    rare: float = 0.02
    """States of units held by less than this part of so many typical inputs are looked for."""
    extra_reach: float = 3.0
    """They lie at one to so many times typical inputs: farther out slopes weigh more."""
    fair: float = 1e-7
    """The same above which a start has failed."""
    far: float = 300.0
    """Answers farther out than this many typical inputs are not used by the polish."""
    ill: float = 1e8
    """Condition of W above which it is not inverted."""


class Failed(Exception):
    """A start that cannot go on.

    ``final``: another would fail the same way. ``structural``: it probably would,
    and one more is enough to know.
    """

    def __init__(
        self, status: Status, message: str, *, final: bool = False, structural: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.final, self.structural = final, structural


class Extraction:
    """One run: the state that the stages share."""

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
        self.condition = 0.0
        self.network: ReLUNetwork | None = None
        self.free: list[BoolArray] = []
        self.second_width = 0
        self.check_error = np.inf
        self.starts = 0
        self.deeper = 0
        self.kinks = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Charge and time what happens inside; details may be filled in."""
        details: dict[str, Any] = {}
        before = self.oracle.queries.total
        start = time.perf_counter()
        try:
            with self.oracle.stage(name):
                yield details
        finally:
            spent = self.oracle.queries.total - before
            seconds = time.perf_counter() - start
            self.stages.append(StageReport(name, spent, seconds, details=details))

    # ---------------------------------------------------------- the first layer

    def search_line(
        self, line: SurveyLine, basis: FloatArray | None
    ) -> tuple[Rows, PieceGradients, FloatArray]:
        """3.5.1 and 3.5.2: kinks of a line, their layers, and the first layer's normals.

        Without a basis, one is drawn that fits the number of rows found.
        """
        config = self.config
        with self.stage("calibration"):
            noise, seeds = calibrate(self.oracle, line, near=10.0 * self.domain.scale)
            noise = floored(self.oracle, noise, self.domain.dimension, self.rng)
        self.progress.update("line search", 0, None)
        with self.stage("line search") as details:
            scan, noise = scan_line(self.oracle, line, noise, seeds, config=config.survey)
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
        self.progress.update("layer test", 1, 1, f"{len(first)} first-layer hyperplanes")
        if basis is None:
            n = len(first) + config.spare
            d = self.domain.dimension
            # A lift also costs one gradient per row: not worth it for a few directions.
            small = len(first) > 0 and n + 3 < d
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
            details |= {"rows": rows.count, "directions": len(basis)}
            if row_rank(rows) < rows.count:
                rows = confirm_rows(
                    self.oracle,
                    rows,
                    noise,
                    scale=self.domain.scale,
                    rng=self.rng,
                    config=config.rows,
                )
                details["confirmed"] = rows.count
        return rows, measured, basis

    def first_layer(self) -> None:
        """Find all rows: one line, then lines orthogonal to the rows known."""
        config, d = self.config, self.domain.dimension
        line = self.domain.line(self.rng, config.survey.reach)
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
            self.rows = rows
        self.rows = rows
        if rows.count > d:
            self.weights, self.biases = rows.weights, rows.biases
            raise Failed(
                Status.PARTIAL,
                f"{rows.count} first-layer hyperplanes were found with only {d} inputs: W has "
                "no right inverse, so the layers above cannot be asked on their own; the "
                "hyperplanes are returned up to sign"
                + ("" if self.deeper else " (no hyperplane bends: try extract_two_layer)"),
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

    # ------------------------------------------------------------------ the top

    def top(self) -> None:
        """3.5.4: the layers above as a depth-2 network on the orthant."""
        config = self.config
        k = len(self.weights)
        if k == 0:
            raise Failed(
                Status.PARTIAL,
                "no first-layer hyperplane was found: the target looks affine or constant "
                "where it was asked; try extract_two_layer",
                final=True,
            )
        limit = int(config.top.per_unit * (k + 1) * (self.kinks + 10))
        black_box = TopOracle(
            self.oracle, self.weights, self.biases, limit=limit, config=config.top
        )
        assert self.noise is not None
        self.progress.update("top layers", 0, None)
        with self.stage("top layers") as details:
            try:
                found = recover_on_orthant(
                    black_box,
                    k,
                    black_box.noise(self.noise),
                    rng=self.rng,
                    max_units=int(config.many * (self.kinks + 10)),
                    config=config.orthant,
                    gradient_config=config.gradients,
                )
            except BudgetExhausted as error:
                if black_box.exhausted:
                    raise Failed(Status.PARTIAL, str(error), structural=True) from error
                raise
            details |= {"units": len(found.weights), "open axes": found.open_axes}
        if found.open_axes == k:
            raise Failed(
                Status.PARTIAL,
                f"the layers above the first show ever more hyperplanes ({len(found.weights)} "
                "so far): more than one hidden layer is there, or the first layer is incomplete",
                structural=True,
            )
        self.second_width = len(found.weights)
        self.network, self.free = assemble(self.weights, self.biases, found, config.top)
        self.progress.update("top layers", 1, 1, f"{self.second_width} second-layer units")

    # ------------------------------------------------------------------ the end

    def check(self) -> None:
        """Look at Gaussian inputs; polish on all answers where it helps."""
        assert self.network is not None
        assert self.noise is not None
        config = self.config
        count = config.checks + int(config.checks_more * self.network.parameters)
        count = min(count, config.checks_most)
        points = self.rng.standard_normal((count, self.domain.dimension))
        with self.stage("check") as details:
            answers = self.oracle(points)
            # A target that is flat at typical inputs varies at those that found its kinks.
            x, y = self.oracle.stored()
            near = np.linalg.norm(x, axis=1) <= config.around * self.domain.scale
            spread = float(answers.std(axis=0).max())
            spread = max(spread, config.flat * float(y[near].std(axis=0).max()))
            spread = max(spread, np.finfo(np.float64).tiny)

            def error() -> float:
                assert self.network is not None
                return float(np.abs(answers - self.network(points)).max()) / spread

            self.check_error = error()
            details["before polish"] = self.check_error
        if self.check_error <= config.good:
            return
        for attempt in range(config.rounds):
            if attempt and not config.unsharp < self.check_error < config.close:
                break
            if config.sharp < self.check_error < config.close:
                with self.stage("refinement"):
                    self.refine()
            self.progress.update("polish", attempt, None)
            with self.stage("polish") as details:
                old, kept = self.network, self.check_error
                for setting in (config.polish, config.polish_gently):
                    details |= self.polish(setting)
                    self.check_error = error()
                    details["check"] = self.check_error
                    if self.check_error <= kept:
                        break
                    # A unit that few answers see ran away: take it back.
                    self.network, self.check_error = old, kept
        self.prune()
        self.check_error = error()
        if self.check_error > config.fair:
            if self.check_error > config.close:
                self.network = None  # not even the structure is right
            level = float(self.noise.std(np.array([self.domain.scale])).max()) / spread
            coarse = f" (the answers carry noise of {level:.1g} of it)" if level > 1e-11 else ""
            raise Failed(
                Status.PARTIAL,
                f"the network found deviates by {self.check_error:.2g} of the answers' spread at "
                f"typical inputs{coarse}: a unit is missing, or the target has more hidden layers "
                "than two",
                structural=self.check_error > config.close,
            )

    def prune(self) -> None:
        """Drop second-layer units that the polish has reduced to nothing."""
        assert self.network is not None
        w, v, u = self.network.weights
        b, c, a = self.network.biases
        n = self.second_width
        size = np.linalg.norm(v[:n], axis=1) * np.linalg.norm(u[:, :n], axis=0)
        keep = np.ones(len(v), dtype=bool)
        keep[:n] = size > self.config.orthant.spurious * size.max(initial=0.0)
        if not keep.all():
            self.network = ReLUNetwork([w, v[keep], u[:, keep]], [b, c[keep], a])
            self.second_width = int(keep[:n].sum())

    def refine(self) -> None:
        """Ask typical inputs, and some for every unit that is rarely on or rarely off."""
        assert self.network is not None
        config = self.config
        count = int(config.extra * self.network.parameters)
        pool = self.rng.standard_normal((config.pool, self.domain.dimension))
        pool *= self.rng.uniform(1.0, config.extra_reach, (config.pool, 1))
        need = len(self.weights) + 2  # a unit has that many parameters, a bias and an output
        rare = cover_gates(self.network, pool, config.rare, need)
        x = pool[np.union1d(rare, np.arange(min(count, len(pool))))]
        self.oracle(x)

    def polish(self, config: PolishConfig) -> dict[str, Any]:
        """Fit both layers together to all answers gathered."""
        assert self.network is not None
        assert self.noise is not None
        x, y = self.oracle.stored()
        near = np.linalg.norm(x, axis=1) <= self.config.far * self.domain.scale
        x, y = x[near], y[near]
        done = polish(self.network, x, y, self.noise.at(x), free=self.free, config=config)
        self.network = done.network
        return {"before": done.before, "after": done.after, "steps": done.steps}

    def start(self) -> None:
        """One start: all stages up to the check."""
        self.starts += 1
        self.network, self.signed, self.deeper = None, False, 0
        self.first_layer()
        self.orient()
        self.top()
        self.check()

    def certify(self) -> tuple[Status, str, Certificate]:
        """Compare with the target at fresh points; nothing is asked or changed afterwards."""
        assert self.network is not None
        assert self.noise is not None
        self.oracle.recording = False
        with self.stage("certificate"):
            certificate, verdict = certify_network(
                self.oracle, self.network, self.noise, rng=self.rng, config=self.config.certify
            )
        if verdict:
            return Status.PARTIAL, verdict, certificate
        text = f"hidden widths {len(self.weights)} and {self.second_width}; {certificate}"
        return Status.RECOVERED, text, certificate
