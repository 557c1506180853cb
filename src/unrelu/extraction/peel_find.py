"""Rows of the next layer: read from crossings, tested elsewhere, completed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unrelu._types import BoolArray, FloatArray
from unrelu.core.units import SPARE
from unrelu.extraction.deep_numbers import PRECISE, TRIES
from unrelu.extraction.peel_layer import Layer
from unrelu.extraction.peel_lines import Crossings, known_kinks
from unrelu.extraction.peel_refit import refit_row, telling
from unrelu.extraction.peel_rows import Row, group_rows, onto_surface, read_rows, test_surface
from unrelu.extraction.peel_run import Peeling
from unrelu.extraction.peel_top import MOST_BLIND
from unrelu.extraction.peel_walk import follow, taken_in, undetermined
from unrelu.extraction.peel_weights import complete_row
from unrelu.extraction.prefix import Prefix

__all__ = ["complete", "find_rows"]

FIRST_LOOK, SECOND_LOOK = 2, 4
"""Places at which a row is tested: those of the first look reject most that are none."""
BELIEVED = 0.6
"""Part of the places at which a row must show. Rows show at 0.9 of them or more, units of
layers farther up at 0.2 or less: they bend where a unit between switches."""
TURNS = 0.2
"""Part of the other rows that must switch between the places where a row showed."""
OFTEN = TRIES
"""Crossings of a row that shows at every place after which it is believed in any case: where
layers are narrow few other rows switch anywhere on its surface."""
FOLLOWED = TRIES
"""Crossings that tell too little alone, whose surfaces are followed in one pass."""
DOUBTFUL = 4
"""Rows that might bend, completed in one pass to be followed farther."""


def find_rows(run: Peeling, layer: Layer, prefix: Prefix) -> int:
    """Read rows from crossings and test them; returns how many are new."""
    crossings = run.crossings()
    spread = np.zeros(len(crossings))
    known = known_kinks(crossings.points, spread, prefix)
    known |= known_kinks(crossings.points, spread, run.deepest)
    open_ones = crossings.kept(~known)
    readings = run.read.get(prefix.depth, []) + read_rows(open_ones, prefix)
    grouped = group_rows(readings, layer.rows)
    old = {r.anchor.tobytes(): r for r in layer.rows}  # two of them may have become one
    layer.rows = []
    for row in grouped:
        before = old.get(row.anchor.tobytes())
        if before is not None:
            row = row if row.known.all() else taken_in(row, open_ones, prefix)
            layer.rows.append(row if row is before else refit_row(row, prefix))
    fresh = [
        r
        for r in grouped
        if r.anchor.tobytes() not in old and r.members > layer.refused.get(r.anchor.tobytes(), 0)
    ]
    believed = test_rows(run, layer, fresh, prefix)
    if not believed and prefix.depth:
        believed = test_rows(run, layer, _followed(run, layer, open_ones, prefix), prefix)
    layer.rows += believed
    return len(believed)


def _followed(run: Peeling, layer: Layer, crossings: Crossings, prefix: Prefix) -> list[Row]:
    """Read rows by following the surfaces of crossings that tell too little alone."""
    known = layer.over(prefix) if layer.rows else prefix
    crossings = crossings.kept(~known_kinks(crossings.points, np.zeros(len(crossings)), known))
    crossings = crossings.kept(undetermined(crossings, prefix))
    new = [i for i, x in enumerate(crossings.points) if x.tobytes() not in layer.refused]
    rows: list[Row] = []
    with run.session.stage("surfaces") as details:
        for i in run.session.rng.permutation(new)[:FOLLOWED]:
            x, n = crossings.points[i], crossings.normals[i]
            row = follow(run, x, n, prefix)
            layer.refused[x.tobytes()] = 1
            rows += [] if row is None else [row]
        details |= {"followed": min(FOLLOWED, len(new)), "read": len(rows)}
    return group_rows(rows, layer.rows)[len(layer.rows) :]


def test_rows(run: Peeling, layer: Layer, rows: Sequence[Row], prefix: Prefix) -> list[Row]:
    """Return the rows that show a kink at most places where they predict one.

    A row that shows, but only at places between which no other row switches, is completed
    and tested again: the more of its weights are known the farther it can be followed.
    """
    believed, doubtful = _tested(run, layer, rows, prefix)
    doubtful = [r for r in doubtful if not r.known.all()]
    doubtful.sort(key=lambda r: (-r.members, -int(r.known.sum())))
    # Where rows are believed more is known in the next pass; where those known explain every
    # gradient, what might bend does: it belongs to a layer farther up.
    if doubtful and prefix.depth and not believed and layer.explains < 1.0:
        with run.session.stage("weights"):
            longer = [_completed(run, layer, r, prefix) for r in doubtful[:DOUBTFUL]]
        longer = group_rows([], longer)
        believed, _ = _tested(run, layer, longer, prefix)
    taken = {r.anchor.tobytes() for r in believed}
    for row in rows:
        if row.anchor.tobytes() not in taken:
            layer.refused[row.anchor.tobytes()] = row.members
    return believed


def _completed(run: Peeling, layer: Layer, row: Row, prefix: Prefix) -> Row:
    return complete_row(
        run.session.oracle,
        row,
        prefix,
        run.session.noise,
        run.starts(row),
        tried=layer.tried,
        rng=run.session.rng,
    )


def _tested(
    run: Peeling, layer: Layer, rows: Sequence[Row], prefix: Prefix
) -> tuple[list[Row], list[Row]]:
    """Return the rows that are believed, and those that show but might bend."""
    places = [_places(run, layer, row, prefix) for row in rows]
    alive = [i for i, (x, _) in enumerate(places) if len(x) >= FIRST_LOOK]
    there: list[list[FloatArray]] = [[] for _ in rows]
    asked = np.zeros(len(rows), dtype=int)
    for part in (slice(0, FIRST_LOOK), slice(FIRST_LOOK, None)):
        if not alive:
            break
        x = np.concatenate([places[i][0][part] for i in alive])
        n = np.concatenate([places[i][1][part] for i in alive])
        owner = np.concatenate([np.full(len(places[i][0][part]), i) for i in alive])
        with run.session.stage("row tests"):
            found = test_surface(run.session.oracle, x, n, prefix, run.session.noise)
        np.add.at(asked, owner, 1)
        kinks = x + found.offsets[:, None] * n
        for i, point in zip(owner[found.there], kinks[found.there], strict=True):
            there[i].append(point)
        alive = [i for i in alive if there[i]]
    shown = [i for i in range(len(rows)) if len(there[i]) >= max(2, BELIEVED * asked[i])]
    straight = _straight(
        layer.rows, [rows[i] for i in shown], [np.array(there[i]) for i in shown], prefix
    )
    believed: list[Row] = []
    doubtful: list[Row] = []
    for i, fine in zip(shown, straight, strict=True):
        row = refit_row(rows[i].seen_at(np.array(there[i])), prefix)
        whole = len(there[i]) == asked[i] > FIRST_LOOK
        often = row.members >= OFTEN and whole and bool(row.known.all())
        fine = (fine and len(there[i]) > FIRST_LOOK) or often
        (believed if fine else doubtful).append(row)
        if fine:
            layer.stands(row, len(there[i]), int(asked[i]), BELIEVED)
    return believed, doubtful


def _places(
    run: Peeling, layer: Layer, row: Row, prefix: Prefix, count: int = FIRST_LOOK + SECOND_LOOK
) -> tuple[FloatArray, FloatArray]:
    """Choose places on a row's surface, far from where it was seen and from each other.

    Far is also where other rows have switched: there a unit farther up bends.
    """
    x, n = onto_surface(row, prefix, run.starts(row))
    if len(x) == 0:
        return x, n
    size = 1.0 + np.linalg.norm(x, axis=1)
    fine = size <= 10.0 * run.session.domain.scale
    x, n, size = (a[fine] if fine.sum() >= FIRST_LOOK else a for a in (x, n, size))
    theta = np.array([r.theta for r in layer.rows if r.anchor is not row.anchor])
    theta = theta.reshape(-1, prefix.width + 1)
    state = (
        np.append(
            prefix.heights(np.append(x, row.places[:1], axis=0)), np.ones((len(x) + 1, 1)), axis=1
        )
        @ theta.T
        > 0.0
    )

    def far_from(point: FloatArray, switched: BoolArray) -> FloatArray:
        others = np.count_nonzero(state[:-1] != switched, axis=1) / max(1, len(theta))
        return np.asarray(np.linalg.norm(x - point, axis=1) / size + others)

    way = far_from(row.anchor, state[-1])
    chosen: list[int] = []
    for _ in range(min(len(x), count)):
        best = int(way.argmax())
        chosen.append(best)
        way = np.minimum(way, far_from(x[best], state[best]))
    return x[chosen], n[chosen]


def _straight(
    believed: Sequence[Row],
    rows: Sequence[Row],
    there: Sequence[FloatArray],
    prefix: Prefix,
) -> list[bool]:
    """Tell which rows stay straight where other rows switch.

    A unit farther up shows only where no unit between switches.
    """
    every = [*believed, *rows]
    theta = np.stack([r.theta for r in every]) if every else np.empty((0, prefix.width + 1))
    turns = np.zeros((len(rows), len(every)), dtype=bool)
    for i, x in enumerate(there):
        z = prefix.heights(x) @ theta[:, :-1].T + theta[:, -1]
        turns[i] = (z > 0.0).any(axis=0) & (z < 0.0).any(axis=0)
        turns[i, len(believed) + i] = False
    fine = np.ones(len(rows), dtype=bool)
    while fine.any():  # the worst first: what is no row judges nobody
        judges = np.concatenate([np.ones(len(believed), dtype=bool), fine])
        others = np.count_nonzero(judges) - 1
        if others < 3:
            break
        share = np.where(fine, turns[:, judges].sum(axis=1) / others, np.inf)
        worst = int(share.argmin())
        if share[worst] >= TURNS:
            break
        fine[worst] = False
    return [bool(f) for f in fine]


def complete(run: Peeling, layer: Layer, prefix: Prefix) -> None:
    """Measure weights that no crossing has shown, and rows that are not precise."""
    with run.session.stage("weights") as details:
        before = layer.missing
        if before <= MOST_BLIND:  # so few that new places are worth it in every pass
            layer.tried.clear()
        for i, row in enumerate(layer.rows):
            if not row.known.all():
                layer.rows[i] = _completed(run, layer, row, prefix)
        firm = [_firm(run, layer, row, prefix) for row in group_rows([], layer.rows)]
        layer.rows = [row for row in firm if row is not None]
        details |= {"missing": before, "left": layer.missing}


def _firm(run: Peeling, layer: Layer, row: Row, prefix: Prefix) -> Row | None:
    """Find a row's surface at as many places as it has numbers, and a few more.

    None where it is missed at too many: a unit farther up that had not bent yet. Of the first
    layer, which nothing amplifies, only rows that are not precise need them.
    """
    imprecise = bool(row.error.max() > PRECISE)
    more = int(row.known.sum()) + SPARE - len(row.places)
    if more > 0 and (imprecise or prefix.depth):
        x, n = _places(run, layer, row, prefix, more)
    elif imprecise:
        x, n = onto_surface(row, prefix, run.starts(row))
        chosen = telling(row, x, prefix, len(row.theta))
        x, n = x[chosen], n[chosen]
    else:
        return row
    found = test_surface(run.session.oracle, x, n, prefix, run.session.noise)
    if not layer.stands(row, int(found.there.sum()), len(x), BELIEVED):
        layer.refused[row.anchor.tobytes()] = row.members
        return None
    kinks = x + found.offsets[:, None] * n
    return refit_row(row.seen_at(kinks[found.there]), prefix) if found.there.any() else row
