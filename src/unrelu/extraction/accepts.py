"""What exact extraction accepts: which targets, at which price, with which promise."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from unrelu._types import AnswerKind
from unrelu.core.explain import target_changed
from unrelu.core.price import Price
from unrelu.core.record import Remembered
from unrelu.core.units import SAME_DIRECTION
from unrelu.extraction.box import extract_in_box, price_in_box
from unrelu.extraction.leaky import extract_leaky
from unrelu.extraction.noisy import extract_from_noisy
from unrelu.extraction.peel import extract_any_depth
from unrelu.extraction.price import (
    look_pays,
    price_any_depth,
    price_leaky,
    price_noisy,
    price_three_layer,
    price_two_layer,
)
from unrelu.extraction.three_layer import ThreeLayerResult, extract_three_layer
from unrelu.extraction.two_hidden import extract_two_hidden, price_two_hidden
from unrelu.extraction.two_layer import TwoLayerConfig, TwoLayerResult, extract_two_layer
from unrelu.lines.facts import Facts, Merit, Offer, follow_hyperplanes
from unrelu.lines.first_look import FirstLook, FirstLookConfig, price_of_look
from unrelu.progress import Progress
from unrelu.result import Provenance, RecoveryResult, Status

__all__ = [
    "any_depth",
    "attempt_tells_depth",
    "in_a_box",
    "leaky_layers",
    "noisy_answers",
    "price_of_three_layers",
    "price_of_two_layers",
    "three_layers",
    "two_hidden_noisy",
    "two_layers",
]

TWO, THREE = "extract_two_layer", "extract_three_layer"
NOISY, BOX, TWO_HIDDEN = "extract_from_noisy", "extract_in_box", "extract_two_hidden"
ANY_DEPTH, LEAKY = "extract_any_depth", "extract_leaky"

MOSTLY = 0.7
"""Hyperplanes of a tight cluster part when they are followed, and seem to bend. Where the first
layer holds this part of all hyperplanes, some of them in one direction, it is taken for
the only one."""
FEW = 3
"""Hyperplanes that go on unbent beside a single one that bends: it may be a cluster's."""


def price_of_two_layers(facts: Facts) -> Price:
    """Return the price of one hidden layer."""
    seen = facts.diagnosis
    return price_two_layer(
        seen.input_dim, seen.output_dim, facts.hyperplanes,
        coarse=facts.rounded, orthant=facts.area == "nonnegative",
    )  # fmt: skip


def price_of_three_layers(facts: Facts) -> Price:
    """Return the price of two hidden layers."""
    seen = facts.diagnosis
    return price_three_layer(
        seen.input_dim, seen.output_dim, facts.hyperplanes, facts.first_share,
        coarse=facts.rounded, log_odds=facts.probabilities,
    )  # fmt: skip


def attempt_tells_depth(facts: Facts) -> bool:
    """Whether trying one hidden layer tells the depth at less cost than a look at it."""
    seen = facts.diagnosis
    if seen.kind != "values" or facts.rounded or not seen.hyperplanes:
        return False
    look = price_of_look(seen.input_dim)
    return not look_pays(seen.input_dim, seen.output_dim, seen.hyperplanes, look)


def two_layers(facts: Facts) -> Offer | None:
    """Offer to recover one hidden layer (Daniely & Granot, Theorems 1 and 2)."""
    if not facts.affine_pieces or facts.tried(TWO) is not None:
        return None
    merit, reason = Merit.NETWORK, ""
    deep, look = facts.tried(THREE), facts.look
    if facts.area == "nonnegative":
        reason = "inputs are non-negative: one hidden layer is assumed"
    elif facts.diagnosis.kind == "constant":
        reason = "the answers never changed"
    elif facts.area == "box":
        if facts.tried(BOX) is None:
            return None
        merit, reason = Merit.RETRY, "another search of the box is tried"
    elif facts.coarse or facts.rounded_odds:
        return None
    elif facts.few_digits:
        fitted = facts.tried(NOISY)
        if fitted is None or _not_flat(fitted) or facts.tried(TWO_HIDDEN) is not None:
            return None
        merit, reason = Merit.RETRY, "differences of single answers are tried"
    elif isinstance(deep, ThreeLayerResult) and facts.deeper:
        merit = Merit.RETRY
        if _clustered(deep, facts.hyperplanes):
            reason = "many of the first layer's nearly coincide"
        elif not facts.rounded and facts.tried(ANY_DEPTH) is None:
            return None  # several layers that hardly bend come before a cluster nobody saw
        elif look is not None and look.deeper == 1 and look.first >= FEW:
            reason = "two hidden layers do not explain the answers"
        else:
            return None
    elif facts.deeper:
        return None
    elif facts.look_saved:
        reason = f"about {max(1.0, facts.hyperplanes):.0f} hyperplanes: one hidden layer is tried"
    elif facts.probabilities:
        reason = "the answers are probabilities: one hidden layer is assumed of their log-odds"
    else:
        reason = f"{look}: taken for one hidden layer"
        # Affine, or flat where it was looked at: only a long line tells.
        merit = Merit.RETRY if look is not None and look.kinks == 0 else Merit.NETWORK
    return Offer(
        TWO, "exact extraction of one hidden layer", reason, merit, price_of_two_layers(facts),
        functools.partial(_two, facts),
    )  # fmt: skip


_ANOTHER_LINE = {Status.PARTIAL, Status.ILL_CONDITIONED, Status.NUMERICAL_FAILURE}
"""What another line may mend."""


def _not_flat(fitted: RecoveryResult) -> bool:
    """Whether lines were read, and did not show the same hyperplanes."""
    return fitted.status is Status.PARTIAL and fitted.network is None


def _two(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    several = facts.probabilities and facts.diagnosis.output_dim > 1

    def attempt(config: TwoLayerConfig) -> TwoLayerResult:
        return extract_two_layer(
            target,
            domain=facts.domain,
            answers="probabilities" if several else facts.told,
            rng=rng,
            progress=progress,
            config=config,
        )

    if facts.look_saved:  # where one line does not do, that is a look, and a longer one comes next
        return attempt(TwoLayerConfig(restarts=0, repairs=0))
    if facts.look is None or facts.tried(THREE) is not None:
        return attempt(TwoLayerConfig())
    # A first look at few hyperplanes may have met none of a second layer: where one line does
    # not do, a longer look comes before another line.
    result = attempt(TwoLayerConfig(restarts=0))
    if result.status not in _ANOTHER_LINE or target_changed(result):
        return result
    look = _longer_look(facts, target, rng)
    if look is not None and look.deeper:
        # Of one hidden layer it would be ill-conditioned; of more, nothing is known yet.
        message = f"{look}: more than one hidden layer"
        return dataclasses.replace(result, status=Status.PARTIAL, message=message)
    again = attempt(TwoLayerConfig())
    return dataclasses.replace(again, stages=(*result.stages, *again.stages))


def _clustered(deep: ThreeLayerResult, hyperplanes: float) -> bool:
    """Whether the hyperplanes found are nearly all, and some nearly coincide."""
    if deep.first_width < max(2.0, MOSTLY * hyperplanes):
        return False
    rows = deep.first_weights / np.linalg.norm(deep.first_weights, axis=1, keepdims=True)
    cosines = np.abs(rows @ rows.T) - np.eye(len(rows))
    return bool(cosines.max() > SAME_DIRECTION)


def three_layers(facts: Facts) -> Offer | None:
    """Offer to recover two hidden layers (Daniely & Granot, Theorem 3)."""
    if not facts.everywhere or not facts.affine_pieces or facts.coarse:
        return None
    if facts.tried(THREE) is not None or facts.diagnosis.kind == "constant":
        return None
    flat, look = facts.tried(TWO), facts.look
    if facts.few_digits and (facts.tried(TWO_HIDDEN) is None or not facts.deeper):
        return None
    merit = Merit.NETWORK
    if facts.few_digits:
        merit, reason = Merit.RETRY, "differences of single answers are tried"
    elif flat is not None:
        unexplained = flat.status not in {Status.ILL_CONDITIONED, Status.ASSUMPTION_VIOLATED}
        values = isinstance(flat, TwoLayerResult) and flat.answers == "values"
        if not unexplained or not (values or look is not None):
            return None  # nor of probabilities that nobody could follow
        merit, reason = Merit.RETRY, "one hidden layer does not explain the answers"
    elif facts.deeper:
        reason = f"{look}: more than one hidden layer"
    elif look is not None and look.kinks == 0 and not facts.probabilities:
        reason = f"{look}; there may be some far out"
    else:
        return None
    return Offer(
        THREE, "exact extraction of two hidden layers", reason, merit,
        price_of_three_layers(facts), functools.partial(_three, facts),
    )  # fmt: skip


def _three(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    return extract_three_layer(target, answers=_answers(facts), rng=rng, progress=progress)


def _surely_deep(facts: Facts) -> bool:
    """Whether hyperplanes bend beyond doubt: a single one may be a cluster's, or its noise."""
    look = facts.look
    return look is not None and look.deeper > 0 and (look.deeper > 1 or look.first < FEW)


def noisy_answers(facts: Facts) -> Offer | None:
    """Offer to fit one hidden layer to answers of few digits."""
    if not facts.everywhere or not facts.affine_pieces or facts.coarse:
        return None
    if facts.tried(NOISY) is not None or facts.diagnosis.kind == "constant":
        return None
    seen = facts.diagnosis
    fits = facts.few_digits or facts.rounded_odds
    if not fits and (not facts.rounded or facts.tried(TWO) is None):
        return None  # of exact answers, what the search for kinks leaves is not noise
    merit = Merit.NETWORK
    if _surely_deep(facts) or not fits:
        if facts.few_digits and facts.tried(TWO_HIDDEN) is None:
            return None
        merit = Merit.RETRY
    kind = "probabilities" if facts.probabilities else "values"
    reason = f"the answers are {kind} of {seen.precision}: one hidden layer is fitted to them"
    return Offer(
        NOISY, "one hidden layer, fitted to the answers within their noise", reason, merit,
        price_noisy(seen.input_dim, seen.output_dim, facts.hyperplanes),
        functools.partial(_noisy, facts),
    )  # fmt: skip


def _answers(facts: Facts) -> AnswerKind:
    return "probabilities" if facts.probabilities else facts.told


def _noisy(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    if facts.deeper == 1 and facts.few_digits and facts.tried(TWO_HIDDEN) is None:
        # One hyperplane that seems to bend may be a cluster's: more of them tell.
        look = _longer_look(facts, target, rng)
        if look is not None and look.deeper > 1:
            message = f"{look}: more than one hidden layer"
            seen = Provenance(algorithm=NOISY, target=target.identity)
            return RecoveryResult(Status.PARTIAL, message, target.queries, seen)
    return extract_from_noisy(target, answers=_answers(facts), rng=rng, progress=progress)


def _longer_look(facts: Facts, target: Remembered, rng: np.random.Generator) -> FirstLook | None:
    """Follow as many hyperplanes as a first look ever does."""
    with target.stage("depth"):
        longer = FirstLookConfig(fewest=FirstLookConfig().most)
        return follow_hyperplanes(target, facts.diagnosis, rng, longer)


def two_hidden_noisy(facts: Facts) -> Offer | None:
    """Offer to fit two hidden layers to answers of few digits."""
    if not facts.everywhere or not facts.affine_pieces or facts.coarse:
        return None
    if facts.tried(TWO_HIDDEN) is not None:
        return None
    if not facts.few_digits and (not facts.rounded or facts.tried(THREE) is None):
        return None
    flat = facts.tried(NOISY)
    if facts.tried(THREE) is not None:
        merit, reason = Merit.RETRY, "two hidden layers are fitted within the answers' noise"
    elif _surely_deep(facts):
        merit, reason = Merit.NETWORK, f"{facts.look}: more than one hidden layer"
    elif flat is not None and facts.look is not None:
        merit, reason = Merit.RETRY, "one hidden layer does not explain the answers"
    else:
        return None
    seen, k = facts.diagnosis, facts.hyperplanes
    first = max(1.0, facts.first_share * k)
    return Offer(
        TWO_HIDDEN, "two hidden layers, fitted to the answers within their noise", reason, merit,
        price_two_hidden(seen.input_dim, seen.output_dim, first, max(1.0, k - first)),
        functools.partial(_two_hidden, facts),
    )  # fmt: skip


def _two_hidden(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    return extract_two_hidden(target, answers=_answers(facts), rng=rng, progress=progress)


def in_a_box(facts: Facts) -> Offer | None:
    """Offer to recover one hidden layer where inputs are limited to a range."""
    if facts.area != "box" or not facts.affine_pieces or facts.tried(BOX) is not None:
        return None
    if facts.diagnosis.kind == "constant":
        return None
    seen, limits = facts.diagnosis, facts.limits or "inputs are limited to a range"
    return Offer(
        BOX, "one hidden layer in a box", f"{limits}: one hidden layer is assumed", Merit.NETWORK,
        price_in_box(seen.input_dim, seen.output_dim, facts.hyperplanes),
        functools.partial(_in_box, facts),
    )  # fmt: skip


def _in_box(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    if isinstance(facts.domain, str):
        raise TypeError("a box has corners")
    return extract_in_box(
        target, domain=facts.domain, data=target.data, answers=_answers(facts), rng=rng,
        progress=progress,
    )  # fmt: skip


def any_depth(facts: Facts) -> Offer | None:
    """Offer to peel layer by layer where two hidden layers do not explain exact answers."""
    if facts.tried(THREE) is None or facts.tried(ANY_DEPTH) is not None or not facts.deeper:
        return None
    if facts.coarse or facts.rounded:
        return None  # rows are read through several layers: that takes all digits
    seen = facts.diagnosis
    return Offer(
        ANY_DEPTH, "any number of hidden layers, one after the other",
        "two hidden layers do not explain the answers", Merit.RETRY,
        price_any_depth(seen.input_dim, seen.output_dim, facts.hyperplanes),
        functools.partial(_any_depth, facts),
    )  # fmt: skip


def _any_depth(
    facts: Facts, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    deep = facts.tried(THREE)
    first = None
    if isinstance(deep, ThreeLayerResult) and 0 < deep.first_width <= facts.diagnosis.input_dim:
        first = deep.first_weights, deep.first_biases
    return extract_any_depth(
        target, answers=_answers(facts), first=first, rng=rng, progress=progress
    )


def leaky_layers(facts: Facts) -> Offer | None:
    """Offer two hidden layers of leaky units where hyperplanes of the first were found."""
    deep, seen = facts.tried(THREE), facts.diagnosis
    if not isinstance(deep, ThreeLayerResult) or facts.tried(LEAKY) is not None:
        return None
    if not 0 < deep.first_width <= seen.input_dim or deep.network is not None:
        return None
    if facts.rounded or facts.probabilities or target_changed(deep):
        return None
    return Offer(
        LEAKY, "two hidden layers of leaky units",
        f"no side of {deep.first_width} hyperplanes of the first layer is off", Merit.NETWORK,
        price_leaky(deep.first_width, seen.output_dim, facts.hyperplanes),
        functools.partial(_leaky, deep),
    )  # fmt: skip


def _leaky(
    deep: ThreeLayerResult, target: Remembered, rng: np.random.Generator, progress: Progress
) -> RecoveryResult:
    return extract_leaky(target, deep, rng=rng, progress=progress)
