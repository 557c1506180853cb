"""The ``{decisions}`` directive: which method serves which target, asked of the methods.

Targets of every kind are described as ``extract`` sees them, and each method says whether it
accepts them (``accepts.py`` in its folder). Questions that make no difference are left out.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from unrelu._choose_plan import best_offer
from unrelu.diagnostics import Diagnosis
from unrelu.extraction.three_layer import ThreeLayerResult
from unrelu.extraction.two_layer import TwoLayerResult
from unrelu.lines.facts import Facts, Merit
from unrelu.lines.first_look import FirstLook
from unrelu.result import Provenance, QueryStats, RecoveryResult, Status

Change = Callable[[Facts], Facts]


def _seen(**changes: Any) -> Change:
    return lambda facts: dataclasses.replace(
        facts, diagnosis=dataclasses.replace(facts.diagnosis, **changes)
    )


def _told(**changes: Any) -> Change:
    return lambda facts: dataclasses.replace(facts, **changes)


QUESTIONS: dict[str, dict[str, Change]] = {
    "What comes back?": {
        "numbers: outputs of a regression, logits, scores": _seen(kind="values"),
        "probabilities of several classes": _seen(kind="probabilities", output_dim=3),
        "labels only": _seen(kind="labels"),
    },
    "Which inputs may be sent?": {
        "any": _told(area="all"),
        "none that are negative": _told(area="nonnegative"),
        "only those in a range": _told(area="box", domain=(-1.0, 1.0)),
    },
    "How do the answers change?": {
        "in flat pieces, whose borders are straight": _told(look=FirstLook(9, 5, 0, 10.0)),
        "in flat pieces, whose borders bend": _told(look=FirstLook(9, 3, 3, 20.0)),
        "smoothly": _seen(piecewise_linear=False),
        "in steps": _seen(locally_constant=True),
    },
    "How exact are they?": {
        "all digits of float64": _seen(precision="float64", relative_noise=1e-16),
        "float32, or a few decimals": _seen(precision="float32", relative_noise=1e-7),
        "noisy": _seen(relative_noise=1e-2, noise=1e-2, deterministic=False),
    },
}
"""What ``extract`` finds out, as questions; each answer changes the facts that methods see."""

PROMISES = {
    Merit.NETWORK: "the network",
    Merit.RETRY: "the network, though it may be of another kind",
    Merit.COPY: "a copy with a known error",
    Merit.PART: "a part of the network",
}
PAGES = {
    "extract_two_layer": "two_layer.html",
    "extract_three_layer": "three_layer.html",
    "learn_from_queries": "query_learner.html",
    "recover_span": "span.html",
    "extract_any_depth": "tutorial_peel.html",
    "extract_from_labels": "tutorial_labels.html",
}
RESULTS = {"extract_two_layer": TwoLayerResult, "extract_three_layer": ThreeLayerResult}


@dataclasses.dataclass(frozen=True)
class Leaf:
    """What is tried: method, what it does and what it promises, one after the other."""

    attempts: tuple[tuple[str, str, str], ...]


@dataclasses.dataclass(frozen=True)
class Split:
    """A question, and what follows from each of its answers."""

    question: str
    branches: tuple[tuple[tuple[str, ...], Any], ...]


def _plain() -> Facts:
    seen = Diagnosis("values", "float64", 1e-16, 1e-16, True, True, 1.0, 1.0, True, 20, 1, 300,
                     hyperplanes=10.0)  # fmt: skip
    return Facts(seen)


def attempts(facts: Facts) -> Leaf:
    """Return the methods in the order in which they are tried, each after the last one failed."""
    tried = []
    while (offer := best_offer(facts)) is not None:
        tried.append((offer.method.split()[0], offer.words, PROMISES[offer.merit]))
        kind = RESULTS.get(offer.method, RecoveryResult)
        failed = kind(Status.PARTIAL, "", QueryStats(), Provenance(algorithm=offer.method))
        facts = facts.after(offer.method, failed)
    return Leaf(tuple(tried))


def tree(table: Mapping[tuple[str, ...], Leaf], questions: list[str]) -> Leaf | Split:
    """Return the decisions that lead to a table's entries, without those that change nothing."""
    if len(set(table.values())) == 1:
        return next(iter(table.values()))
    question, *others = questions
    below: dict[Any, list[str]] = {}
    for answer in dict.fromkeys(key[0] for key in table):
        part = {key[1:]: leaf for key, leaf in table.items() if key[0] == answer}
        below.setdefault(tree(part, others), []).append(answer)
    if len(below) == 1:
        return next(iter(below))
    branches = tuple((tuple(answers), node) for node, answers in below.items())
    return Split(question, branches)


def decisions() -> Leaf | Split:
    """Ask the methods about every kind of target."""
    table = {}
    for combination in itertools.product(*(answers.items() for answers in QUESTIONS.values())):
        facts = _plain()
        for _, change in combination:
            facts = change(facts)
        table[tuple(answer for answer, _ in combination)] = attempts(facts)
    return tree(table, list(QUESTIONS))


def _method(name: str) -> str:
    code = f"<code>{html.escape(name)}</code>"
    return f'<a href="{PAGES[name]}">{code}</a>' if name in PAGES else code


def as_html(node: Leaf | Split, top: bool = True) -> str:
    """Return nested lists that the style sheet draws as a tree."""
    if isinstance(node, Leaf):
        if not node.attempts:
            return '<span class="method">Nothing: <code>extract</code> says why.</span>'
        (name, words, promise), *others = node.attempts
        then = "".join(
            f'<span class="then">if that fails: {_method(other)}, {html.escape(what)}</span>'
            for other, what, _ in others
        )
        return (
            f'<span class="method">{_method(name)}: {html.escape(words)}. '
            f"Promises {promise}.{then}</span>"
        )
    items = []
    for answers, below in node.branches:
        label = " <em>or</em> ".join(
            f'<span class="answer">{html.escape(answer)}</span>' for answer in answers
        )
        items.append(f"<li>{label} {as_html(below, False)}</li>")
    inner = f'<span class="question">{html.escape(node.question)}</span><ul>{"".join(items)}</ul>'
    return f'<ul class="decisions"><li>{inner}</li></ul>' if top else inner


class Decisions(SphinxDirective):
    """Draw the decision chart here."""

    def run(self) -> list[nodes.Node]:
        """Return the chart."""
        return [nodes.raw("", as_html(decisions()), format="html")]


def setup(sphinx: Any) -> dict[str, bool]:
    """Register the directive."""
    sphinx.add_directive("decisions", Decisions)
    return {"parallel_read_safe": True}
