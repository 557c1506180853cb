"""Rows of the next layer: read from crossings, tested elsewhere, completed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unrelu._types import FloatArray
from unrelu.extraction.deep_numbers import TRIES
from unrelu.extraction.peel_layer import Layer
from unrelu.extraction.peel_lines import known_kinks
from unrelu.extraction.peel_rows import (
    Row,
    group_rows,
    onto_surface,
    read_rows,
    refit_row,
    test_surface,
)
from unrelu.extraction.peel_run import Peeling
from unrelu.extraction.peel_top import MOST_BLIND
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
DOUBTFUL = 4
"""Rows that might bend, completed in one pass to be followed farther."""


def find_rows(run: Peeling, layer: Layer, prefix: Prefix) -> int:
    """Read rows from crossings and test them; returns how many are new."""
    crossings = run.crossings()
    spread = np.zeros(len(crossings))
    known = known_kinks(crossings.points, spread, prefix)
    known |= known_kinks(crossings.points, spread, run.deepest)
    open_ones = crossings.kept(~known)
    readings = read_rows(open_ones, prefix)
    if prefix.depth == 1:
        readings = run.read + readings
    grouped = group_rows(readings, layer.rows)
    layer.rows = [
        row if row is old else refit_row(row, prefix)
        for row, old in zip(grouped, layer.rows, strict=False)
    ]
    fresh = [
        r
        for r in grouped[len(layer.rows) :]
        if r.members > layer.refused.get(r.anchor.tobytes(), 0)
    ]
    believed = test_rows(run, layer, fresh, prefix)
    layer.rows += believed
    return len(believed)


def test_rows(run: Peeling, layer: Layer, rows: Sequence[Row], prefix: Prefix) -> list[Row]:
    """Return the rows that show a kink at most places where they predict one.

    A row that shows, but only at places between which no other row switches, is completed
    and tested again: the more of its weights are known the farther it can be followed.
    """
    believed, doubtful = _tested(run, layer, rows, prefix)
    doubtful = [r for r in doubtful if not r.known.all()]
    doubtful.sort(key=lambda r: (-r.members, -int(r.known.sum())))
    if doubtful and prefix.depth and not believed:  # else more is known in the next pass
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
    places = [_places(run, row, prefix) for row in rows]
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
        layer.confirmed += len(there[i]) * fine
        layer.places += int(asked[i]) * fine
    return believed, doubtful


def _places(
    run: Peeling, row: Row, prefix: Prefix, count: int = FIRST_LOOK + SECOND_LOOK
) -> tuple[FloatArray, FloatArray]:
    """Choose places on a row's surface, far from where it was seen and from each other.

    What bends between them is seen to.
    """
    x, n = onto_surface(row, prefix, run.starts(row))
    if len(x) == 0:
        return x, n
    size = 1.0 + np.linalg.norm(x, axis=1)
    fine = size <= 10.0 * run.session.domain.scale
    x, n, size = (a[fine] if fine.sum() >= FIRST_LOOK else a for a in (x, n, size))
    way = np.linalg.norm(x - row.anchor, axis=1) / size
    chosen: list[int] = []
    for _ in range(min(len(x), count)):
        best = int(way.argmax())
        chosen.append(best)
        way = np.minimum(way, np.linalg.norm(x - x[best], axis=1) / size)
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
    """Measure weights that no crossing has shown."""
    if not prefix.depth:
        return
    with run.session.stage("weights") as details:
        before = layer.missing
        if before <= MOST_BLIND:  # so few that new places are worth it in every pass
            layer.tried.clear()
        for i, row in enumerate(layer.rows):
            if not row.known.all():
                layer.rows[i] = _completed(run, layer, row, prefix)
        layer.rows = group_rows([], layer.rows)
        for i, row in enumerate(layer.rows):
            layer.rows[i] = _firm(run, row, prefix)
        details |= {"missing": before, "left": layer.missing}


def _firm(run: Peeling, row: Row, prefix: Prefix) -> Row:
    """Find a row's surface at as many places as it has numbers, and a few more."""
    more = int(row.known.sum()) + 2 - len(row.places)
    if more <= 0:
        return row
    x, n = _places(run, row, prefix, more)
    found = test_surface(run.session.oracle, x, n, prefix, run.session.noise)
    kinks = x + found.offsets[:, None] * n
    return refit_row(row.seen_at(kinks[found.there]), prefix) if found.there.any() else row
