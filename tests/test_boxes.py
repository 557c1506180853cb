"""The boxes of four papers: every line is marked in the function that runs it as printed.

Daniely & Granot's seven boxes: tests/extraction/test_letter.py.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from unrelu.gaussian import awasthi, population
from unrelu.gaussian import printed as samples
from unrelu.learner import boxes
from unrelu.span import assumptions, plan, subspace
from unrelu.span import printed as labels
from unrelu.thresholds import printed as graphs
from unrelu.thresholds import refine

MARK = re.compile(r"#.*?\b(?:[Ll]ine|[Ss]tep)s? (\d+)(?:(?: to |-| and )(\d+))?")
Functions = list[Callable[..., Any]]

BOXES: dict[str, tuple[Functions, int]] = {
    "Chen 1, GETBIAS": ([boxes.get_bias], 4),
    "Chen 2, GETGRADIENT": ([boxes.get_gradient], 5),
    "Chen 3, GETNEURONS": ([boxes.get_neurons], 15),
    "Chen 4, LEARNFROMQUERIES": ([boxes.learn_from_queries_as_printed], 5),
    "Jayaram 1": (
        [assumptions.gradients_needed, plan.SpanPlan.points, plan.SpanPlan.write,
         plan.gradients_from_replies, subspace.spectrum_of_rows], 6,
    ),
    "Jayaram 2": ([labels.adaptive_gradients], 11),
    "Awasthi 1": ([population.learn_from_population], 6),
    "Awasthi 2, RECOVERSCALARS": ([awasthi.recover_scalars], 2),
    "Awasthi 3, FIXSIGNS": ([awasthi.fix_signs], 2),
    "Awasthi 4": ([awasthi.recover_directions, awasthi.robust_algorithm], 5),
    "Awasthi 5": ([samples._steps_1_and_2, samples._steps_3_and_4], 4),
    "Awasthi 6": ([awasthi.full_rank_algorithm], 2),
    "Goel 1, RefineEstimate": ([refine.refine_estimate], 9),
    "Goel 3, ConstructCorrelationGraph": ([graphs.construct_correlation_graph], 7),
}  # fmt: skip


@pytest.mark.parametrize("box", BOXES)
def test_every_line_of_a_box_is_marked(box: str) -> None:
    functions, lines = BOXES[box]
    marked: set[int] = set()
    for function in functions:
        for text in inspect.getsource(function).splitlines():
            for first, last in MARK.findall(text):
                numbers = {int(first), int(last or first)}
                # "1 and 14" are two lines, "5 to 7" and "3-5" are three.
                between = " and " not in text[text.index("#") :]
                marked |= set(range(min(numbers), max(numbers) + 1)) if between else numbers
    assert marked == set(range(1, lines + 1))
