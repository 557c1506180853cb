"""Every kind: which function stands before which sort of target, with how many seeds."""

from __future__ import annotations

import dataclasses
from functools import partial

from benchmarks.hostile import functions as f
from benchmarks.hostile import kinds_layers, kinds_ledger, kinds_mistakes, kinds_samples
from benchmarks.hostile import networks as n
from benchmarks.hostile import services as s
from benchmarks.hostile.case import Kind
from benchmarks.hostile.networks import Maker
from benchmarks.hostile.verbs import kind

NETWORKS: dict[str, Maker] = {
    "plain": n.plain,
    "one input": n.one_input,
    "one unit": n.one_unit,
    "many units": n.many_units,
    "affine": n.affine,
    "constant": n.constant,
    "dead units": n.dead,
    "only dead units": n.all_dead,
    "invisible units": n.invisible,
    "always on": n.always_on,
    "all always on": n.all_always_on,
    "never on": n.never_on,
    "rare units": n.rare,
    "seldom off": n.seldom_off,
    "duplicates": n.duplicates,
    "near duplicates": n.near_duplicates,
    "clusters": n.clusters,
    "opposite pairs": n.opposite,
    "cancelling pairs": n.cancelling,
    "thin bump": n.bump,
    "low bump": n.low_bump,
    "stacked bumps": n.stacked_bumps,
    "wedge": n.slab,
    "parallel": n.parallel,
    "no biases": n.no_biases,
    "through a point": n.through_a_point,
    "sparse": n.sparse,
    "axis parallel": n.axis_parallel,
    "whole numbers": n.whole_numbers,
    "low rank": n.low_rank,
    "far kinks": n.far_kinks,
    "unlike lengths": n.unlike_lengths,
    "large or tiny": n.large_or_tiny,
    "mixed outputs": n.mixed_outputs,
    "offset": n.offset,
    "idle outputs": n.idle_outputs,
    "deaf inputs": n.deaf_inputs,
    "affine part": n.skip,
}
DEEP: dict[str, Maker] = {
    "two hidden layers": n.deep,
    "two hidden, three outputs": n.deep_many_outputs,
    "second always on": n.deep_always_on,
    "second never on": n.deep_never_on,
    "two hidden, whole numbers": n.deep_whole_numbers,
    "two hidden, parallel rows": n.deep_parallel,
    "bottleneck": n.bottleneck,
    "relu output": n.relu_output,
}
FUNCTIONS: dict[str, Maker] = {
    "smooth": f.smooth,
    "nearly relu": f.nearly_relu,
    "stepped": f.stepped,
    "periodic": f.periodic,
    "other units": f.other_units,
    "maxout": f.maxout,
    "norms and orders": f.bounded_norm,
    "hidden island": f.hidden_island,
    "like probabilities": f.like_probabilities,
}
NOISE: dict[str, Maker] = {
    "faint noise": f.noisy("absolute", -9.0, -6.0),
    "noise": f.noisy("absolute", -6.0, -1.0),
    "relative noise": f.noisy("relative", -8.0, -2.0),
    "rare outliers": f.noisy("rare", -6.0, 0.0),
    "growing noise": f.noisy("growing", -8.0, -2.0),
}
PRECISIONS: dict[str, Maker] = {
    name: f.rounded(n.plain, name) for name in f.PRECISIONS
} | {"computed in float32": f.computed_in_float32(n.plain)}  # fmt: skip
PROBABILITIES: dict[str, Maker] = {
    "softmax": f.probabilities,
    "softmax float32": partial(f.probabilities, precision="float32"),
    "softmax 6 decimals": partial(f.probabilities, precision="6 decimals"),
    "softmax 4 decimals": partial(f.probabilities, precision="4 decimals"),
    "softmax 3 decimals": partial(f.probabilities, precision="3 decimals"),
    "sigmoid": partial(f.probabilities, squash="sigmoid"),
    "sigmoid float32": partial(f.probabilities, squash="sigmoid", precision="float32"),
    "sigmoid 6 decimals": partial(f.probabilities, squash="sigmoid", precision="6 decimals"),
    "both classes": f.both_classes,
    "deep softmax": partial(f.probabilities, hidden=2),
}
SERVICES: dict[str, Maker] = {
    "falls back": s.falls_back,
    "is replaced": s.is_replaced,
    "drifts": s.drifts,
    "throttles": s.throttles,
    "reorders": s.reorders,
    "sorts columns": s.sorts_columns,
    "depends on the batch": s.depends_on_batch,
    "rounds inputs": s.rounds_inputs,
    "clips answers": s.clips_answers,
    "clips inputs": s.clips_inputs,
    "refuses far inputs": s.refuses_far_inputs,
    "reuses its buffer": s.reuses_buffer,
    "mutates inputs": s.mutates_inputs,
    "unreadable": s.unreadable,
    "changes shape": s.changes_shape,
    "answers rows alone": s.one_by_one,
}
TYPES: dict[str, Maker] = {f"answers {name}": s.other_type(name) for name in s.READABLE}


LABELS: dict[str, Maker] = {"labels": f.labels}


def _each(verb: str, targets: dict[str, Maker], seeds: int, **facts: object) -> list[Kind]:
    return [kind(verb, what, make, seeds, **facts) for what, make in targets.items()]


def _only(targets: dict[str, Maker], *names: str) -> dict[str, Maker]:
    return {name: targets[name] for name in names}


def _query_kinds() -> list[Kind]:
    targets = NETWORKS | FUNCTIONS | NOISE | PRECISIONS | PROBABILITIES | SERVICES
    coarse = FUNCTIONS | NOISE | PRECISIONS
    kinds = _each("extract", NETWORKS | DEEP, 5)
    kinds += _each("extract", coarse | PROBABILITIES | LABELS, 5)
    kinds += _each("extract", SERVICES, 8) + _each("extract", TYPES, 2)
    kinds += _each("two_layer", NETWORKS, 4)
    kinds += _each("two_layer", coarse | PROBABILITIES | SERVICES, 2)
    kinds += _each("orthant", NETWORKS, 3) + _each("orthant", FUNCTIONS | PRECISIONS, 1)
    kinds += _each("box", NETWORKS, 4)
    kinds += _each("box", FUNCTIONS | PRECISIONS | PROBABILITIES, 2)
    kinds += _each("three_layer", DEEP, 6)
    kinds += _each("three_layer", NETWORKS | FUNCTIONS | PRECISIONS | SERVICES, 1)
    kinds += _each("three_layer", _only(PROBABILITIES, "deep softmax", "softmax", "sigmoid"), 2)
    kinds += _each("learner", NETWORKS, 3) + _each("learner", coarse | SERVICES, 2)
    kinds += _each("span", NETWORKS | DEEP, 2)
    kinds += _each("span", _only(FUNCTIONS, "smooth", "stepped", "periodic", "maxout"), 2)
    kinds += _each("span", NOISE | PRECISIONS | SERVICES, 2)
    kinds += _each("span_labels", LABELS, 12)
    kinds += _each("span_labels", FUNCTIONS | _only(SERVICES, "falls back", "throttles"), 1)
    for verb in ("extract", "two_layer", "learner", "span"):
        kinds += _each(verb, {"many inputs": n.many_inputs}, 3)
    for verb in ("extract", "three_layer"):
        kinds += _each(
            verb, {"deeper": n.deeper, "more units than inputs": n.deep_wide}, 4, limit=20.0
        )
    return kinds + _each("diagnose", targets, 1) + _each("plan", targets, 1)


MORE = {
    "orthant: no biases": 12,
    "orthant: through a point": 6,
    "learner: stacked bumps": 12,
    "learner: thin bump": 8,
    "learner: low bump": 8,
    "extract: thin bump": 10,
    "extract: low bump": 10,
    "extract: falls back": 12,
    "extract: is replaced": 12,
    "two_layer: like probabilities": 6,
    "two_layer: mixed outputs": 8,
    "box: float32": 6,
    "samples: smooth and noise": 10,
    "halfspaces asked: close": 12,
    "halfspaces sampled: close": 10,
    "halfspaces sampled: twins": 10,
    "lowest sign sampled: twins": 8,
    "halfspaces asked: through the origin": 12,
    "three_layer: more units than inputs": 8,
}
"""Where the first release went wrong: more seeds."""

KINDS: list[Kind] = [
    dataclasses.replace(k, seeds=MORE.get(k.name, k.seeds))
    for k in (
        *_query_kinds(),
        *kinds_samples.KINDS,
        *kinds_layers.KINDS,
        *kinds_ledger.KINDS,
        *kinds_mistakes.KINDS,
    )
]
