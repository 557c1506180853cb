"""How a target is attacked: the options that extract and audit share, and what they mean."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated

import typer

from unrelu._random import RandomState
from unrelu._types import AnswerKind, ArrayLike
from unrelu.choose import ExtractionPlan, plan_extraction
from unrelu.choose import extract as choose_and_extract
from unrelu.cli._common import show_progress
from unrelu.cli._target import ATTACK_PANEL
from unrelu.errors import InvalidInput
from unrelu.extraction.three_layer import extract_three_layer
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.learner.algorithm import learn_from_queries
from unrelu.oracles import Labels, Oracle
from unrelu.progress import Progress
from unrelu.result import RecoveryResult

__all__ = ["AnswersOption", "Attack", "DepthOption", "DomainOption", "EpsilonOption",
           "RelativeOption", "look", "parse_domain"]  # fmt: skip

Domain = str | tuple[ArrayLike, ArrayLike]


class AnswerChoice(enum.Enum):
    """What answers are taken for."""

    AUTO = "auto"
    VALUES = "values"
    PROBABILITIES = "probabilities"
    LABELS = "labels"


DepthOption = Annotated[
    int | None,
    typer.Option("--depth", min=2, max=3, help="Number of layers, the output layer included.",
                 show_default="found out", rich_help_panel=ATTACK_PANEL),
]  # fmt: skip
EpsilonOption = Annotated[
    float | None,
    typer.Option("--epsilon", help="Learn one hidden layer to this root mean square error "
                 "instead of exactly: for neurons that coincide or cancel, and noisy answers.",
                 show_default="exact", rich_help_panel=ATTACK_PANEL),
]  # fmt: skip
RelativeOption = Annotated[
    bool,
    typer.Option("--relative", help="Take --epsilon as a part of the answers' spread.",
                 rich_help_panel=ATTACK_PANEL),
]  # fmt: skip
DomainOption = Annotated[
    str,
    typer.Option("--domain", metavar="WHERE", help="Where inputs may lie: all, nonnegative, or "
                 "LOW,HIGH for a box.", rich_help_panel=ATTACK_PANEL),
]  # fmt: skip
AnswersOption = Annotated[
    AnswerChoice,
    typer.Option("--answers", metavar="KIND", help="How to read the answers: as values, as "
                 "probabilities, or as labels, where only the index of the largest output is "
                 "used.",
                 rich_help_panel=ATTACK_PANEL),
]  # fmt: skip


def parse_domain(text: str) -> str | tuple[float, float]:
    """Read ``all``, ``nonnegative`` or ``LOW,HIGH``."""
    if text in {"all", "nonnegative"}:
        return text
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInput(
            f"--domain must be all, nonnegative or LOW,HIGH (such as 0,1), got {text!r}"
        ) from error
    return low, high


@dataclasses.dataclass(frozen=True)
class Attack:
    """The attack that the options ask for; a process elsewhere can run it too."""

    domain: Domain = "all"
    depth: int | None = None
    epsilon: float | None = None
    relative: bool = False
    answers: AnswerChoice = AnswerChoice.AUTO

    @property
    def chosen_by_hand(self) -> bool:
        """Whether the options name a method, so that no look is needed to choose one."""
        return self.depth is not None or self.epsilon is not None

    def check(self) -> None:
        """Refuse options that contradict each other, before anything is asked."""
        bounded = not isinstance(self.domain, str) or self.domain != "all"
        if self.relative and self.epsilon is None:
            raise InvalidInput("--relative goes with --epsilon")
        if bounded and (self.depth == 3 or self.epsilon is not None):
            raise InvalidInput(
                "--depth 3 and --epsilon need inputs from all of space; a bounded domain works "
                "with --depth 2"
            )
        if self.epsilon is not None and self.depth == 3:
            raise InvalidInput("--epsilon learns one hidden layer; leave --depth out")
        if self.depth not in {None, 2, 3}:
            raise InvalidInput(f"--depth is 2 or 3, got {self.depth}")
        if self.answers is AnswerChoice.LABELS and self.chosen_by_hand:
            raise InvalidInput("--answers labels chooses the method; leave --depth and --epsilon")

    def on(self, oracle: Oracle) -> tuple[Attack, Oracle]:
        """Return the attack within the target's range, and the target as it is to be seen."""
        box = oracle.box if self.domain == "all" else None
        attack = self if box is None else dataclasses.replace(self, domain=box)
        attack.check()
        return attack, Labels(oracle) if self.answers is AnswerChoice.LABELS else oracle

    @property
    def reading(self) -> AnswerKind:
        """How the methods are to read answers."""
        if self.answers is AnswerChoice.VALUES:
            return "values"
        return "probabilities" if self.answers is AnswerChoice.PROBABILITIES else "auto"

    def look(self, oracle: Oracle, rng: RandomState) -> ExtractionPlan:
        """Look at the target; returns a plan with the method that the options ask for, if any."""
        plan = plan_extraction(oracle, domain=self.domain, answers=self.reading, rng=rng)
        if self.epsilon is not None:
            return plan.for_method("learn_from_queries", "as --epsilon says", self.epsilon)
        if self.depth is not None:
            name = "extract_two_layer" if self.depth == 2 else "extract_three_layer"
            return plan.for_method(name, f"as --depth {self.depth} says")
        return plan

    def __call__(
        self,
        oracle: Oracle,
        plan: ExtractionPlan | None,
        rng: RandomState,
        progress: Progress | None = None,
    ) -> RecoveryResult:
        """Run the algorithm that the options ask for, or that the plan chose."""
        if self.epsilon is not None:
            return learn_from_queries(
                oracle, epsilon=self.epsilon, relative=self.relative, rng=rng, progress=progress
            )
        if self.depth == 3:
            return extract_three_layer(oracle, answers=self.reading, rng=rng, progress=progress)
        if self.depth == 2:
            return extract_two_layer(
                oracle, domain=self.domain, answers=self.reading, rng=rng, progress=progress
            )
        return choose_and_extract(
            oracle,
            domain=self.domain,
            answers=self.reading,
            plan=plan,
            rng=rng,
            progress=progress,
        )


def look(oracle: Oracle, attack: Attack, seed: int, *, quiet: bool) -> ExtractionPlan:
    """Look at the target, about 700 queries; returns what to do, as the options say."""
    with show_progress(quiet=quiet, oracle=oracle) as progress:
        if progress is not None:
            progress.update("looking", 0, None)
        return attack.look(oracle, seed)
