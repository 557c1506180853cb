"""The audit: right verdicts, honest figures, one safe and self-contained page."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise
from pathlib import Path

import aside_work
import jsonschema
import numpy as np
import pytest
from typer.testing import CliRunner

from unrelu import (
    BudgetExhausted,
    InvalidInput,
    ReLUNetwork,
    connect,
    extract,
    planted,
)  # fmt: skip
from unrelu.cli.audit import _tell
from unrelu.cli.main import app
from unrelu.labels.algorithm import LabelsResult
from unrelu.oracles import Labels, Noisy, Softmax
from unrelu.oracles.wrappers import Cast
from unrelu.progress import NullProgress
from unrelu.report import audit, render_page, simulation
from unrelu.report.aside import run_aside
from unrelu.report.attempts import run_attacks
from unrelu.report.audit import AuditConfig
from unrelu.report.compare import changes, read_audit
from unrelu.report.copies import missed, train_students
from unrelu.report.figures import Series, bar_chart, line_chart, weights_image
from unrelu.report.risk import risk_of
from unrelu.report.verdict import _part
from unrelu.result import Certificate, Provenance, QueryStats, Status

QUICK = AuditConfig(
    decimals=(4,), noise=(1e-1,), fractions=(0.2, 1.0), points=300, epochs=5,
    copies=(50, 300),
)  # fmt: skip
NETWORK = planted.random_network(16, 6, 3, rng=0)


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags are closed in order."""

    VOID = frozenset({"meta", "link", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def facts():
    oracle = connect(NETWORK, price=0.001)
    return audit(oracle, rng=0, rate=50.0, image_shape=(4, 4), config=QUICK)


def test_a_network_is_cloned_and_the_facts_add_up(facts):
    assert facts.recovered
    assert facts.headline == "This model can be cloned"
    # The attacker's cost: neither the first look nor the certificate.
    stages = facts.result.queries.by_stage
    looked = stages["diagnosis"] + stages["depth"] + stages["certificate"]
    assert facts.attack_queries == facts.result.queries.total - looked
    assert facts.cost == pytest.approx(0.001 * facts.attack_queries)
    assert facts.duration_at_rate == pytest.approx(facts.attack_queries / 50.0)
    assert facts.risk.level == "high"
    assert f"{facts.attack_queries:,} queries" in facts.actions[0]
    first = facts.defences[0]
    assert first.name == "none"
    assert first.status == "RECOVERED"
    assert first.attack_error < 1e-9
    assert first.answer_change == first.label_change == 0.0
    coarse = next(d for d in facts.defences if d.name.startswith("noise"))
    assert coarse.attack_error > 1e-3  # a tenth of the spread in noise cannot be undone
    assert coarse.answer_change == pytest.approx(0.1, rel=0.2)  # 300 x 3 draws
    assert all(0 <= d.copy_miss <= 1 for d in facts.defences)
    assert facts.leaks[0].error > facts.leaks[-1].error
    assert facts.leaks[-1].width == 6
    # The clone passes through the answers shown.
    assert np.abs(facts.line[:, 1] - facts.line[:, 2]).max() < 1e-9


def test_simulations_ask_the_target_nothing():
    counted = [0]

    def target(x):
        counted[0] += len(x)
        return NETWORK(x)

    oracle = connect(target, input_dim=16)
    facts = audit(oracle, rng=0, config=QUICK)
    stages = set(oracle.queries.by_stage)
    assert oracle.queries.total == counted[0]
    assert oracle.queries.by_stage["figure"] == QUICK.line_points
    assert {"diagnosis", "depth", "certificate", "figure"} <= stages
    assert counted[0] == facts.result.queries.total + QUICK.line_points


def test_a_second_audit_with_the_same_ledger_asks_nothing_but_three_rows(tmp_path):
    counted = [0]

    def target(x):
        counted[0] += len(x)
        return NETWORK(x)

    ledger = tmp_path / "answers.db"
    first = audit(connect(target, input_dim=16, ledger=ledger, name="t"), rng=0, config=QUICK)
    before = counted[0]
    # So does an extraction with the same seed, and whatever else is asked of the same answers.
    extract(connect(target, input_dim=16, ledger=ledger, name="t"), rng=0)
    again = audit(connect(target, input_dim=16, ledger=ledger, name="t"), rng=0, config=QUICK)
    assert counted[0] == before + 2 * 3  # each tells first whether it is the same model
    assert again.result.queries.by_stage["identity"] == 2 * 3
    assert [dataclasses.asdict(d) for d in again.defences] == [
        dataclasses.asdict(d) for d in first.defences
    ]


def test_the_page_is_self_contained_and_accessible(facts):
    text = render_page(facts)
    page = Page(text)
    names = [tag for tag, _ in page.tags]
    assert "script" not in names
    assert not re.search(r"https?://|url\((?!#hatch)|@import|javascript:", text)
    for tag, attributes in page.tags:
        for key in ("src", "href"):
            if key in attributes:
                assert attributes[key].startswith("data:")
        if tag == "img":
            assert attributes["alt"]
        if tag == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
        assert not any(key.startswith("on") for key in attributes)
    assert names.count("svg") == 5
    assert names.count("img") == 3  # the weights; examples before and after
    policy = next(a for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy["content"]
    for word in (facts.headline, "Certificate.", "Which defence helps", "round to 4 decimals"):
        assert word in page.text
    assert "nan" not in text.lower().replace("nance", "")


def test_a_hostile_name_does_nothing():
    name = '<script>alert(1)</script>"><img src=x onerror=alert(1)>{{ 7 * 7 }}'
    facts = audit(connect(NETWORK, name=name), rng=0, config=QUICK)
    text = render_page(facts)
    page = Page(text)
    assert "<script>" in page.text
    assert "script" not in [tag for tag, _ in page.tags]
    assert "{{ 7 * 7 }}" in page.text


def test_json_holds_the_same_facts(facts):
    found = json.loads(facts.to_json())
    assert found["recovered"] is True
    assert found["headline"] == facts.headline
    assert len(found["defences"]) == len(facts.defences)
    assert len(found["singular_values"]) == 6
    schema = json.loads(
        resources.files("unrelu.report").joinpath("audit.schema.json").read_text("utf-8")
    )
    jsonschema.validate(found, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**found, "risk": {"level": "none"}}, schema)


def test_two_audits_are_compared(facts, tmp_path):
    now = json.loads(facts.to_json())
    (tmp_path / "old.json").write_text(facts.to_json())
    assert changes(read_audit(tmp_path / "old.json"), now) == [
        "Nothing that the audit measures has changed."
    ]
    safer = json.loads(facts.to_json())
    safer["risk"]["level"], safer["recovered"] = "low", False
    safer["copies"] = [{"queries": 100, "agreement": 0.5}]
    safer["defences"][0]["status"] = "PARTIAL"
    told = " ".join(changes(now, safer))
    for words in ("fell from high to low", "no longer", "agrees on 50.0 %", "partial, recovered"):
        assert words in told
    for text in ("{}", "[1]", "nonsense"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InvalidInput):
            read_audit(tmp_path / "bad.json")


def test_a_tree_gets_numbers_too():
    facts = audit(connect(tree, input_dim=16), rng=0, config=QUICK)
    assert not facts.recovered
    assert len(facts.copies) == len(QUICK.copies)
    assert facts.risk.level in {"low", "medium"}
    assert "ordinary copy" in render_page(facts)


def test_processes_aside_go_on_until_one_takes_too_long(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    first, again, late, second, broken, third = run_aside(
        aside_work.work, ["a", "b", "endless", "c", "broken", "d"], 0.0
    )
    assert first == again != second
    assert late == ["endless"]
    assert broken == []
    assert len({*first, *second, *third, os.getpid()}) == 4


def test_small_parts_are_told_in_words():
    told = [_part(value) for value in (0.25, 0.0123, 4.2e-5, 1e-6, 7.1e-11, 3e-16)]
    assert told == ["25 %", "1.2 %", "42 millionths", "1 millionth", "71 trillionths",
                    "a trillionth"]  # fmt: skip


def test_a_defence_that_takes_too_long_is_unknown_never_safe(facts, monkeypatch):
    hasty = dataclasses.replace(QUICK, seconds=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(simulation, "run_aside", lambda _, work, __: ([0.2] for _ in work))
        found = audit(connect(NETWORK), rng=0, config=hasty)
    assert {d.status for d in found.defences} == {"UNFINISHED"}
    assert not any(d.finished for d in found.defences)
    assert not any("Change the answers" in action for action in found.actions)
    assert any("not tried to its end" in action for action in found.actions)
    assert "is not known" in found.recommendation
    assert "unknown" in render_page(found)
    # With time enough, processes aside give what this one gives.
    patient = dataclasses.replace(QUICK, seconds=900.0, noise=(), decimals=())
    aside = audit(connect(NETWORK), rng=0, config=patient)
    known = {d.name: d for d in facts.defences}
    for defence in aside.defences:
        assert defence == known[defence.name]


def smooth(x):
    return np.tanh(x @ NETWORK.weights[0].T) @ NETWORK.weights[1].T


def tree(x):
    return np.floor(3 * x[:, :1]) * (x[:, 1:2] > 0.2) + 0.37 * (x[:, 2:3] > 0)


def products(x):
    """Three quadratic forms that no directions diagonalise together: no layer of any units."""
    forms = np.random.default_rng(0).standard_normal((3, 6, 6))
    h = x @ NETWORK.weights[0].T
    return np.einsum("ni,oij,nj->no", h, forms, h)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (products, "attention"),
        (tree, "trees"),
    ],
    ids=["products", "tree"],
)
def test_what_cannot_be_cloned_gets_a_named_refusal(target, words):
    facts = audit(connect(target, budget=20_000, input_dim=16), rng=0, config=QUICK)
    assert not facts.recovered
    assert words in facts.verdict
    assert facts.headline == "Outside what can be cloned exactly"
    assert "What was still learned: 16 inputs" in facts.verdict
    assert facts.defences == ()
    if target is not tree:
        assert facts.rank == 6
        assert "6 of 16 directions" in facts.verdict
    Page(render_page(facts))
    json.loads(facts.to_json())


def test_a_constant_is_told():
    facts = audit(connect(lambda x: np.ones(len(x)), input_dim=16), rng=0, config=QUICK)
    assert facts.recovered
    assert "no hidden units" in facts.verdict or "0 hidden units" in facts.verdict
    Page(render_page(facts))


def test_a_smooth_layer_is_cloned():
    facts = audit(connect(smooth, budget=20_000, input_dim=16), rng=0, config=QUICK)
    assert facts.recovered
    Page(render_page(facts))
    json.loads(facts.to_json())


def test_labels_give_away_a_small_network():
    network = planted.random_network(16, 3, 3, rng=0)
    facts = audit(Labels(connect(network)), rng=0, image_shape=(4, 4), config=QUICK)
    assert facts.recovered or facts.leaking
    Page(render_page(facts))
    json.loads(facts.to_json())


def test_two_hidden_layers_are_cloned_and_defended():
    network = planted.random_network(12, 4, 6, 2, rng=1)
    facts = audit(connect(network), rng=0, config=QUICK)
    assert facts.recovered
    assert "4 and 6 hidden units" in facts.verdict
    assert facts.defences[0].attack_error < 1e-9
    assert facts.leaks[-1].width == 10
    assert "Then extract_three_layer: exact extraction of depth-3" in Page(render_page(facts)).text


def test_deeper_networks_leak_their_span():
    network = planted.random_network(12, 4, 5, 5, 2, rng=0)  # in float64 it is cloned
    served = Cast(connect(network), "float32")
    facts = audit(served, rng=0, image_shape=(3, 4), config=QUICK)
    assert facts.headline == "Not cloned, but it leaks what it looks at"
    assert facts.rank == 4
    assert facts.blind.change < 1e-5  # float32, and a span known to its noise
    Page(render_page(facts))


def test_noisy_answers_are_learned_from():
    facts = audit(Noisy(connect(planted.random_network(10, 5, 1, rng=0)), 1e-3), rng=0,
                  config=QUICK)  # fmt: skip
    assert facts.headline == "This model can be copied closely"
    assert "noisy" in facts.verdict
    assert facts.defences[0].attack_error < 0.05
    Page(render_page(facts))


def convolution(*more: int):
    """A 3 by 3 convolution with two kernels on 6 by 6 images, then dense layers."""
    g = np.random.default_rng(0)
    kernels = g.standard_normal((2, 3, 3))
    rows = []
    for kernel in kernels:
        for i in range(4):
            for j in range(4):
                image = np.zeros((6, 6))
                image[i : i + 3, j : j + 3] = kernel
                rows.append(image.ravel())
    first = np.array(rows) / 3
    widths = (len(first), *more, 3)
    weights = [g.standard_normal((b, a)) / np.sqrt(a) for a, b in pairwise(widths)]
    biases = [0.3 * g.standard_normal(len(w)) for w in (first, *weights)]
    return ReLUNetwork([first, *weights], biases)


def test_a_convolution_is_named():
    facts = audit(connect(convolution()), rng=0, image_shape=(6, 6), config=QUICK)
    assert facts.recovered
    assert "first layer is a convolution" in facts.verdict
    assert "patches of 3 by 3" in facts.verdict


@pytest.mark.slow  # three hidden layers of which the first has 36 inputs: minutes of peeling
def test_a_deep_convolution_is_told():
    deep = audit(connect(convolution(20, 10)), rng=0, image_shape=(6, 6), config=QUICK)
    assert not deep.recovered
    Page(render_page(deep))


def test_what_the_audit_itself_cut_off_or_broke_is_not_recommended():
    from unrelu.report.audit import Defence
    from unrelu.report.verdict import recommend

    plain = Defence("none", "RECOVERED", 100, 1e-12, 0.0, 0.0, 0.2, changes_answers=False)
    cut = Defence("round to 8 decimals", "BUDGET_EXHAUSTED", 400, 1.0, 1e-8, 0.0, 0.2)
    broken = Defence("round to 6 decimals", "FAILED", 0, None, 1e-6, 0.0, 0.2)
    weak = Defence("round to 5 decimals", "PARTIAL", 400, 1e-5, 1e-5, 0.0, 0.2)
    coarse = Defence("round to 2 decimals", "ILL_CONDITIONED", 400, 1.0, 1e-2, 0.01, 0.3)
    text = recommend((plain, cut, broken, weak, coarse), QUICK)
    assert "round to 2 decimals" in text
    assert "No change of the answers" in recommend((plain, weak), QUICK)
    assert "is not known" in recommend((plain, cut, broken, weak), QUICK)


def test_a_budget_that_runs_out_is_told():
    with pytest.raises(BudgetExhausted):
        audit(connect(NETWORK, budget=100), rng=0, config=QUICK)
    facts = audit(connect(NETWORK, budget=800), rng=0, config=QUICK)
    assert not facts.recovered
    assert "budget" in facts.verdict
    assert facts.risk.level == "not shown"
    assert "--budget" in facts.actions[0]
    Page(render_page(facts))


def test_probabilities_and_boxes():
    facts = audit(Softmax(connect(NETWORK)), rng=0, config=QUICK)
    assert facts.recovered
    assert not any(d.name.startswith("probabilities") for d in facts.defences)
    inside = audit(connect(NETWORK, input_range=(-2, 2)), rng=0, config=QUICK)
    assert inside.recovered
    assert not any(d.name.startswith("inputs") for d in inside.defences)


def test_figures_survive_what_they_are_given():
    for values in ([1.0], [2.0, 2.0], [0.0, np.nan, 1.0], [1e-12, 1e12]):
        x = list(range(len(values)))
        for log in (False, True):
            series = [Series("<a>", x, values)]
            text = str(line_chart(series, x_label="&", y_label="y", description='"', log_y=log))
            assert "<a>" not in text
            assert "nan" not in text
    assert line_chart([], x_label="", y_label="", description="") == ""
    assert "<b>" not in bar_chart(["<b>"], [0.0], x_label="y", description="d")
    image = weights_image(np.random.default_rng(0).standard_normal((70, 6)), (2, 3))
    assert image.startswith("data:image/png;base64,")


def test_the_command_writes_the_report(tmp_path):
    runner = CliRunner()
    out = tmp_path / "report.html"
    words = ["audit", "planted:10-4-1", "--out", str(out), "--price", "0.01", "--rate", "10/s"]
    planned = runner.invoke(app, [*words, "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert "in money" in planned.output
    assert "at 10 queries a second" in planned.output
    priced = runner.invoke(app, [*words, "--dry-run", "--json"])
    assert json.loads(priced.stdout)["cost"]["high"] > 1
    assert not out.exists()
    done = runner.invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["recovered"] is True
    assert "This model can be cloned" in out.read_text()
    np.save(tmp_path / "wrong.npy", np.zeros((2, 3)))
    for bad in (
        ["--image", "8"],
        ["--image", "8,8"],
        ["--examples", str(tmp_path / "none.npy")],
        ["--examples", str(tmp_path / "wrong.npy")],
        ["--out", str(tmp_path / "no" / "r.html")],
    ):
        assert runner.invoke(app, ["audit", "planted:10-4-1", *bad]).exit_code == 2


def test_a_gate_before_a_release(tmp_path):
    out = str(tmp_path / "report.html")
    words = ["audit", "planted:6-4-1", "--out", out, "--json"]
    runner = CliRunner()
    first = runner.invoke(app, words)
    assert first.exit_code == 0
    (tmp_path / "old.json").write_text(first.stdout)
    again = runner.invoke(
        app, [*words, "--fail-if", "cloned", "--compare", str(tmp_path / "old.json")]
    )
    assert again.exit_code == 1
    assert "Nothing that the audit measures has changed" in " ".join(again.stderr.split())


def test_a_network_from_labels_is_told_by_labels():
    found = certified(NETWORK, wrong=30)

    def attack(oracle, *_):
        oracle(np.zeros((40, 16)))
        return dataclasses.replace(found, queries=oracle.queries)

    facts = audit(Labels(connect(NETWORK)), rng=0, config=QUICK, attack=attack)
    assert facts.headline == "This model can be copied"
    assert "970 the same label" in facts.verdict
    assert facts.risk.level == "medium"  # 97 % of labels
    assert facts.needed == 40
    assert facts.defences == ()  # no answer is coarser than a label
    assert "Only labels come back" in facts.recommendation
    assert len(facts.copies) == len(QUICK.copies)
    assert "the same label" in render_page(facts)
    exact = dataclasses.replace(certified(NETWORK, wrong=0), status=Status.RECOVERED)
    assert risk_of(exact, (), leaking=False).level == "high"


def certified(network, wrong):
    """A network as labels give it, wrong about some of a thousand."""
    labels = (np.arange(1000) < wrong).astype(np.float64)
    return LabelsResult(
        Status.APPROXIMATED, "learned", QueryStats(), Provenance("extract_from_labels"),
        network=network, labels=(0.0, 1.0, 2.0),
        certificate=Certificate.from_deviations(labels, scale=1.0, tolerance=0.0),
    )  # fmt: skip


def test_an_error_in_labels_is_measured_against_the_commonest():
    truth = np.repeat([0.0, 1.0, 2.0], [60, 30, 10])
    assert simulation.label_error(truth, truth) == 0.0
    assert simulation.label_error(np.zeros(100), truth) == 1.0
    assert simulation.label_error(np.where(np.arange(100) < 60, 0, 1), truth) == pytest.approx(
        0.25
    )
    assert simulation.label_error(np.ones(100), truth) == 1.0


def test_labels_that_the_audit_did_not_attack_to_the_end_are_unknown(facts):
    (labels,) = (d for d in facts.defences if d.name == "top-1 label only")
    assert labels.finished or labels.cut_off
    assert labels.finished is (labels.status != "BUDGET_EXHAUSTED")


def test_labels_only_are_dearer_and_no_defence():
    network = planted.random_network(8, 4, 3, rng=2)
    shift = 0.1 * np.random.default_rng(2).standard_normal(3)  # no two outputs are ever the same
    network = ReLUNetwork(network.weights, [network.biases[0], shift])
    target = connect(network)
    attacked = run_attacks(
        target, "all", None, None, None, rng=0, attempts=1, progress=NullProgress()
    )
    result = attacked.result
    tried = simulation.Simulation(
        target, attacked, result.network, "all", QUICK, np.random.default_rng(0)
    )
    (change,) = (c for c in tried._changes() if c.name == "top-1 label only")
    labels = tried.attacked(change)
    assert labels.status == "RECOVERED"
    assert labels.finished
    assert labels.attack_error == 0.0  # of 300 inputs
    assert labels.queries > 2 * result.queries.total
    assert re.fullmatch(r"took [\d,]+ labels, \d+ times as many queries", labels.note)


def test_the_shell_tells_cost_and_time(facts, capsys):
    dear = dataclasses.replace(facts, price=0.5, rate=2.0)
    _tell(dear, Path("r.html"), quiet=True)
    told = capsys.readouterr().err
    assert f"cost: {dear.attack_queries * 0.5:,.4g} in money, at 0.5 a query" in told
    assert "at 2 queries a second" in told
    assert "risk: high, as an exact copy" in told
    _tell(dataclasses.replace(facts, price=None, rate=None), Path("r.html"), quiet=True)
    assert "cost" not in capsys.readouterr().err


def test_a_tree_is_copied_by_a_tree_and_a_network_by_a_network():
    rng = np.random.default_rng(0)
    x, fresh = rng.standard_normal((2, 600, 4))
    steps = ((x > 0.3) @ np.array([1.0, 2.0, 0.0, 0.0]))[:, None]
    expected = ((fresh > 0.3) @ np.array([1.0, 2.0, 0.0, 0.0]))[:, None]
    options = {"probabilities": False, "width": 32, "epochs": 300, "seed": 0}
    network, tree_copy = (
        missed(student(fresh), expected, probabilities=False)
        for student in train_students(x, steps, **options)
    )
    # Two cuts known to 1 in 600 each: 4 wrong answers in 1,000, of which the root is 7 %.
    assert tree_copy < 0.1 < network
    slope, target = x @ [[1.0], [-1.0], [0.5], [2.0]], fresh @ [[1.0], [-1.0], [0.5], [2.0]]
    network, tree_copy = (
        missed(student(fresh), target, probabilities=False)
        for student in train_students(x, slope, **options)
    )
    assert 2 * network < tree_copy  # a tree would need a leaf for every small piece of a slope


def test_one_unlucky_attack_does_not_make_a_defence(facts, monkeypatch):
    attack, failed = simulation.Simulation.attack, dataclasses.replace(
        facts.result, status=Status.ASSUMPTION_VIOLATED, network=None
    )  # fmt: skip

    def unlucky(self, oracle, domain=None, *, choose=False, attempt=0):
        if choose and attempt < 2:
            return failed, ""
        return attack(self, oracle, domain, choose=choose, attempt=attempt)

    monkeypatch.setattr(simulation.Simulation, "attack", unlucky)
    sizes = dataclasses.replace(QUICK, noise=(), fractions=(1.0,))
    again = audit(connect(NETWORK), rng=0, config=sizes)
    (rounded,) = (d for d in again.defences if d.name.startswith("round"))
    assert rounded.status == "RECOVERED"
    once = dataclasses.replace(sizes, attempts=2)
    (rounded,) = (
        d for d in audit(connect(NETWORK), rng=0, config=once).defences if "round" in d.name
    )
    assert rounded.status == "ASSUMPTION_VIOLATED"


def test_a_number_stays_with_its_unit(facts):
    page = render_page(facts)
    assert not re.search(r"\d %", page)
    assert re.search(r"\d\N{NO-BREAK SPACE}%", page)
