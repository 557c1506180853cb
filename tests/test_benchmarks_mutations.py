"""The runner of mutations: every row points to one place and to a test that is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import mutations  # noqa: E402


@pytest.mark.parametrize("paper", mutations.papers())
def test_every_mutation_changes_one_place_of_a_tested_line(paper):
    rows = mutations.mutations(paper)
    assert rows
    for file, old, new, test in rows:
        text = (ROOT / file).read_text()
        assert mutations.mutated(text, old, new) != text
        path, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.M), test


def test_a_place_that_is_not_there_or_not_alone_is_refused():
    assert mutations.mutated("a + b", "+", "-") == "a - b"
    for text in ("a * b", "a + b + c"):
        with pytest.raises(ValueError, match="times, not once"):
            mutations.mutated(text, "+", "-")


def test_outcomes_are_told_of_present_rows_only(monkeypatch):
    first, second, third = mutations.mutations("goel")[:3]
    rows = {
        mutations.name_of("goel", first): {"runs": [{"success": True, "told": "fails"}]},
        mutations.name_of("goel", second): {"runs": [{"success": False, "told": "PASSES"}]},
        mutations.name_of("goel", (*third[:3], "a test of old")): {"runs": [{"success": True}]},
    }
    monkeypatch.setattr(mutations, "load", lambda suite: {"rows": rows})
    assert [run["success"] for run in mutations.on_file("goel").values()] == [True, False]
    every = len(mutations.mutations("goel"))
    assert f"| goel | {every} | 2 | 1 | 0 | 1 |" in mutations.table()
