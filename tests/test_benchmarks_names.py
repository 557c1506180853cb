"""Names that documentation mentions are there: in the map of the papers, and in every page."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import names, report_papers  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("paper", report_papers.PAPERS, ids=lambda paper: paper.page)
def test_every_name_of_the_map_is_there(paper):
    rows, missing = report_papers.paper_rows(paper)
    assert rows
    assert missing == []


@pytest.mark.parametrize("paper", report_papers.PAPERS, ids=lambda paper: paper.page)
def test_every_name_of_other_heads_is_there(paper):
    assert report_papers.paper_rows(paper._replace(modules=paper.heads))[1] == []


@pytest.mark.parametrize("paper", report_papers.PAPERS, ids=lambda paper: paper.page)
def test_every_test_of_the_map_is_there(paper):
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for text in sources for name in re.findall(r"^def (test_\w+)", text, re.M)}
    assert set(report_papers.tests_of(paper)) <= defined


def test_a_cell_is_split_into_its_columns():
    cell = "`f`, `g`; in practice `h`; on all of space; deviates: thus; test_f, test_g"
    assert report_papers.parts(cell) == [
        "`f`, `g`", "`h`; on all of space", "thus", "`test_f`, `test_g`"
    ]  # fmt: skip
    assert report_papers.parts("`f`") == ["`f`", "", "", ""]


def test_names_are_written_in_full_and_stale_ones_are_caught():
    cell, missing, last = report_papers.full_names(
        "`find_boundary`, `first_line` of `unrelu.learner.run.Learning`, `kernels.old.name`",
        "unrelu.span.algorithm",
    )
    assert "`unrelu.lines.boundary.find_boundary`" in cell
    assert "`unrelu.learner.run.Learning.first_line`" in cell
    assert missing == ["kernels.old.name"]
    assert last == "unrelu.learner.run.Learning"
    _, missing, _ = report_papers.full_names("`biased=True`, `sideways=True`",
                                             "unrelu.thresholds.algorithm")  # fmt: skip
    assert missing == ["sideways=True"]


def test_a_name_is_found_where_it_is_defined():
    assert names.resolve("measure_gradients", "unrelu.extraction.two_layer") == (
        "unrelu.lines.gradients.measure_gradients"
    )
    assert names.resolve("nowhere_at_all", "unrelu.extraction.two_layer") is None
    assert names.thing("unrelu.result.RecoveryResult.status") is not None  # a field
    assert names.thing("unrelu.result.RecoveryResult.weight") is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_full_names_in_the_pages_are_there(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    mentioned = set(re.findall(r"`(unrelu(?:\.\w+)+)[`(]", text)) - {"unrelu.toml"}  # a file
    assert [name for name in sorted(mentioned) if names.thing(name) is None] == []
