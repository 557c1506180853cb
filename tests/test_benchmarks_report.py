"""The generator of tables: fits, maps of papers, filled pages, and the harness's bookkeeping."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import harness, report, report_papers, report_peers, report_scaling  # noqa: E402
from benchmarks.__main__ import suites  # noqa: E402
from benchmarks.harness import NotHereError, Row, load, quick_rows, run_one, run_suite, summary  # noqa: E402
from benchmarks.report_common import count, figure, markdown, median, short  # noqa: E402


def test_numbers_are_written_shortly():
    assert [figure(v) for v in (0, 1.23456, 1e-7, 2.5e6)] == ["0", "1.235", "1.0e-7", "2.5e+6"]
    assert [short(v) for v in (None, 0, 0.0123, 12.3, 1234.0, 3e-12)] == [
        "–", "0", "0.012", "12", "1234", "3.0e-12",
    ]  # fmt: skip
    assert count(1234567) == "1,234,567"
    assert median([{"a": 1}, {"a": None}, {}, {"a": 3}], "a") == 2
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_a_power_law_is_found_again(monkeypatch):
    rows = {
        f"depth 2, width: {x}": {"runs": [{"x": x, "queries": 3.0 * x**1.5, "success": True}]}
        for x in (5, 10, 20, 40, 80)
    }
    monkeypatch.setattr(report_scaling, "load", lambda suite: {"rows": rows})
    law = report_scaling.fit("depth 2, width", "queries")
    assert law is not None
    assert law.exponent == pytest.approx(1.5)
    assert law(1000.0) == pytest.approx(3.0 * 1000**1.5)
    assert law.explained == pytest.approx(1.0)
    assert report_scaling.fit("depth 2, width", "seconds") is None
    assert "+1.50" in report_scaling.exponents()


def test_prices_have_two_tiers():
    assert report_scaling.price(1000) == pytest.approx(1.5)
    assert report_scaling.price(6e6) == pytest.approx(7500 + 1000)


def test_a_paper_map_is_read_from_a_docstring():
    text = """Title.

    =============  =========================
    Algorithm 1    :func:`unrelu.steps.find`
    Lemma 2        ``solve``, and on
                   the next line too
    =============  =========================
    """
    assert report_papers.paper_map(text) == [
        ("Algorithm 1", ":func:`unrelu.steps.find`"),
        ("Lemma 2", "``solve``, and on the next line too"),
    ]


def test_every_paper_has_a_map_and_claims():
    page = report_papers.page()
    for paper in report_papers.PAPERS:
        assert paper.title in page
        assert paper.page.removeprefix("reproduce_") in report_papers.CLAIMS
    assert page.count("\n| ") > 40


def test_claims_name_rows_that_exist():
    """A claim whose rows were renamed would silently say nothing."""
    import importlib

    for claims in report_papers.CLAIMS.values():
        for claim in claims:
            rows = importlib.import_module(f"benchmarks.{claim.suite}").ROWS
            for prefix in claim.rows:
                assert any(row.name.startswith(prefix) for row in rows), (claim.suite, prefix)


def test_pages_are_filled_and_unknown_parts_are_refused():
    text = "a\n<!-- generated peers-published: begin -->old<!-- generated peers-published: end -->"
    assert "Carlini" in report.filled(text)
    assert report.filled(report.filled(text)) == report.filled(text)
    with pytest.raises(SystemExit, match="no generated part"):
        report.filled("<!-- generated nothing: begin --><!-- generated nothing: end -->")


def test_a_peer_that_ties_or_wins_is_named(monkeypatch):
    good = {"success": True, "error": 1e-9, "rms_error": 1e-10, "seconds": 1.0, "seed": 0}
    rows = {
        "t | unrelu | default | width unknown": {"runs": [good | {"seconds": 2.0}]},
        "t | torch student | tuned | width given": {"runs": [good]},
        "t | weak | default | width given": {"runs": [good | {"success": False, "error": 1.0}]},
    }
    monkeypatch.setattr(report_peers, "load", lambda suite: {"rows": rows})
    said = report_peers.ahead()
    assert "torch student, tuned, width given ties with unrelu in success (1/1" in said
    assert "fewer seconds" in said
    assert "weak, default, width given ties" not in said


def test_a_crash_and_a_slow_run_are_kept(tmp_path):
    def crash(seed: int) -> dict:
        raise ValueError("no")

    def slow(seed: int) -> dict:
        import signal

        signal.pause()
        return {}

    assert "ValueError" in run_one(Row("crash", crash, [0]), 0)["failure"]
    assert "timeout" in run_one(Row("slow", slow, [0], timeout=0.2), 0)["failure"]


def _absent(seed: int) -> dict:
    raise NotHereError("no such data")


def test_a_row_that_cannot_run_here_is_skipped_not_failed(tmp_path, capsys):
    run_suite("small", [Row("absent", _absent, [0])], folder=tmp_path)
    assert load("small", tmp_path)["rows"]["absent"]["runs"] == []
    assert "no such data" in capsys.readouterr().err


def _even(seed: int) -> dict:
    return {"success": seed % 2 == 0, "error": float(seed)}


def test_a_suite_resumes_and_keeps_failures(tmp_path):
    row = Row("even", _even, range(4))
    run_suite("small", [row], seeds=2, folder=tmp_path)
    run_suite("small", [row], folder=tmp_path)
    entry = load("small", tmp_path)["rows"]["even"]
    assert [run["seed"] for run in entry["runs"]] == [0, 1, 2, 3]
    facts = summary(entry)
    assert (facts["successes"], facts["runs"], facts["error"]["max"]) == (2, 4, 3.0)


def test_the_quick_suite_leaves_out_what_is_slow_or_unmeasured(tmp_path, monkeypatch):
    runs = {"fast": 1.0, "slow": 99.0}
    published = {"rows": {name: {"runs": [{"wall": wall}]} for name, wall in runs.items()}}
    monkeypatch.setattr(harness, "load", lambda suite: published)
    rows = [Row(name, _even, range(9), quick=2) for name in ("fast", "slow", "never measured")]
    chosen = quick_rows("any", rows)
    assert [(row.name, list(row.seeds)) for row in chosen] == [("fast", [0, 1])]
    assert quick_rows("any", [Row("fast", _even, range(9), quick=0)]) == []


def test_suites_of_the_two_sizes():
    assert "scaling" not in suites("quick")
    assert "hostile" in suites("quick")
    assert {"scaling", "hostile", "peers", "peers.moments"} <= set(suites("full"))
