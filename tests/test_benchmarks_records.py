"""Results on file: lines that two processes may write, stamps, what counts when said twice."""

from __future__ import annotations

import json
import multiprocessing
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import records, stamps  # noqa: E402
from benchmarks.harness import Row, load, run_suite  # noqa: E402
from benchmarks.report_common import measured_where  # noqa: E402

RUNS = 120


def _even(seed: int) -> dict:
    return {"success": seed % 2 == 0, "error": float(seed), "kind": "any word"}


def _write(folder: Path, first: int) -> None:
    for seed in range(first, first + RUNS):
        records.record("busy", "row", {"seed": seed, "text": "x" * 5000}, folder)
        if seed % 10 == 0:
            records.forget("busy", ["another row"], folder)  # writes the whole file anew


def test_two_processes_write_one_file_and_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path, k * RUNS)) for k in (0, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    text = records.file_of("busy", tmp_path).read_text()
    assert all(json.loads(line) for line in text.splitlines())
    runs = load("busy", tmp_path)["rows"]["row"]["runs"]
    assert [run["seed"] for run in runs] == list(range(2 * RUNS))


def test_a_line_cut_short_is_left_out_and_nothing_else(tmp_path):
    records.record("cut", "row", {"seed": 0, "error": 1.0}, tmp_path)
    path = records.file_of("cut", tmp_path)
    path.write_text(path.read_text() + '{"row": "row", "seed": 1, "err')
    records.record("cut", "row", {"seed": 2, "error": 3.0}, tmp_path)
    assert [run["seed"] for run in load("cut", tmp_path)["rows"]["row"]["runs"]] == [0, 2]


def test_every_run_is_one_line_with_its_stamps(tmp_path):
    run_suite("small", [Row("even", _even, range(3), {"success": 2})], folder=tmp_path)
    lines = records.read(records.file_of("small", tmp_path))
    runs = [line for line in lines if "says" not in line]
    assert [run["seed"] for run in runs] == [0, 1, 2]
    assert {run["code"] for run in runs} == {stamps.code()}
    assert [line for line in lines if line.get("says") == "row"] == [
        {"says": "row", "row": "even", "target": {"success": 2}, "seeds": 3}
    ]
    machines = [line["name"] for line in lines if line.get("says") == "machine"]
    assert machines == [stamps.name_of(stamps.facts())]
    before = records.file_of("small", tmp_path).read_text()
    run_suite("small", [Row("even", _even, range(3), {"success": 2})], folder=tmp_path)
    assert records.file_of("small", tmp_path).read_text() == before  # nothing was missing


def test_the_last_line_counts_and_fresh_forgets_one_row_only(tmp_path):
    for error in (1.0, 2.0):
        records.record("twice", "a", {"seed": 0, "error": error}, tmp_path)
        records.record("twice", "b", {"seed": 0, "error": error}, tmp_path)
    records.note("twice", "environments", {"torch": "2"}, tmp_path)
    assert load("twice", tmp_path)["rows"]["a"]["runs"][0]["error"] == 2.0
    records.forget("twice", ["a"], tmp_path)
    data = load("twice", tmp_path)
    assert list(data["rows"]) == ["b"]
    assert data["environments"] == {"torch": "2"}
    runs = [x for x in records.read(records.file_of("twice", tmp_path)) if "says" not in x]
    assert [run["error"] for run in runs] == [2.0]  # b's older line went as well


def test_an_outcome_cannot_take_a_lines_own_names(tmp_path):
    with pytest.raises(ValueError, match="machine"):
        records.record("names", "row", {"seed": 0, "machine": "fast"}, tmp_path)


def test_equal_sources_are_one_code_and_an_edit_makes_another(tmp_path):
    trees = []
    for name in ("one", "two"):
        package, benchmarks = tmp_path / name / "unrelu", tmp_path / name / "benchmarks"
        for folder in (package, benchmarks / "results", package / "__pycache__"):
            folder.mkdir(parents=True)
        (package / "page.html").write_text("<p>")
        (benchmarks / "suite.py").write_text("x = 1\n")
        (benchmarks / "results" / "suite.jsonl").write_text(name)  # no source
        (package / "__pycache__" / "a.pyc").write_text(name)
        trees.append((package, benchmarks))
    assert stamps.digest(*trees[0]) == stamps.digest(*trees[1])
    for path in (trees[1][0] / "page.html", trees[1][1] / "suite.py"):
        before = stamps.digest(*trees[1])
        path.write_text(path.read_text() + " ")
        assert stamps.digest(*trees[1]) != before


def test_a_page_names_codes_and_no_dirty_tree(tmp_path, monkeypatch):
    monkeypatch.setenv("UNRELU_COMMIT", "1234567-dirty")
    stamps.commit.cache_clear()
    assert stamps.commit() == "1234567"
    stamps.commit.cache_clear()
    data = {
        "codes": {"": {"runs": 3}, "abc": {"runs": 5, "commit": "1234567"}},
        "machine": {"cores": 2, "processor": "P", "python": "3.11", "numpy": "2"},
    }
    assert measured_where(data) == (
        "2 cores, P, Python 3.11, numpy 2; code abc (commit 1234567): 5 runs, "
        "code that was not noted: 3 runs."
    )


def test_published_results_are_lines():
    folder = ROOT / "benchmarks" / "results"
    assert not list(folder.glob("*.json"))
    for path in folder.glob("*.jsonl"):
        assert len(records.read(path)) == len(path.read_text().splitlines()), path.name
        assert "-dirty" not in path.read_text(), path.name
    for page in (ROOT / "docs").glob("*.md"):
        assert "-dirty" not in page.read_text(), page.name
