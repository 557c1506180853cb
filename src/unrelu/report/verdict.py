"""The audit in plain words: what was found, and what to do about it."""

from __future__ import annotations

import math

from unrelu.choose import ExtractionPlan
from unrelu.report.attempts import Attacked
from unrelu.report.config import AuditConfig
from unrelu.report.simulation import Defence
from unrelu.report.structure import first_rows, name_layer
from unrelu.result import RecoveryResult, Status

__all__ = ["best_change", "recommend", "verdict"]


def verdict(attacked: Attacked, shape: tuple[int, int] | None) -> tuple[str, str]:
    """Return a headline and a paragraph."""
    plan, result = attacked.plan, attacked.result
    layer = name_layer(first_rows(result), shape)
    also = f" {layer[:1].upper()}{layer[1:]}." if layer else ""
    if result.copied and result.network is not None and result.certificate is not None:
        return _copied(result, attacked.needed, also)
    if attacked.attacks > 1:
        also += (
            f" {attacked.attacks} attacks, each with random choices of its own, got no further."
        )
    if plan.diagnosis.piecewise_linear is False or not plan.method:
        return _outside(plan, result, also)
    if result.findings().rank:
        return _leaking(plan, result, attacked.asked, also)
    known = result.findings().units
    these = "these attacks" if attacked.attacks > 1 else "this attack"
    learned = f" {known} hidden units were seen." if known else ""
    return (
        "Not cloned, but part of it was read" if known else f"Not cloned by {these}",
        f"{_sentence(result.message)}.{learned}{also} This does not rule "
        "out other attacks, nor an approximate copy trained on answers.",
    )


def _part(value: float) -> str:
    """Say a small part so that a person can picture it."""
    if value >= 1e-3:
        return f"{100 * value:.2g} %"
    for name, size in (("millionth", 1e-6), ("billionth", 1e-9), ("trillionth", 1e-12)):
        if value >= size:
            count = math.ceil(value / size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "a trillionth"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _copied(result: RecoveryResult, needed: int, also: str) -> tuple[str, str]:
    """Tell of a network that is the target, or comes close."""
    network, certificate, found = result.network, result.certificate, result.findings()
    assert network is not None
    assert certificate is not None
    asked = f"{needed:,} queries"
    units = " and ".join(str(width) for width in found.widths or network.hidden_widths) or "no"
    if found.labels:
        exact = result.success
        return (
            "This model can be cloned" if exact else "This model can be copied",
            f"Anyone who may ask {asked} gets a copy with {units} hidden units. Of "
            f"{certificate.samples:,} fresh inputs it gave "
            f"{certificate.samples - certificate.exceeding:,} the same label. It took nothing "
            f"but labels.{also}",
        )
    if found.copy_error is not None:
        return (
            "This model can be copied closely",
            f"Anyone who may send {asked} gets a copy with {units} hidden units that is off by "
            f"about {_part(found.copy_error / (certificate.scale or 1.0))} of what the answers "
            "vary by, though the answers themselves are noisy or coarse. It took nothing but "
            f"answers.{also}",
        )
    return (
        "This model can be cloned",
        f"Anyone who may send {asked} gets a copy: {network.parameters:,} parameters, {units} "
        "hidden units. At fresh inputs it never differs from the model by more than "
        f"{_part(certificate.relative_deviation)} of what the answers vary by. It took nothing "
        f"but answers.{also}",
    )


def _outside(plan: ExtractionPlan, result: RecoveryResult, also: str) -> tuple[str, str]:
    """Tell of a target that is no ReLU network."""
    found = result.findings()
    learned = plan.diagnosis.outline
    if found.rank:
        learned += f"; it looks at {found.rank} of {found.basis.shape[1]} directions"
    return (
        "Outside what can be cloned exactly",
        f"{_sentence(plan.reason)}. This is no ReLU network, and no clone was made. What was "
        f"still learned: {learned}.{also} This does not rule out an approximate copy trained on "
        "answers.",
    )


def _leaking(
    plan: ExtractionPlan, result: RecoveryResult, asked: int, also: str
) -> tuple[str, str]:
    """Tell of a target that keeps its weights but not what they look at."""
    found = result.findings()
    n = found.basis.shape[1]
    blind = (
        f"The other {n - found.rank} it cannot see: noise there changes no answer."
        if found.rank < n
        else "That is all of them."
    )
    what = (
        f"After {asked:,} queries its answers gave away the {found.rank} of {n} "
        f"directions of input space that it looks at. {blind}"
    )
    if found.units:
        what += f" {found.units} units of its first layer were found as well."
    why = "It is too deep, or too wide in its first layer, to be cloned exactly"
    if plan.diagnosis.kind == "labels":
        why = "Only labels come back"
    if result.status is Status.BUDGET_EXHAUSTED:
        why += ", and the budget ended the attack"
    return (
        "Not cloned, but it leaks what it looks at",
        f"{why}. {what}{also} This does not rule out an approximate copy trained on answers.",
    )


def recommend(
    defences: tuple[Defence, ...], options: AuditConfig, result: RecoveryResult | None = None
) -> str:
    """Name the change of answers that stops the attack and costs an honest user least."""
    if not defences and result is not None and result.copied:
        return (
            "Only labels come back already: there is no coarser answer to fall back to. What "
            "remains is to limit who may ask how much, and to watch for queries far from real "
            "inputs."
        )
    if not defences:
        leaks = result is not None and result.findings().rank
        return (
            "No clone was made, so no defence was weighed. "
            + ("Do not rely on inputs looking harmless: noise that the model cannot see hides "
               "anything from people, and nothing from the model. " if leaks else "")
            + "Keep logging and limiting queries: approximate copies remain possible."
        )  # fmt: skip
    best = best_change(defences, options)
    if best is None and any(d.changes_answers and not d.finished for d in defences):
        return (
            "Whether a change of the answers helps is not known: some attacks were not run to "
            "their end (hatched below). What helps in any case is to limit who may ask how much, "
            "and to watch for queries far from real inputs."
        )
    if best is None:
        return (
            "No change of the answers that was tried surely stops this attack. What "
            "remains is to limit who may ask how much, and to watch for queries far from real "
            "inputs."
        )
    moved = "keep what they say"
    if best.answer_change > 0:
        moved = f"move by {_part(best.answer_change)} of what they vary by"
    return (
        f"Of the changes of answers that stop this attack, '{best.name}' costs an honest user "
        f"least: answers {moved}, and "
        f"{100 * best.label_change:.2g} % of inputs get another top class. It stops exact "
        f"extraction, not an ordinary copy: one trained on {options.copies[-1]:,} such answers "
        f"misses {100 * best.copy_miss:.2g} % (without the defence "
        f"{100 * defences[0].copy_miss:.2g} %). Limit and watch queries as well."
    )


def best_change(defences: tuple[Defence, ...], options: AuditConfig) -> Defence | None:
    """Return the change of answers that stops the attack and costs an honest user least."""
    went_on = {Status.RECOVERED.name, Status.APPROXIMATED.name, Status.BUDGET_EXHAUSTED.name}
    stopped = [
        d
        for d in defences
        if d.changes_answers
        and d.status not in went_on
        and d.attack_error is not None
        and d.attack_error >= options.useless
    ]
    return min(stopped, key=lambda d: (d.label_change, d.answer_change), default=None)
