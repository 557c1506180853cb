"""The heads of two papers name tests that exist, and mutations name text that exists."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.mutations_awasthi import MUTATIONS as AWASTHI  # noqa: E402
from benchmarks.mutations_goel import MUTATIONS as GOEL  # noqa: E402
from benchmarks.report_papers import PAPERS, SOURCE, paper_map  # noqa: E402

HERE = {"reproduce_awasthi", "reproduce_goel"}
TESTS = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", file.read_text(), flags=re.MULTILINE)
}


@pytest.mark.parametrize("paper", [p for p in PAPERS if p.page in HERE], ids=lambda p: p.page)
def test_every_test_that_a_map_names_is_there(paper):
    named = set()
    for file in paper.modules:
        head = ast.get_docstring(ast.parse((SOURCE / file).read_text())) or ""
        for _, cell in paper_map(head):
            named |= set(re.findall(r"\btest_\w+", cell))
    assert len(named) >= 10
    assert sorted(named - TESTS) == []


@pytest.mark.parametrize("row", [*AWASTHI, *GOEL], ids=lambda row: row[3].partition("::")[2])
def test_a_mutation_changes_one_place_and_names_its_test(row):
    file, old, new, test = row
    assert (ROOT / file).read_text().count(old) == 1
    assert old != new
    path, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()
