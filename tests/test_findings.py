"""Results say what they found in one way; nothing that shows them knows the methods."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import unrelu
from unrelu import RecoveryResult, Status, connect, planted
from unrelu.findings import Findings
from unrelu.oracles import Labels, Softmax
from unrelu.report.simulation import entry_of
from unrelu.result import Provenance, QueryStats

SOURCE = Path(unrelu.__file__).parent


def every_result() -> list[type[RecoveryResult]]:
    for info in pkgutil.walk_packages(unrelu.__path__, "unrelu."):
        if ".cli" not in info.name and "__main__" not in info.name:
            importlib.import_module(info.name)
    kinds, found = [RecoveryResult], []
    while kinds:
        kind = kinds.pop()
        found.append(kind)
        kinds += [k for k in kind.__subclasses__() if k.__module__.startswith("unrelu.")]
    return found


def empty(kind: type[RecoveryResult], **fields: object) -> RecoveryResult:
    return kind(Status.PARTIAL, "", QueryStats(), Provenance("test"), **fields)


def test_every_result_answers_even_an_empty_one():
    kinds = every_result()
    assert len(kinds) > 8
    for kind in kinds:
        found = empty(kind).findings()
        assert isinstance(found, Findings), kind
        assert found.units == found.rank == 0, kind


def test_results_that_count_units_name_them_as_findings_read_them():
    """A field such as ``units_found`` would not be read, and the report would say zero."""
    for kind in every_result():
        own = {f.name: f for f in dataclasses.fields(kind)}
        counts = [n for n in own if n == "width" or n.endswith("_width")]
        result = empty(kind, **dict.fromkeys(counts, 3))
        assert result.findings().widths == (3,) * len(counts)


def test_what_methods_find_is_told_alike():
    two = unrelu.extract_two_layer(Softmax(connect(planted.random_network(8, 5, 3, rng=0))), rng=0)
    assert two.findings().widths == (5,)
    assert two.findings().log_odds
    three = unrelu.extract(planted.random_network(10, 4, 5, 1, rng=0), rng=0)
    found = three.findings()
    assert (found.widths, found.units, found.log_odds) == ((4, 5), 9, False)
    assert found.first_layer.shape == (4, 10)
    assert entry_of(three) is unrelu.extract_three_layer
    span = unrelu.recover_span(Labels(connect(planted.random_network(8, 2, 3, rng=0))),
                               answers="labels", rng=0)  # fmt: skip
    assert span.findings().rank == 2
    assert np.array_equal(span.findings().basis, span.basis)
    assert span.findings().copy_error is None


@pytest.mark.parametrize("chosen", ["recover_span from labels", "recover_span"])
def test_the_entry_is_what_extract_chose(chosen):
    assert Provenance("extract", options={"chosen": chosen}).entry == "recover_span"
    assert Provenance("learn_from_queries").entry == "learn_from_queries"


def test_what_shows_results_asks_no_type():
    for path in [*(SOURCE / "report").rglob("*.py"), *(SOURCE / "cli").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                asked = ast.unparse(node) if node.func.id == "isinstance" else ""
                assert "Result" not in asked, f"{path.name}:{node.lineno}: {asked}"
