"""Results: saved and reloaded whole, JSON, repr, certificates with their bound."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from unrelu import (
    Certificate,
    InvalidInput,
    RecoveryResult,
    ReLUNetwork,
    Status,
    planted,
)
from unrelu.result import Provenance, QueryStats, StageReport


@dataclasses.dataclass(frozen=True, repr=False)
class WithBasis(RecoveryResult):
    basis: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(2))
    note: str = "hello"
    widths: tuple[int, ...] = ()


def make(kind: type[RecoveryResult] = RecoveryResult, **extra) -> RecoveryResult:
    return kind(
        status=Status.RECOVERED,
        message="all neurons found",
        queries=QueryStats(120, {"lines": 100, "certificate": 20}, 7),
        provenance=Provenance("test", seed=3, options={"domain": (0.0, np.float64(1.0))}),
        certificate=Certificate.from_deviations(
            np.array([1e-9, 2e-9]), scale=1.0, tolerance=1e-8, details={"condition": np.inf}
        ),
        stages=(StageReport("lines", 100, 0.5, "fine", {"kinks": np.int64(10)}),),
        **extra,
    )


def test_save_and_load_keep_everything(tmp_path):
    net = planted.random_network(4, 3, 1, rng=0)
    result = make(network=net)
    loaded = RecoveryResult.load(result.save(tmp_path / "r.safetensors"))
    assert type(loaded) is RecoveryResult
    assert loaded.network == net
    assert loaded.status is Status.RECOVERED
    assert loaded.success
    assert loaded.queries == result.queries
    assert loaded.certificate.max_deviation == result.certificate.max_deviation
    assert loaded.stages[0].details == {"kinks": 10}
    assert loaded.provenance.seed == 3
    assert json.loads(loaded.to_json()) == json.loads(result.to_json())
    assert ReLUNetwork.load(tmp_path / "r.safetensors") == net


def test_subclasses_keep_their_own_fields(tmp_path):
    basis = np.random.default_rng(0).standard_normal((2, 5))
    result = make(WithBasis, basis=basis, note="x", widths=(4, 3))
    loaded = RecoveryResult.load(result.save(tmp_path / "r.safetensors"))
    assert isinstance(loaded, WithBasis)
    assert loaded.network is None
    assert loaded.note == "x"
    assert loaded.widths == (4, 3)
    np.testing.assert_array_equal(loaded.basis, basis)
    assert "basis" in repr(loaded)
    assert "array (2, 5)" in repr(loaded)


def test_json_is_strict_and_readable():
    facts = json.loads(make(network=planted.random_network(4, 3, 1, rng=0)).to_json())
    assert facts["status"] == "RECOVERED"
    assert facts["queries"]["total"] == 120
    assert facts["network"]["architecture"] == "4-3-1"
    assert facts["certificate"]["details"]["condition"] == "inf"


def test_repr_reads_well():
    text = repr(make(network=planted.random_network(4, 3, 1, rng=0)))
    assert "RECOVERED" in text
    assert "120 in 7 round trips" in text
    assert "4-3-1" in text
    samples = dataclasses.replace(make(), queries=QueryStats(samples=1000))
    assert "samples" in repr(samples)
    assert "queries" not in repr(samples)


def test_a_long_result_fits_a_screen():
    stages = {f"stage {i}": 10 * i for i in range(30)}
    long = dataclasses.replace(
        make(network=planted.random_network(4, 3, 1, rng=0)),
        message="many words " * 40, queries=QueryStats(sum(stages.values()), stages, 7),
    )  # fmt: skip
    lines = repr(long).splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    # Nothing is lost: what is shown by stage sums to the whole.
    shown = [int(line.split()[-1].replace(",", "")) for line in lines if line[:5] == "    s"]
    others = int(lines[-1].split()[-1].replace(",", ""))
    assert sum(shown) + others == sum(stages.values())
    assert max(stages.values()) in shown


def test_success_is_derived_from_the_status():
    assert not dataclasses.replace(make(), status=Status.PARTIAL).success


def test_certificate_bound_is_clopper_pearson():
    # No exceedance in n: the one-sided bound is 1 - 0.0001^(1/n).
    clean = Certificate.from_deviations(np.zeros(300), scale=1.0, tolerance=1e-9)
    assert clean.fraction_bound == pytest.approx(1 - 0.0001 ** (1 / 300), rel=1e-9)
    some = Certificate.from_deviations(
        np.r_[np.zeros(95), np.ones(5)], scale=2.0, tolerance=0.5, confidence=0.9
    )
    from scipy.stats import binom

    # By definition the bound p solves P(Binomial(n, p) <= 5) = 1 - confidence.
    assert binom.cdf(5, 100, some.fraction_bound) == pytest.approx(0.1, rel=1e-9)
    assert some.exceeding == 5
    assert some.relative_deviation == 0.5
    every = Certificate.from_deviations(np.ones((4, 2)), scale=0.0, tolerance=0.1)
    assert every.fraction_bound == 1.0
    assert every.relative_deviation == 1.0
    assert "held-out" in str(every)
    with pytest.raises(InvalidInput):
        Certificate.from_deviations(np.empty(0), scale=1.0, tolerance=1.0)


def test_query_stats_leave_the_certificate_out():
    assert QueryStats(120, {"lines": 100, "certificate": 20}, 7).without_certificate == 100


def test_loading_something_else_is_refused(tmp_path):
    path = planted.random_network(4, 3, 1, rng=0).save(tmp_path / "n.safetensors")
    with pytest.raises(InvalidInput, match="does not hold an unrelu result"):
        RecoveryResult.load(path)
