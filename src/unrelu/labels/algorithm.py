r"""A one-hidden-layer ReLU network from its labels alone.

References
----------
Dual points (where the decision boundary crosses a unit's hyperplane) and the recovery of
rows from them are known from the hard-label literature:

- N. Carlini, J. Chávez-Saab, A. Hambitzer, F. Rodríguez-Henríquez, A. Shamir, *Polynomial Time
  Cryptanalytic Extraction of Deep Neural Networks in the Hard-Label Setting*, 2024.
- Y. Chen, X. Dong, J. Guo, Y. Shen, A. Wang, X. Wang, *Hard-Label Cryptanalytic Extraction of
  Neural Network Models*, 2024.
- R. Jayaram, D. P. Woodruff, Q. Zhang, *Span Recovery for Deep Neural Networks with
  Applications to Input Obfuscation*, 2020: normals of the boundary lie in the rows' span.

Setting
-------
A target answers the label of ``F(x) = U relu(W x + b) + A x + c``: the class of its largest
output, or whether a single one passes a threshold. Only equality of labels is used.

Assumptions
-----------
Two labels occur among typical inputs; hyperplanes that the boundary crosses are farther apart
than the labels' resolution shows; boundaries are flat on the scale of the first step.

Guarantee
---------
RECOVERED: the network predicted every held-out label: of typical inputs, of the rows that came
with the target (``connect(data=...)``), and of points at distances of 1e-3, 1e-6 and 1e-9 from
its own boundary, as far as the measured resolution of the labels allows to tell; and no answer of
the whole run contradicts it. ``free`` lists what labels do not determine. APPROXIMATED: a network
whose agreement on held-out inputs was measured, the last one found or one trained on labels,
whichever is better. PARTIAL: what was found.

What labels cannot tell
-----------------------
A function added to all outputs; a positive scale; one more scale for every part of the classes
that no cycle of boundaries joins to the rest; units that no boundary crosses, and the weights
with which a unit acts on classes beside whose boundary it does not switch.

Map
---
======================================================  =====================================
a subspace that holds an input of every class           :class:`unrelu.labels.charts.Chart`
walk on the boundary to where it bends                  :mod:`unrelu.labels.walks`
two dual points share a unit where their spans meet     :func:`unrelu.labels.hyperplanes.pair_up`
outputs: null vectors of the boundary's equations       :func:`unrelu.labels.fit.solve_outputs`
least squares over distances to the boundary            :func:`unrelu.labels.fit.fit_model`
units that a model lacks, from where it fails           :mod:`unrelu.labels.missing`
the first of several layers, where bends never end      :mod:`unrelu.labels.first_layer`
which points to ask                                     :mod:`unrelu.labels.design`
all inputs, from derivatives across the subspace        :mod:`unrelu.labels.lift`
certificate                                             :mod:`unrelu.labels.certify`
a trained copy, where no network explains all labels    :mod:`unrelu.labels.approximate`
======================================================  =====================================

Deviations
----------
- The literature signs and orders layers of deep networks; here one hidden layer, any number of
  classes, to the last bit that labels show.
- The search works to 14 bits only, so that float32 labels suffice for it, and all bits are asked
  for at points that a model has chosen: labels a boundary point fall from 50 to about 30.
- Walks stop at walls that are known: a hyperplane is measured twice, then never again. Where
  the boundary folds back at one, no line along the old normal meets it: they go around.
- A unit that no walk met is read off where a model fails: there its plane and the true one
  meet on the unit's hyperplane (:mod:`unrelu.labels.missing`).
- Labels of the run that contradict a model are data for its next fit. Crossings that a fit leaves
  unexplained are no outliers but a weak unit's: few over the unknowns hide it in all the others,
  so that every turn of the search asks for as many more.
- Null vectors that come from units which do not switch beside a class are told from the solution
  by the labels of typical inputs (a linear program).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._random import RandomState
from unrelu._types import ArrayLike
from unrelu.core.run import Run
from unrelu.core.units import Units, resolve_signs
from unrelu.errors import InvalidInput
from unrelu.labels.approximate import Copy, train_copy
from unrelu.labels.boundary import Crossings
from unrelu.labels.certify import Verdict, certify
from unrelu.labels.charts import Chart
from unrelu.labels.config import DISTANCES, LEVER, LabelsConfig
from unrelu.labels.first_layer import FirstLayer
from unrelu.labels.fit import free_scales
from unrelu.labels.hyperplanes import Hyperplanes
from unrelu.labels.model import Model
from unrelu.labels.result import LabelsResult
from unrelu.labels.run import LabelsRun, OneLabel
from unrelu.labels.search import ChartSearch
from unrelu.lines.domains import as_domain
from unrelu.networks import ReLUNetwork
from unrelu.progress import Progress
from unrelu.result import Status

__all__ = ["LabelsConfig", "LabelsResult", "extract_from_labels"]


def extract_from_labels(
    oracle: Any,
    *,
    domain: str | tuple[ArrayLike, ArrayLike] = "all",
    budget: int | None = None,
    rng: RandomState = None,
    progress: Progress | None = None,
    config: LabelsConfig | None = None,
) -> LabelsResult:
    """Recover a network with one hidden layer from labels.

    Parameters
    ----------
    oracle
        Anything that :func:`~unrelu.oracles.as_oracle` takes, answering one column of labels
        (numbers; only their equality counts).
    domain
        ``"all"`` or a box ``(low, high)``.
    budget
        Labels that may be asked at most; by default what the oracle allows.
    rng
        Seed or generator.
    progress
        Receives updates.
    config
        Numbers to change, for experts.

    Returns
    -------
    LabelsResult
        RECOVERED promises that all held-out labels were predicted, also beside the boundary.

    Examples
    --------
    >>> import numpy as np, unrelu
    >>> score = unrelu.planted.random_network(10, 4, 1, rng=0)
    >>> middle = np.median(score(np.random.default_rng(0).standard_normal((4000, 10))))
    >>> label = unrelu.connect(lambda x: (score(x) > middle).astype(float), input_dim=10)
    >>> unrelu.extract_from_labels(label, rng=0).width
    4
    """
    base = Run(
        oracle, algorithm="extract_from_labels", rng=rng, budget=budget, progress=progress,
        options={"domain": domain if isinstance(domain, str) else "box", "budget": budget},
    )  # fmt: skip
    target = base.target
    if target.output_dim != 1:
        raise InvalidInput(
            f"labels come in one column, the target answers {target.output_dim}: "
            "wrap it in unrelu.oracles.wrappers.Labels"
        )
    run = LabelsRun(base, as_domain(domain, target.input_dim), config or LabelsConfig())

    def steps() -> LabelsResult:
        try:
            return _extracted(run)
        except OneLabel:
            return _result(
                run, Status.ASSUMPTION_VIOLATED,
                "one label is all that typical inputs show; give a domain in which two occur",
            )  # fmt: skip

    # What contradicts a network was counted with its certificate: labels have no noise to explain.
    return base.ended(steps, lambda status, message: _result(run, status, message), lambda r: r)


def _extracted(run: LabelsRun) -> LabelsResult:
    """Search charts until a model predicts its own boundary and is vouched for."""
    run.look()
    first = FirstLayer(run)
    failed = Crossings.none(run.whole.dimension)
    for turn in range(run.config.rounds):
        failed = _chart(run, failed, last=turn == run.config.rounds - 1)
        if not run.trusted and run.chart is not None and run.hyperplanes is not None:
            first.test(run.chart, run.hyperplanes)
            if first.deeper:
                first.search()
                break
        if len(failed) or run.model is None:
            continue
        verdict = _vouched(run)
        failed = verdict.failed
        if verdict.passed(0):
            return _result(run, Status.RECOVERED, _recovered(run), verdict)
        if run.settled:  # another subspace would show the same, at its full price
            break
    return _conclude(run)


def _vouched(run: LabelsRun) -> Verdict:
    """Certify the model; what speaks against it is data for another fit, then a fresh one.

    A verdict that passed has no answer of the run against it.
    """
    for _ in range(run.config.rounds):
        assert run.model is not None
        run.model = run.model.padded(len(run.target.names))
        verdict = certify(run, run.model)
        against, _ = run.contradicting(run.model)
        if verdict.passed(against):
            break
        run.base.target.meter.rebook("certificate", "check", run.base.stages[-1].queries)
        verdict = dataclasses.replace(verdict, sharp=False)
        before, failed = run.model.vector(), verdict.failed
        if against:
            failed = run.complete(run.model)
        if len(failed) or np.array_equal(before, run.model.vector()):
            return dataclasses.replace(verdict, failed=failed)
    return verdict


def _chart(run: LabelsRun, failed: Crossings, *, last: bool) -> Crossings:
    """Search one subspace, lift what it shows, and return where the outcome fails.

    The subspace holds an input of every class, and points at which the last model failed.
    """
    s = run.dimension()
    held = np.concatenate([run.target.examples, failed.points[:2]])[-s:]
    chart = Chart.through(run.target, held, s, run.rng)
    known = Hyperplanes.none(s)
    if run.model is not None and run.trusted:
        inside = run.model.in_chart(chart.rows, chart.origin)
        known = Hyperplanes(inside.rows, inside.offsets, np.zeros(inside.width, np.intp))
    model = ChartSearch(run, chart, known).find(patient=last or s == run.whole.dimension)
    if model is None:
        return failed
    return run.complete(run.lift(model, chart))


def _conclude(run: LabelsRun) -> LabelsResult:
    """Give the best that there is: the last model, or a copy trained on labels."""
    verdict, seen = None, _partial(run)
    if run.model is not None:
        verdict = certify(run, run.model)
        against, _ = run.contradicting(run.model)
        if verdict.passed(against):
            return _result(run, Status.RECOVERED, _recovered(run), verdict)
        seen = _failed(run, verdict, against)
    copy = train_copy(run)
    if verdict is None or copy.agreement > verdict.agreement:
        if copy.agreement >= run.config.useful:
            return _result(run, Status.APPROXIMATED, f"{seen}. {_trained(copy)}", copy)
    elif verdict.agreement >= run.config.useful:
        return _result(run, Status.APPROXIMATED, seen, verdict)
    return _result(
        run, Status.PARTIAL,
        f"{seen}. A trained copy gives {copy.agreement:.2%} of held-out inputs their label. The "
        "hyperplanes of the last subspace are given; recover_span finds the span of the first "
        "layer", verdict,
    )  # fmt: skip


def _failed(run: LabelsRun, verdict: Verdict, against: int) -> str:
    """Say what speaks against the last model."""
    total = len(run.base.target.record)
    return (
        f"{verdict.agreement:.4%} of {run.config.held_out:,} typical inputs have the label that "
        f"the network found predicts; {against:,} of all {total:,} labels contradict it: some "
        "units were not found, or the target has more layers"
    )


def _trained(copy: Copy) -> str:
    """Say what a trained copy is."""
    return (
        f"The network given was trained on labels beside its own boundary: {copy.agreement:.2%} "
        "of held-out inputs have the label that it predicts; its weights are not the target's"
    )


def _recovered(run: LabelsRun) -> str:
    assert run.model is not None
    spent = run.target.oracle.queries.without_certificate
    return (
        f"{run.model.width} units, {run.model.classes} labels, {spent:,} labels asked; every "
        f"held-out label was predicted, down to {max(DISTANCES[-1], LEVER * run.noise):.0e} "
        "from the boundary"
    )


def _partial(run: LabelsRun) -> str:
    if len(run.first):
        return (
            f"the target has more than one hidden layer; {len(run.first)} hyperplanes of its "
            "first layer were found, and at all places asked the boundary bends there"
        )
    found = 0 if run.hyperplanes is None else len(run.hyperplanes)
    return (
        f"{found} hyperplanes were found in a subspace, but no outputs on them explain the "
        "boundary there: the target may have more than one hidden layer, or units that lie too "
        "close"
    )


def as_network(model: Model, names: list[float], noise: float) -> ReLUNetwork:
    """Return a model as a network whose outputs are in the order of the labels.

    Two classes give one output. Units are turned over where that takes the affine part away.
    """
    order = np.argsort(names)
    out, skip, shift = model.out[order], model.skip[order], model.shift[order]
    if len(names) == 2:
        out, skip, shift = out[1:] - out[:1], skip[1:] - skip[:1], shift[1:] - shift[:1]
    else:  # what is added to all outputs does not show; their mean is zero
        out, skip, shift = out - out.mean(axis=0), skip - skip.mean(axis=0), shift - shift.mean()
    d = model.rows.shape[1]
    anchors = -model.offsets[:, None] * model.rows / np.maximum(
        (model.rows**2).sum(axis=1), np.finfo(float).tiny
    )[:, None]  # fmt: skip
    origin = np.zeros(d)
    value = np.maximum(model.offsets, 0.0) @ out.T + shift
    units = Units(model.rows, anchors, out, skip, origin, value, np.zeros_like(model.rows))
    turn = resolve_signs(units, max(LEVER * noise * float(np.abs(skip).max(initial=0.0)),
                                    np.finfo(float).tiny))  # fmt: skip
    if turn is None:
        return units.network(skip=True)
    return units.turned(turn).network(skip=False)


def _free(run: LabelsRun) -> tuple[str, ...]:
    """Say what labels leave open."""
    free = ["a positive scale of all outputs"]
    if len(run.target.names) > 2:
        free.append("a function added to all outputs")
    scales = free_scales(run.asked.inside, run.asked.outside)
    if scales > 1:
        free.append(f"{scales - 1} further scales: class boundaries form no cycle there")
    free.append("units that no boundary crosses among the inputs asked")
    return tuple(free)


def _result(
    run: LabelsRun, status: Status, message: str, vouched: Verdict | Copy | None = None
) -> LabelsResult:
    """Return what was found so far: a copy, or what the last model is."""
    fields: dict[str, Any] = {"labels": tuple(sorted(run.target.names)), "noise": run.noise}
    network = None
    if isinstance(vouched, Copy):
        network, fields["labels"] = vouched.network, vouched.labels
    elif run.model is not None:
        model = run.model.padded(len(run.target.names))
        network = as_network(model, run.target.names, run.noise)
        fields |= {"width": run.model.width, "free": _free(run)}
    if vouched is not None:
        fields["agreement"] = vouched.agreement
    if run.hyperplanes is not None and run.chart is not None:
        fields["hyperplanes"] = np.column_stack([run.hyperplanes.rows, run.hyperplanes.offsets])
        fields["subspace"] = run.chart.rows
    if len(run.first):
        fields |= {"first_weights": run.first.rows, "first_biases": run.first.offsets}
    called = run.target.oracle.class_names
    if called:
        fields["names"] = tuple(called.get(label, f"{label:g}") for label in fields["labels"])
    return LabelsResult(
        status, message, run.target.oracle.queries, run.base.provenance, network=network,
        certificate=None if vouched is None else vouched.certificate,
        stages=tuple(run.base.stages), **fields,
    )  # fmt: skip
