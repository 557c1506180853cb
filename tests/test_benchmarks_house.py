"""The house in numbers: what is counted, and that it does not grow."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import architecture, house, ways  # noqa: E402

# Ratchets: what there is, to be lowered with every number, long file or long function that
# goes. They were raised once, for the methods of this release that replace older ones (noisy
# answers, boxes, peeling): what those replace goes next. Asked are 150 knobs
# (house.KNOBS_ASKED) and no long file or function at all; what is there is listed by
# python -m benchmarks.house knobs|files|functions|names.
MOST_KNOBS = 359
MOST_NAMES_TWICE = 8
MOST_LONG_FILES = 0
MOST_LONG_FUNCTIONS = 0


def test_knobs_get_fewer():
    assert len(house.knobs()) <= MOST_KNOBS


def test_names_that_exist_twice_get_fewer():
    assert len(house.names_twice()) <= MOST_NAMES_TWICE


def test_files_and_functions_get_shorter():
    assert len(house.long_files()) <= MOST_LONG_FILES
    assert len(house.long_functions()) <= MOST_LONG_FUNCTIONS


SAMPLE = """
SMALL, large = 1e-3, 8 << 30
NAME = "no number"
FLAG = True

@dataclasses.dataclass(frozen=True)
class Config:
    share: float = 0.5
    steps: tuple[int, ...] = (1, 2)
    on: bool = True
    inner: Other = dataclasses.field(default_factory=Other)

@dataclasses.dataclass(frozen=True)
class Found(RecoveryResult):
    width: int = 0

@dataclasses.dataclass(frozen=True)
class Given:
    points: int
    noise: float = 0.0

@dataclasses.dataclass
class State:
    round: int = 3

def f(x, tries=3, *, start=0, factor=-1.5, name="n", on=False):
    '''One line,

    and two more.'''
    return 1
"""


@pytest.fixture
def sample(monkeypatch):
    monkeypatch.setattr(house, "trees", lambda: {"part.file": ast.parse(SAMPLE)})


def test_what_is_a_knob(sample):
    found = {(knob.kind, knob.name) for knob in house.knobs()}
    assert found == {
        ("constant", "SMALL"), ("constant", "large"),
        ("field", "Config.share"), ("field", "Config.steps"),
        ("default", "f(tries=)"), ("default", "f(factor=)"),
    }  # fmt: skip
    assert house.knobs(apart=True) == []


def test_every_fact_is_a_number_somewhere():
    listed = {house.fact_of(knob) for knob in house.knobs(apart=True)}
    assert house.FACTS.keys() <= listed
    assert all(house.part_of(name) not in house.APART for name in house.FACTS)


def test_what_recovers_cannot_import_what_is_left_out():
    graph = house.imports()
    for name in graph:
        if house.recovers(name):
            assert not {house.part_of(other) for other in graph[name]} & set(house.APART), name


def test_a_functions_length_leaves_its_docstring_out(sample):
    assert [(f.name, f.lines) for f in house.functions()] == [("f", 2)]


def test_imports_are_followed_within_the_methods_and_below():
    graph = house.imports()
    assert "lines.survey" in graph["extraction.two_layer_search"]
    seen, edges = house.reached("extraction.two_layer")
    assert {"extraction.two_layer", "lines.kinks", "core.noise"} <= seen
    assert not any(name.startswith(("oracles", "result", "choose")) for name in seen)
    assert len(seen) - 1 <= edges <= len(seen) * (len(seen) - 1)
    assert all(
        other.partition(".")[0] not in house.METHODS or other.partition(".")[0] == method
        for name in graph
        if (method := name.partition(".")[0]) in house.METHODS
        for other in graph[name]
    )


def test_a_way_goes_from_the_call_to_the_target():
    found = dict(ways.ways())
    assert set(found) == set(ways.RUNS)
    for name, way in found.items():
        assert way[0][1] == name.partition(",")[0]
        assert way[-1] == ("oracles.adapters", "CallableOracle._ask")


def test_the_page_names_every_method():
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert "figures/architecture.svg" in page
    for method in architecture.entries():
        assert f"`{method}`" in page
