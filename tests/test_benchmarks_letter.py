"""The suites of the papers' letter: found, named once, and judged."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import letter, letter_daniely  # noqa: E402
from benchmarks.records import load  # noqa: E402


def test_parts_are_the_files_with_rows():
    assert "daniely" in letter.parts()
    assert "daniely_figures" not in letter.parts()


@pytest.mark.parametrize("part", letter.parts())
def test_rows_have_names_of_their_own(part):
    rows = importlib.import_module(f"benchmarks.letter_{part}").ROWS
    assert len({row.name for row in rows}) == len(rows)


def test_two_hundred_rational_networks_came_back_bit_for_bit():
    """The published runs: one and two hidden layers, d <= 4, k <= 6."""
    rows = load("letter_daniely")["rows"]
    runs = rows["one hidden layer, exact"]["runs"] + rows["two hidden layers, exact"]["runs"]
    assert sum(run["success"] and run["equal"] for run in runs) == len(runs) == 200
    assert all(run["queries"] <= run["most"] for run in runs)
    shapes = [[int(n) for n in run["shape"].split("-")] for run in runs]
    assert all(d <= 4 and max(hidden) <= 6 for d, *hidden, _ in shapes)


@pytest.mark.parametrize("kind", ["random 4-6-1", "trained 10-8-1"])
def test_kinds_of_the_figure_can_be_drawn(kind):
    network = letter_daniely.KINDS[kind](0)
    assert network.output_dim == 1
