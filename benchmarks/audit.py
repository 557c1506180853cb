"""The audit's verdicts against what attacks reach on the truly defended model.

Twelve trained models of six kinds: one hidden layer (values), one hidden layer
(probabilities), two hidden layers, smooth units, trees, and linear models. The
audit sees answers alone. Then the model itself is put behind each defence that
the audit tried on its clone, and attacked with another seed; the attacker's
network is judged with the model. A run succeeds where every claim was true:

- "can be cloned": the clone is useful at fresh inputs, or as often right about the label as told;
- "this defence stops the attack" (its clone is useless): none of three attackers ends with
  a useful one; or that it does not: one of them ends with more than a useless one;
- the risk level: what attacks of other seeds reach is no worse than it says.

``false_clear`` counts claims that were too calm: a defence that was said to stop an
attack which it does not stop, a risk that is higher than told. ``unknown`` counts
defences of which the audit claims neither.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Row, main
from unrelu import connect, extract
from unrelu._types import FloatArray
from unrelu.errors import UnreluError
from unrelu.labels.algorithm import LabelsResult
from unrelu.oracles import Labels, Noisy, Oracle, Rounded, Softmax
from unrelu.progress import NullProgress
from unrelu.report import Audit, audit
from unrelu.report.config import AuditConfig
from unrelu.report.copies import copy_curve, typical_inputs
from unrelu.report.risk import risk_of
from unrelu.report.simulation import label_error
from unrelu.report.structure import seen_span
from unrelu.report.zoo import LEVELS
from unrelu.result import RecoveryResult

CONFIG = AuditConfig(
    decimals=(2,), noise=(1e-3,), fractions=(1.0,), points=1000, epochs=20,
    copies=(250, 500), seconds=10.0,
)  # fmt: skip
"""Fewer defences and smaller copies than by default, so that a model takes a minute."""
JUDGED = 200_000
"""Inputs at which labels are compared: ten times as many as the audit did."""
ATTACKERS = 3
"""Attacks on a defended model, each with a seed of its own: one that gets through is enough."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A trained model as its service shows it."""

    ask: Callable[[FloatArray], FloatArray]
    inputs: int
    probabilities: bool


def _table(name: str) -> tuple[FloatArray, FloatArray]:
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def _served(estimator: Any, data: str, seed: int) -> Model:
    """Train on another half of the rows for each seed."""
    x, y = _table(data)
    chosen = np.random.default_rng(seed).permutation(len(x))[: len(x) // 2]
    classifies = hasattr(estimator, "predict_proba") or hasattr(estimator, "classes_")
    y = y if classifies else (y - y.mean()) / y.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fixed effort is meant
        estimator.fit(x[chosen], y[chosen])
    ask = estimator.predict_proba if classifies else lambda rows: estimator.predict(rows)[:, None]
    return Model(ask, x.shape[1], classifies)


def _mlp(kind: str, data: str, widths: tuple[int, ...], seed: int, *, unit: str = "relu") -> Model:
    from sklearn import neural_network

    maker = getattr(neural_network, f"MLP{kind}")
    return _served(
        maker(hidden_layer_sizes=widths, activation=unit, max_iter=400, random_state=seed),
        data,
        seed,
    )


def _tree(kind: str, data: str, seed: int) -> Model:
    from sklearn import tree

    return _served(
        getattr(tree, f"DecisionTree{kind}")(max_depth=5, random_state=seed), data, seed
    )


def _linear(kind: str, data: str, seed: int) -> Model:
    from sklearn import linear_model

    return _served(getattr(linear_model, kind)(), data, seed)


MODELS: dict[str, Callable[[int], Model]] = {
    "one hidden layer, values: diabetes 10-6-1": partial(_mlp, "Regressor", "diabetes", (6,)),
    "one hidden layer, values: wine 13-8-1": partial(_mlp, "Regressor", "wine", (8,)),
    "one hidden layer, probabilities: iris 4-5-3": partial(_mlp, "Classifier", "iris", (5,)),
    "one hidden layer, probabilities: wine 13-6-3": partial(_mlp, "Classifier", "wine", (6,)),
    "two hidden layers: diabetes 10-4-4-1": partial(_mlp, "Regressor", "diabetes", (4, 4)),
    "two hidden layers: wine 13-4-3-1": partial(_mlp, "Regressor", "wine", (4, 3)),
    "smooth: diabetes, tanh": partial(_mlp, "Regressor", "diabetes", (4,), unit="tanh"),
    "smooth: iris, logistic": partial(_mlp, "Classifier", "iris", (4,), unit="logistic"),
    "tree: diabetes": partial(_tree, "Regressor", "diabetes"),
    "tree: wine classes": partial(_tree, "Classifier", "wine"),
    "linear: diabetes": partial(_linear, "Ridge", "diabetes"),
    "linear: iris, logistic": partial(_linear, "LogisticRegression", "iris"),
}


class _Clipped(Noisy):
    """Noisy probabilities, kept in [0, 1] as a service would."""

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        return np.clip(super()._answer(points, repeat), 0.0, 1.0)


def deployed(name: str, model: Model, budget: int, spread: float) -> Oracle | None:
    """Return the model itself behind a defence, as the audit names it; None where it is none."""
    oracle: Oracle = connect(model.ask, input_dim=model.inputs, budget=budget)
    words = name.split()
    if name.startswith("round to"):
        return Rounded(oracle, int(words[2]))
    if name.startswith("noise of"):
        sigma = float(words[2]) / 100 * spread
        return _Clipped(oracle, sigma) if model.probabilities else Noisy(oracle, sigma)
    if name.startswith("probabilities"):
        return Softmax(oracle)
    return Labels(oracle) if name.startswith("top-1") else None


def error_of(result: RecoveryResult | None, model: Model, x: FloatArray) -> float:
    """Return a clone's true root mean square error over the answers' spread, at most 1."""
    network = None if result is None else result.network
    if network is None:
        return 1.0
    truth = model.ask(x)
    if isinstance(result, LabelsResult):
        return label_error(result.predict(x), truth.argmax(axis=1))
    found = network(x)
    if model.probabilities:
        logs = np.log(np.clip(truth, 1e-300, 1.0))
        truth = logs - logs.mean(axis=1, keepdims=True)
        if found.shape[1] == 1 and truth.shape[1] == 2:
            found = np.column_stack([-found / 2, found / 2])
    if found.shape != truth.shape:
        return 1.0
    if model.probabilities:
        found = found - found.mean(axis=1, keepdims=True)
    error = float(np.sqrt(np.mean((found - truth) ** 2)) / (truth.std() or 1.0))
    return min(1.0, error) if np.isfinite(error) else 1.0


def is_as_told(result: RecoveryResult, model: Model, x: FloatArray, seed: int) -> bool:
    """Whether a clone is what the audit says of it: useful, or right about so many labels.

    The audit bounds how often labels differ, from 20,000 of them: the judge looks at more.
    """
    if isinstance(result, LabelsResult) and result.certificate is not None:
        size = (JUDGED, model.inputs)
        x = np.random.default_rng(seed).standard_normal(size)
        wrong = np.mean(result.predict(x) != model.ask(x).argmax(axis=1))
        return bool(wrong <= result.certificate.fraction_bound)
    return error_of(result, model, x) < CONFIG.useful


def _attacked(oracle: Oracle, seed: int) -> RecoveryResult | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return extract(oracle, rng=seed)
        except UnreluError:
            return None


def best_of_attackers(
    behind: Callable[[], Oracle | None], model: Model, x: FloatArray, seed: int
) -> float:
    """Return the least error that one of a few attackers reaches; a useful clone ends the try."""
    best = 1.0
    for number in range(ATTACKERS):
        oracle = behind()
        assert oracle is not None
        best = min(best, error_of(_attacked(oracle, seed + 1000 * number), model, x))
        if best < CONFIG.useful:
            break
    return best


def true_level(model: Model, facts: Audit, seed: int) -> str:
    """Return the risk by the audit's own rule, measured on the model with another seed."""
    rng = np.random.default_rng(seed)
    oracle = connect(model.ask, input_dim=model.inputs)
    result = _attacked(oracle, seed)
    assert result is not None
    copies = copy_curve(
        oracle,
        typical_inputs(oracle, max(CONFIG.copies), rng),
        typical_inputs(oracle, CONFIG.points, rng),
        CONFIG.copies, probabilities=facts.diagnosis.kind == "probabilities",
        labels=facts.diagnosis.kind == "labels", width=CONFIG.copy_width, epochs=CONFIG.epochs,
        seed=seed, progress=NullProgress(),
    )  # fmt: skip
    return risk_of(result, copies, leaking=bool(len(seen_span(result)))).level


def judged(seed: int, make: Callable[[int], Model]) -> dict[str, Any]:
    """Audit one model, then attack it as it is and behind the defences that were weighed."""
    model = make(seed)
    facts = audit(connect(model.ask, input_dim=model.inputs), rng=seed, config=CONFIG)
    x = np.random.default_rng(seed + 1).standard_normal((CONFIG.points, model.inputs))
    spread = float(model.ask(x).std())
    clone = error_of(facts.result if facts.recovered else None, model, x)
    true = not facts.recovered or is_as_told(facts.result, model, x, seed + 1)
    wrong = [] if true else ["cloned"]
    calm: list[str] = []
    unknown = 0
    for defence in facts.defences:
        behind = partial(deployed, defence.name, model, max(5000, 3 * defence.queries), spread)
        if behind() is None:
            continue
        if not defence.finished or defence.attack_error is None:
            unknown += 1
            continue
        if CONFIG.useful <= defence.attack_error < CONFIG.useless:
            unknown += 1  # nothing is claimed
            continue
        reached = best_of_attackers(behind, model, x, seed + 2)
        told = f"{defence.name}: {defence.attack_error:.2g} told, {reached:.2g} reached"
        if defence.attack_error >= CONFIG.useless and reached < CONFIG.useful:
            calm.append(told)
        if defence.attack_error < CONFIG.useful and reached >= CONFIG.useless:
            wrong.append(told)
    level = true_level(model, facts, seed + 3)
    if LEVELS.index(level) < LEVELS.index(facts.risk.level):
        calm.append(f"risk {facts.risk.level} told, {level} reached")
    return {
        "success": not wrong and not calm,
        "verdict": facts.headline,
        "risk": facts.risk.level,
        "true_risk": level,
        "clone_error": clone,
        "queries": facts.attack_queries,
        "defences": len(facts.defences),
        "unknown": unknown,
        "false_clear": len(calm),
        "claims_not_true": [*calm, *wrong],
    }


ROWS = [
    Row(
        name,
        partial(judged, make=make),
        [68_000 + i, 69_000 + i],
        {"success": 1, "false_clear": 0},
        600.0,
    )
    for i, (name, make) in enumerate(MODELS.items())
]

if __name__ == "__main__":
    main("audit", ROWS)
