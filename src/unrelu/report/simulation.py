"""Attacks on the recovered clone, which answers like the target and costs no query."""

from __future__ import annotations

import dataclasses
import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.choose import extract
from unrelu.errors import UnreluError
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.labels.approximate import predicted
from unrelu.labels.price import price_labels
from unrelu.networks import Network
from unrelu.oracles import Cast, Labels, Noisy, Oracle, Rounded, Softmax, Wrapper, connect
from unrelu.progress import Progress
from unrelu.report.aside import run_aside
from unrelu.report.attempts import Attacked, looked_in
from unrelu.report.config import AuditConfig
from unrelu.report.copies import missed, train_students, typical_inputs
from unrelu.result import RecoveryResult, Status

__all__ = ["AuditConfig", "Defence", "LeakPoint", "Simulation", "entry_of", "label_error"]


@dataclasses.dataclass(frozen=True)
class LeakPoint:
    """What was known after some queries: units, and the clone's relative error."""

    queries: int
    width: int
    error: float


@dataclasses.dataclass(frozen=True)
class Defence:
    """One defence: what it does to the attack, and to the honest user.

    ``attack_error`` is the clone's root mean square error over the answers'
    standard deviation or, behind labels, how often it gives another label over
    how often a constant would (1: no better than a constant; None: the attack
    broke off, so nothing is known). ``answer_change`` is the
    defence's own, and ``label_change`` the part of inputs whose top class it
    changes. ``copy_miss`` belongs to an ordinary copy trained on defended
    answers: the part of inputs whose top class it misses or, for a single
    output, its relative error.
    """

    name: str
    status: str
    queries: int
    attack_error: float | None
    answer_change: float
    label_change: float
    copy_miss: float
    note: str = ""
    changes_answers: bool = True
    """False: the answers are the model's own, all of them or fewer."""
    cut_off: bool = False
    """Whether the audit ended the attack, not the defence."""

    @property
    def finished(self) -> bool:
        """Whether the attack ran to its end, so that its error says something."""
        return self.attack_error is not None and not self.cut_off


@dataclasses.dataclass(frozen=True)
class _Change:
    """A defence to try: what it does to the service, and how to measure its cost."""

    name: str
    wrap: Callable[[Oracle], Oracle]
    budget: int
    """Queries an attacker gets."""
    note: str = ""
    changes_answers: bool = True
    """False: answers stay, and so does the attacker's method."""
    rescales: bool = False
    """Whether answers say the same in other units."""
    reach: float | None = None
    """Largest coordinate of an input that is answered."""
    limits_queries: bool = False


class _Clipped(Wrapper):
    """Keeps noisy probabilities in [0, 1], as a service would."""

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        return np.clip(self.inner._answer(points, repeat), 0.0, 1.0)


class Simulation:
    """Attacks on the clone, which answers like the target and costs nothing."""

    def __init__(
        self,
        target: Oracle,
        attacked: Attacked,
        network: Network,
        domain: Any,
        options: AuditConfig,
        rng: np.random.Generator,
    ) -> None:
        self.network, self.domain, self.options = network, domain, options
        self.result, self.diagnosis = attacked.result, attacked.plan.diagnosis
        self.probabilities = self.result.findings().log_odds
        self.total, self.spent = attacked.asked, attacked.needed
        self.seed = int(rng.integers(2**31))
        self.points = typical_inputs(target, options.points, rng)
        self.truth = self.shown(self.served())
        self.logits = _centred(network(self.points), self.probabilities)
        self.scale = float(self.logits.std()) or 1.0
        self.training = typical_inputs(target, options.copies[-1], rng)

    def served(self, budget: int | None = None) -> Oracle:
        """Return the clone as an oracle that answers in the target's manner."""
        oracle: Oracle = connect(self.network, budget=budget)
        if self.probabilities:
            oracle = Softmax(oracle)
        precision = self.diagnosis.precision
        if precision in {"float32", "bfloat16"}:
            oracle = Cast(oracle, precision)
        elif precision.endswith("decimals"):
            oracle = Rounded(oracle, int(precision.split()[0]))
        if not self.diagnosis.deterministic:
            oracle = Noisy(oracle, self.diagnosis.noise)
        return oracle

    def shown(self, oracle: Oracle) -> FloatArray:
        """Return what an honest user sees at the points."""
        return oracle(self.points)

    def _attack_again(self, oracle: Oracle) -> RecoveryResult:
        """Run the algorithm that recovered the clone, and nothing else."""
        entry = entry_of(self.result)
        given = {"domain": self.domain, "rng": self.seed}
        takes = inspect.signature(entry).parameters
        options = {name: value for name, value in given.items() if name in takes}
        for name, parameter in takes.items():  # what the caller had to say, the result has kept
            keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            if keyword and parameter.default is inspect.Parameter.empty:
                options[name] = getattr(self.result, name)
        return entry(oracle, **options)

    def attack(
        self, oracle: Oracle, domain: Any = None, *, choose: bool = False, attempt: int = 0
    ) -> tuple[RecoveryResult | None, str]:
        """Run the attack; an error of the oracle is an outcome, too.

        ``choose`` lets the attacker look anew and take the method that fits
        what the defence leaves.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # divisions by nothing are expected under defences
            try:
                if domain is not None:
                    return extract_two_layer(oracle, domain=domain, rng=self.seed + attempt), ""
                if choose and isinstance(self.domain, str):
                    return extract(oracle, rng=self.seed + attempt), ""
                return self._attack_again(oracle), ""
            except UnreluError as error:
                return None, str(error)
            except Exception as error:  # a defended oracle is hostile: one row fails, not all
                return None, f"the attack broke off: {type(error).__name__}"

    def error(self, result: RecoveryResult | None) -> float:
        """Return a result's relative error, at most 1: a constant is always at hand."""
        if result is None or result.network is None:
            return 1.0
        network, labels = result.network, result.findings().labels
        if labels:
            labelled = predicted(network, labels, self.points)
            return label_error(labelled, self.truth.argmax(axis=1))
        found = network(self.points)
        if found.shape[1] != self.logits.shape[1]:
            return 1.0
        common = self.probabilities or result.findings().log_odds
        difference = _centred(found - self.network(self.points), common)
        error = float(np.sqrt(np.mean(difference**2))) / self.scale
        return min(1.0, error) if math.isfinite(error) else 1.0

    def leaks(self, progress: Progress) -> tuple[LeakPoint, ...]:
        """Measure what is known after parts of the attack's queries."""
        found = []
        for i, fraction in enumerate(self.options.fractions):
            budget = max(5000, 2 * self.total) if fraction == 1.0 else round(fraction * self.spent)
            result, _ = self.attack(self.served(budget))
            width = 0 if result is None else result.findings().units
            queries = self.spent if fraction == 1.0 else budget
            found.append(LeakPoint(queries, width, self.error(result)))
            progress.update("leak", i + 1, len(self.options.fractions))
        return tuple(found)

    def defences(self, progress: Progress) -> tuple[Defence, ...]:
        """Try every defence on the clone."""
        changes = self._changes()
        progress.update("defences", 0, len(changes))
        parts: Iterable[Sequence[Any]]
        if self.options.seconds is None:
            parts = (tuple(_tried((self, change))) for change in changes)
        else:
            work = [(self, change) for change in changes]
            parts = run_aside(_tried, work, self.options.seconds)
        found = []
        for i, (change, known) in enumerate(zip(changes, parts, strict=False)):
            found.append(self._concluded(change, known))
            progress.update("defences", i + 1, len(changes), change.name)
        return tuple(found)

    def _concluded(self, change: _Change, known: Sequence[Any]) -> Defence:
        """Return the outcome of a defence; the attack on it may not have come to its end."""
        if len(known) == 2:
            outcome: Defence = known[1]
            return dataclasses.replace(outcome, copy_miss=known[0])
        moved, labels = self._cost_to_users(change)
        return Defence(
            change.name,
            "UNFINISHED",
            0,
            None,
            moved,
            labels,
            known[0] if known else self.train_copy(change.wrap(self.served())),
            f"{self.options.seconds:g} s of computing were not enough: a patient attacker goes on",
            change.changes_answers,
            cut_off=True,
        )

    def _changes(self) -> list[_Change]:
        """List what a service could do, from nothing on."""
        limit = max(5000, round(self.options.patience * self.total))
        spread = float(self.truth.std()) or 1.0
        changes = [_Change("none", _unchanged, limit, "the model as it is", changes_answers=False)]
        for decimals in self.options.decimals:
            rounded = partial(Rounded, decimals=decimals)
            changes.append(_Change(f"round to {decimals} decimals", rounded, limit))
        for sigma in self.options.noise:
            noisy = partial(self._noisy, sigma=sigma * spread)
            changes.append(_Change(f"noise of {100 * sigma:g} % of the spread", noisy, limit))
        if self.truth.shape[1] > 1:
            if not self.probabilities:
                changes.append(_Change("probabilities, not logits", Softmax, limit, rescales=True))
            units = self.result.findings().units
            shape = self.points.shape[1], self.truth.shape[1], units
            labels = max(limit, price_labels(*shape)[1])  # more than the same attack's answers
            changes.append(_Change("top-1 label only", Labels, labels))
        half = _Change("query budget of half the attack", _unchanged, self.spent // 2,
                       "per user; users may join", changes_answers=False,
                       limits_queries=True)  # fmt: skip
        changes.append(half)
        if self.domain == "all" and len(self.result.findings().widths) <= 1:
            refused = "inputs out of range are refused"
            changes.append(_Change("inputs only in -3..3", _unchanged, limit, refused, reach=3.0))
        return changes

    def _noisy(self, oracle: Oracle, sigma: float) -> Oracle:
        noisy = Noisy(oracle, sigma)
        return _Clipped(noisy) if self.probabilities else noisy

    def attacked(self, change: _Change) -> Defence:
        """Run the attack behind one defence, and measure what an honest user loses.

        The ordinary copy is left out.
        """
        box = None if change.reach is None else (-change.reach, change.reach)
        for attempt in range(self.options.attempts if change.changes_answers else 1):
            result, problem = self.attack(
                change.wrap(self.served(change.budget)), box, choose=change.changes_answers,
                attempt=attempt,
            )  # fmt: skip
            exhausted = result is not None and result.status is Status.BUDGET_EXHAUSTED
            if exhausted or self.error(result) < self.options.useless:
                break  # it gets through, or nothing is claimed
        moved, labels = self._cost_to_users(change)
        note = change.note
        if change.reach is not None:
            note += f"; {100 * moved:.0f} % of Gaussian inputs have such a coordinate"
        if result is not None:
            note = self._told(result, change) or note
        return Defence(
            change.name, "FAILED" if result is None else result.status.name,
            0 if result is None else result.queries.total,
            None if result is None else self.error(result),
            moved, labels, math.nan, problem or note, change.changes_answers,
            cut_off=result is not None
            and result.status is Status.BUDGET_EXHAUSTED
            and not change.limits_queries,
        )  # fmt: skip

    def _cost_to_users(self, change: _Change) -> tuple[float, float]:
        """Return how far answers move, over their spread, and how often the top class does."""
        if change.reach is not None:
            refused = float(np.mean(np.abs(self.points).max(axis=1) > change.reach))
            return refused, refused
        shown = change.wrap(self.served())(self.points)
        top = self.truth.argmax(axis=1)
        if shown.shape != self.truth.shape:  # labels: all but the top class is lost
            return 1.0, float(np.mean(shown[:, 0] != top))
        moved = 0.0 if change.rescales else float(np.sqrt(np.mean((shown - self.truth) ** 2)))
        labels = float(np.mean(self._loses(shown))) if shown.shape[1] > 1 else 0.0
        return moved / (float(self.truth.std()) or 1.0), labels

    def _loses(self, shown: FloatArray) -> BoolArray:
        """Return where the top class shown is not one of the model's own; ties count as one."""
        certificate = self.result.certificate
        same = 0.0 if certificate is None else certificate.tolerance
        now = np.take_along_axis(self.truth, shown.argmax(axis=1)[:, None], axis=1)[:, 0]
        return np.asarray(now < self.truth.max(axis=1) - same)

    def _told(self, result: RecoveryResult, change: _Change) -> str:
        """Say what the attack still got behind a defence, or nothing."""
        found = result.findings()
        if found.labels and result.copied:
            stages = result.queries.by_stage  # neither the first look nor certainty is needed
            aside = stages.get("identity", 0) + stages.get("certificate", 0)
            needed = result.queries.total - looked_in(stages) - aside
            return f"took {needed:,} labels, {needed / self.spent:.2g} times as many queries"
        if found.rank:
            return f"the span still leaks: {found.rank} dimensions of it were found"
        if found.copy_error is not None and result.copied:
            return "learned, not exact"
        if result.status is Status.BUDGET_EXHAUSTED and not change.limits_queries:
            return (
                f"cut off by this audit after {result.queries.total:,} queries: a patient "
                "attacker goes on"
            )
        return ""

    def train_copy(self, oracle: Oracle) -> float:
        """Train ordinary copies on the answers to typical inputs; return what the best misses."""
        answers = oracle(self.training)
        labels = answers.shape[1] != self.truth.shape[1]
        students = train_students(
            self.training, answers, probabilities=self.probabilities, labels=labels,
            width=max(4, min(256, 2 * self.result.findings().units)), epochs=self.options.epochs,
            seed=self.seed,
        )  # fmt: skip
        top = self.truth.argmax(axis=1)
        return min(
            float(np.mean(found[:, 0] != top))
            if labels
            else missed(found, self.truth, probabilities=self.probabilities)
            for found in (student(self.points) for student in students)
        )


def label_error(found: FloatArray, truth: FloatArray) -> float:
    """Return how often labels differ, over how often the most common one would be wrong."""
    names = np.unique(truth, return_counts=True)[1]
    by_chance = 1.0 - names.max() / len(truth)
    wrong = float(np.mean(found != truth))
    return min(1.0, wrong / by_chance) if by_chance else float(wrong > 0.0)


def _tried(work: tuple[Simulation, _Change]) -> Iterator[Any]:
    """Give what an ordinary copy misses behind a defence, then what the attack does."""
    simulation, change = work
    yield simulation.train_copy(change.wrap(simulation.served()))
    yield simulation.attacked(change)


def _unchanged(oracle: Oracle) -> Oracle:
    return oracle


def entry_of(result: RecoveryResult) -> Callable[..., RecoveryResult]:
    """Return the function whose method gave a result; the choosing one where it is not public."""
    import unrelu

    return cast("Callable[..., RecoveryResult]", getattr(unrelu, result.provenance.entry, extract))


def _centred(values: FloatArray, common: bool) -> FloatArray:
    """Remove what a softmax does not show: a function common to all logits."""
    if not common or values.shape[1] < 2:
        return values
    return np.asarray(values - values.mean(axis=1, keepdims=True))
