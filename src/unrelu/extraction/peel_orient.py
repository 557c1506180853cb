"""The signs of a layer's rows: from gradients asked so far, or where those tell most."""

from __future__ import annotations

import numpy as np

from unrelu._types import FloatArray
from unrelu.extraction.peel_layer import Layer
from unrelu.extraction.peel_lines import Crossings, known_kinks, measure_points
from unrelu.extraction.peel_run import MOST_LINES, NEAREST, STARTS, STEP, Peeling
from unrelu.extraction.peel_signs import Orientation, orient_rows
from unrelu.extraction.peel_surfaces import (
    AGREE,
    Surface,
    first_layer_signs,
    group_crossings,
    surface_row,
)
from unrelu.extraction.prefix import Prefix
from unrelu.lines.survey import SurveyLine

__all__ = ["EXPLAINED", "orient"]

EXPLAINED = 0.97
"""Part of the gradients that a layer's rows must explain before the next is looked for."""
RICH = 6
"""Gradients asked in one go for signs that lines did not tell."""


def orient(run: Peeling, layer: Layer, prefix: Prefix) -> Orientation:
    """Tell the signs of a layer's rows, and whether they explain the gradients."""
    rows = np.stack([r.theta for r in layer.rows])[:, :-1]
    if not prefix.depth and np.linalg.matrix_rank(rows, rtol=AGREE) < len(rows):
        return _orient_wide(run, layer, prefix)
    before = layer.signs_before()
    found = orient_rows(run.pieces(), prefix, layer.rows, rng=run.session.rng, known=before)
    if found.share < EXPLAINED and before.any():  # one of them may be wrong
        found = orient_rows(run.pieces(), prefix, layer.rows, rng=run.session.rng)
    if (found.signs == 0.0).any() or found.asked == 0:
        points = _rich_points(run, layer, prefix, found)
        if len(points):
            with run.session.stage("signs"):
                more = measure_points(
                    run.session.oracle,
                    points,
                    run.session.noise,
                    prefix,
                    run.session.domain.scale,
                    rng=run.session.rng,
                )
            run.gradients.append(more)
            found = orient_rows(
                run.pieces(), prefix, layer.rows, rng=run.session.rng, known=found.signs
            )
    layer.orient(found.signs)
    layer.explains = found.share if found.asked else 0.0
    return found


def _orient_wide(run: Peeling, layer: Layer, prefix: Prefix) -> Orientation:
    """Tell the signs of dependent rows, by lines beside each other."""
    stuck = len(run.traced) >= MOST_LINES and len(layer.signs) == len(layer.rows)
    if layer.oriented or stuck:  # as many lines told no more
        return Orientation.told(layer.signs)
    layer.signs = np.zeros(len(layer.rows))
    weights, biases = layer.arrays()
    known = prefix.with_layer(weights, biases)
    surfaces: list[Surface] = []
    while True:
        found = run.crossings()
        told = ~known_kinks(found.points, np.zeros(len(found)), known)
        found = found.kept(told & (found.errors < AGREE))
        surfaces = group_crossings(found, weights, biases, surfaces)
        layer.signs = first_layer_signs(surfaces, weights)
        missing = np.flatnonzero(layer.signs == 0.0)
        if len(missing) == 0:
            rows = [
                surface_row(s, found, weights, biases, layer.signs)
                for s in surfaces
                if len(s.members) > 1
            ]
            run.read[1] = [r for r in rows if r is not None]
            break
        if len(run.traced) >= MOST_LINES:
            break
        run.deepest = known
        if 2 * len(missing) > len(weights):
            run.trace(run.beside())
        else:
            run.trace(_beyond(run, found, weights, biases, int(run.session.rng.choice(missing))))
    return Orientation.told(layer.signs)


def _beyond(
    run: Peeling, found: Crossings, weights: FloatArray, biases: FloatArray, row: int
) -> SurveyLine:
    """Return a short line that crosses a surface again, on the other side of a hyperplane.

    What a row changes about a surface tells its sign.
    """
    heights = found.points @ weights[row] + biases[row]
    near = np.argsort(np.abs(heights))[:NEAREST]
    i = int(run.session.rng.choice(near))
    base = found.points[i] - 2.0 * heights[i] * weights[row]  # rows have unit length
    reach = STARTS[-1] * max(abs(float(heights[i])), STEP)
    return SurveyLine(base, found.normals[i], -reach, reach, np.inf)


def _rich_points(run: Peeling, layer: Layer, prefix: Prefix, found: Orientation) -> FloatArray:
    """Choose inputs where the gradient tells most: the Jacobian has the highest rank."""
    x = np.concatenate([run.starts() for _ in range(4)])
    seen = prefix.view(x)
    known = np.stack([r.known for r in layer.rows])[:, :-1]
    told = seen.sure & ~(seen.on[:, None, :] & ~known[None]).any(axis=(1, 2))
    x, jacobian = x[told], seen.jacobian[told]
    if len(x) == 0:
        return x
    s = np.linalg.svd(jacobian, compute_uv=False)
    rank = np.count_nonzero(s > 1e-6 * s[:, :1], axis=1)
    weights, biases = (np.stack([r.theta for r in layer.rows])[:, k] for k in (slice(-1), -1))
    z = prefix.heights(x) @ weights.T + biases
    side = z * np.where(found.signs == 0.0, np.nan, found.signs)
    off = np.count_nonzero(side < 0.0, axis=1)
    open_rows = np.flatnonzero(found.signs == 0.0)
    score = rank + off + 0.5 * run.session.rng.random(len(x))
    chosen: list[int] = list(np.argsort(-score)[:RICH])
    for k in open_rows:  # both sides of every row that is open
        for sign in (1.0, -1.0):
            there = np.flatnonzero(z[:, k] * sign > 0.0)
            chosen += list(there[np.argsort(-score[there])[:2]])
    return np.asarray(x[np.unique(chosen)])
