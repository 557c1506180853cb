"""A run of the algorithms as printed: the target as a function, the check, what it returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from unrelu.core.explain import EXACT, explained
from unrelu.core.noise import AGREES
from unrelu.core.run import Run
from unrelu.errors import InvalidInput
from unrelu.extraction.letter_boxes import Function, Irregular, Numbers
from unrelu.extraction.letter_three import TooFine
from unrelu.extraction.three_layer_result import ThreeLayerResult
from unrelu.extraction.two_layer_config import TwoLayerConfig
from unrelu.extraction.two_layer_result import TwoLayerResult
from unrelu.lines.domains import Domain
from unrelu.lines.survey import SurveyConfig, calibrate
from unrelu.networks import ReLUNetwork
from unrelu.oracles.exact import ExactOracle
from unrelu.rational import RationalNetwork, rationals
from unrelu.result import Certificate, RecoveryResult, Status

__all__ = [
    "FaithfulThreeLayerResult",
    "FaithfulTwoLayerResult",
    "Letter",
    "PrintedEnd",
    "as_target",
    "check_answers",
]

Result = TypeVar("Result", bound=RecoveryResult)

STAGE = "as printed"
IRREGULAR = (
    "{}: the target is not regular for delta = {}{}; try a smaller delta (general_position tells "
    "one to those who hold the network), or leave `faithful` off"
)
COARSE = ", or its answers are too coarse for steps of its square"


@dataclasses.dataclass(frozen=True, repr=False)
class FaithfulTwoLayerResult(TwoLayerResult):
    """A depth-2 network that Algorithm 6 recovered.

    Attributes
    ----------
    delta
        As given, ``"1/4095"``.
    most_queries
        What the boxes ask at most for a network of this width.
    exact
        The network over the rationals (:meth:`RationalNetwork.from_text` reads it); empty where
        the answers were no rationals.
    """

    delta: str = ""
    most_queries: int = 0
    exact: str = ""


@dataclasses.dataclass(frozen=True, repr=False)
class FaithfulThreeLayerResult(ThreeLayerResult):
    """A depth-3 network that section 3.5 recovered; see :class:`FaithfulTwoLayerResult`."""

    delta: str = ""
    most_queries: int = 0
    exact: str = ""


@dataclasses.dataclass(frozen=True)
class PrintedEnd:
    """How it ended, with what was found."""

    status: Status
    message: str
    network: RationalNetwork | ReLUNetwork | None = None
    certificate: Certificate | None = None


class Letter:
    """A run as printed: the target as a function, what it answered, and the check at the end."""

    def __init__(self, run: Run, delta: Any, domain: Domain) -> None:
        if run.target.output_dim != 1:
            raise InvalidInput("faithful=True is for a single output, as the paper is")
        inner = run.target.inner
        self.oracle = inner if isinstance(inner, ExactOracle) else None
        self.run, self.domain = run, domain
        self.delta = _checked_delta(delta)
        self.number: Callable[[Any], Any] = float if self.oracle is None else Fraction
        self.seen: list[tuple[Numbers, Numbers]] = []
        self.function = Function(run.target.input_dim, self._unasked, self.number)

    def _unasked(self, points: Numbers) -> tuple[Numbers, Numbers]:
        raise AssertionError(f"{len(points)} points before the answers' errors are known")

    def look(self) -> None:
        """Learn how far answers may be off; exact ones are not."""
        answer = self._exact if self.oracle is not None else self._rounded()
        self.function = dataclasses.replace(self.function, answer=answer)

    def _exact(self, points: Numbers) -> tuple[Numbers, Numbers]:
        assert self.oracle is not None
        answers = self.oracle.exact(points)[:, 0]
        self.seen.append((points, answers))
        return answers, np.zeros(len(points), dtype=object)

    def _rounded(self) -> Callable[[Numbers], tuple[Numbers, Numbers]]:
        line = self.domain.line(self.run.rng, SurveyConfig().reach)
        with self.run.stage("calibration"):
            # Beyond ten times the size of typical inputs rounding grows with them.
            noise, _ = calibrate(self.run.target, line, near=10.0 * self.domain.scale)

        def answer(points: Numbers) -> tuple[Numbers, Numbers]:
            x = points.astype(np.float64)
            return self.run.target(x)[:, 0], AGREES * noise.at(x)[:, 0]

        return answer

    def draw(self) -> Numbers:
        """Draw a typical input ``(d,)``."""
        return self.function.array(self.domain.draw(1, self.run.rng)[0])

    def ended(self, recover: Callable[[], list[Any]]) -> PrintedEnd:
        """Recover the layers, and judge the network."""
        try:
            with self.run.stage(STAGE):
                layers = recover()
        except Irregular as error:
            message = self._irregular(str(error))
            return PrintedEnd(Status.ASSUMPTION_VIOLATED, message)
        except TooFine as error:
            return PrintedEnd(Status.NUMERICAL_FAILURE, str(error))
        kind = ReLUNetwork if self.oracle is None else RationalNetwork
        network = kind(*layers)
        certificate, worse = self._certified(network)
        if worse:
            message = self._irregular(f"{worse} answers disagree with the network")
            return PrintedEnd(Status.ASSUMPTION_VIOLATED, message, network, certificate)
        exactly = "" if self.oracle is None else " exactly"
        message = f"{network.architecture}, agrees{exactly} with all answers; {certificate}"
        return PrintedEnd(Status.RECOVERED, message, network, certificate)

    def _irregular(self, what: str) -> str:
        return IRREGULAR.format(what, self.delta, COARSE if self.oracle is None else "")

    def _certified(self, network: Any) -> tuple[Certificate, int]:
        """Compare held-out answers, and exact ones with all of the run; count what differs."""
        config = TwoLayerConfig()
        answers: Numbers
        x = self.domain.draw(config.certify.samples, self.run.rng)
        with self.run.stage("certificate"):
            if self.oracle is None:
                answers = self.run.target(x)
                off = np.abs(network(x) - answers)
                allowed = EXACT * float(answers.std())
                beyond = (off > allowed).any(axis=1)
            else:
                points = rationals(x)
                answers = self.oracle.exact(points)
                off, allowed = abs(network(points) - answers), 0.0
                beyond = (off != 0).any(axis=1)
        certificate = Certificate.from_deviations(
            off.astype(np.float64),
            scale=float(answers.astype(np.float64).std()),
            tolerance=allowed,
            distribution=self.domain.distribution,
            exceeding=beyond.astype(bool),
        )
        missed = sum(int((network(p)[:, 0] != y).sum()) for p, y in self.seen)
        return certificate, missed + int(np.count_nonzero(beyond))

    def facts(self, ended: PrintedEnd) -> dict[str, Any]:
        """Return the fields that both results share."""
        exact = ended.network if isinstance(ended.network, RationalNetwork) else None
        return {
            "status": ended.status,
            "message": ended.message,
            "queries": self.run.target.queries,
            "provenance": self.run.provenance,
            "network": ended.network if exact is None else exact.rounded(),
            "certificate": ended.certificate,
            "stages": tuple(self.run.stages),
            "delta": str(self.delta),
            "exact": "" if exact is None else exact.to_text(),
        }

    def explained(self, result: Result) -> Result:
        """Hold float64 answers of the whole run against the network; exact ones were."""
        return result if self.oracle is not None else explained(self.run.target, result, "values")


def _checked_delta(delta: Any) -> Fraction:
    if delta is None:
        raise InvalidInput("faithful=True needs delta, for which the target is regular")
    value: Fraction = rationals(delta, "delta").item()
    if not 0 < value <= Fraction(1, 2):
        raise InvalidInput(f"delta must be positive and at most 1/2, got {delta!r}")
    return value


def check_answers(answers: str) -> None:
    """Refuse probabilities: the paper's networks have none."""
    if answers == "probabilities":
        raise InvalidInput("faithful=True reads values, as the paper does; ask for logits")


def as_target(oracle: Any) -> Any:
    """Return a rational network as an exact oracle, all else as it is."""
    return ExactOracle(oracle) if isinstance(oracle, RationalNetwork) else oracle
