r"""More units than inputs: far out, each unit is met alone.

Apart from sine, a known activation is straight on both sides of its unit's hyperplane, up to
tails that vanish exponentially. A transition takes a length of a few over :math:`|w|`, and the
hyperplanes cross a line at distance R from the origin about R apart: with R large enough the
answers on the line are straight but for short windows, one for each unit. In its window a unit's
profile tells activation, slope along the line, bias and outputs, and a step along an axis moves
it on its own profile by as much as the row's entry says. A step as long as the profile bends
has no error but rounding, :math:`\epsilon R`; the bias at the origin is then off by
:math:`\epsilon R^2`, a start for the fit of all parameters.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from unrelu._types import BoolArray, FloatArray, IntArray
from unrelu.core.activations import Activation, activation
from unrelu.smooth.config import EPS
from unrelu.smooth.layers import Start
from unrelu.smooth.profiles import (
    Profile,
    UnitFit,
    bending_part,
    fit_profile,
    rank_activations,
)
from unrelu.smooth.run import SmoothRun

__all__ = ["find_far_units"]

_STRAIGHT = ("tanh", "gelu", "gelu_tanh", "silu", "softplus", "elu")
"""Activations that are straight on both sides."""
_ROUNDING = 64.0  # times the noise is what a straight piece may bend by
_SMOOTH = 0.4
"""Deviations from straight that halving a cell leaves: a quarter where a function is smooth at
that length, half at a kink; in between."""
_INSIDE = 1.0  # preactivation at which steps along axes begin: all activations rise there
_SIDE = -1.25 * np.log(EPS)  # where every known activation is straight, to all digits
_HALVINGS = np.finfo(np.float64).nmant  # of an interval that an inverse lies in: all digits


@dataclasses.dataclass(frozen=True)
class _Line:
    base: FloatArray
    direction: FloatArray
    radius: float

    def at(self, t: FloatArray) -> FloatArray:
        return np.asarray(self.base + np.multiply.outer(t, self.direction))


@dataclasses.dataclass(frozen=True)
class _Window:
    """Positions and answers in one unit's transition."""

    t: FloatArray
    answers: FloatArray

    @property
    def middle(self) -> float:
        """Position of its middle."""
        return 0.5 * float(self.t[0] + self.t[-1])

    @property
    def half(self) -> float:
        """Half its length."""
        return 0.5 * float(self.t[-1] - self.t[0])


def _search(run: SmoothRun, line: _Line) -> list[_Window]:
    """Cut a line into cells until each that is not straight is part of a resolved window.

    Halving a cell divides its deviation from straight by four where the function is smooth at
    that length, by two at most at a kink, and not at all at a step.
    """
    first = run.config.knots - 1  # cells, evenly in the angle seen from the origin
    least = run.config.hessians  # neighbouring cells that make a transition
    most = run.config.samples * first // 2  # points: a unit takes fifty
    edge = 0.5 * np.pi * (1.0 - 1.0 / first)
    t = line.radius * np.tan(np.linspace(-edge, edge, first + 1))
    y = run.ask(line.at(t))
    cells = np.ones(first, dtype=bool)  # that may still hold something
    before = np.zeros(first)  # deviation of the cell that a cell is half of
    windows: list[_Window] = []
    for _ in range(_HALVINGS):
        where = np.flatnonzero(cells)
        if len(where) == 0:
            break
        if len(t) + len(where) > most:
            return []  # it is straight nowhere
        middle = 0.5 * (t[where] + t[where + 1])
        new = run.ask(line.at(middle))
        now = np.zeros(len(cells))
        now[where] = _deviation(run, line, (t, y), where, middle, new)
        halved = np.where(cells, 2, 1)
        places = np.concatenate([[0], np.cumsum(halved)])  # of a cell's first point, after
        t, y = np.insert(t, where + 1, middle), np.insert(y, where + 1, new, axis=0)
        cells = cells & (now > 1.0)
        for start, last in _runs(cells):
            share = now[start:last]
            # Where a profile turns from left to right its own deviation says nothing.
            around = np.pad(before[start:last], 2)
            slow = share > _SMOOTH * sliding_window_view(around, 5).max(axis=1)
            if (
                last - start >= least
                and not (slow & (share > run.config.trace * share.max())).any()
            ):
                inside = slice(places[start], places[last] + 1)
                windows.append(_Window(t[inside], y[inside]))
                cells[start:last] = False
        cells, before = np.repeat(cells, halved), np.repeat(now, halved)
    return windows


def _deviation(
    run: SmoothRun,
    line: _Line,
    known: tuple[FloatArray, FloatArray],
    where: IntArray,
    middle: FloatArray,
    new: FloatArray,
) -> FloatArray:
    """Return how far answers at the middles of cells leave the chord, over what they may."""
    t, y = known
    chord = 0.5 * (y[where] + y[where + 1])
    size = np.abs(y).max(axis=0) / np.linalg.norm(line.at(t), axis=1).max()
    reach = np.linalg.norm(line.at(middle), axis=1)
    noise = run.relative_noise * (run.spread + np.multiply.outer(reach, size) + np.abs(chord))
    allowed = np.maximum(_ROUNDING * noise, run.config.negligible * run.spread)
    off = np.nan_to_num(np.abs(new - chord), nan=np.inf)
    return np.asarray((off / allowed).max(axis=1))


def _runs(flags: BoolArray) -> list[tuple[int, int]]:
    """Return first and one past last index of each run of true entries."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _as_profile(run: SmoothRun, line: _Line, window: _Window) -> Profile:
    """Return a window as a profile, its length that of other profiles."""
    scale = run.config.reach / window.half
    local = (window.t - window.middle) * scale
    values = bending_part(local, window.answers / run.noise)
    points = line.at(window.t)
    return Profile(points, local, window.answers, values, line.direction, 0.0)


@dataclasses.dataclass(frozen=True)
class _Seen:
    """A unit as its window shows it: ``u phi(slope (t - centre))`` beside a straight part."""

    line: _Line
    centre: float
    slope: float
    outputs: FloatArray
    misfit: float


def _seen(run: SmoothRun, line: _Line, window: _Window, unit: UnitFit, phi: Activation) -> _Seen:
    scale = run.config.reach / window.half
    local = (window.t - window.middle) * scale
    z = unit.scale * local + unit.shift
    design = np.column_stack([phi(z[:, None])[:, 0], np.ones_like(local), local])
    outputs = np.linalg.lstsq(design, window.answers, rcond=None)[0][0]
    centre = window.middle - unit.shift / unit.scale / scale
    return _Seen(line, centre, unit.scale * scale, outputs, unit.misfit)


def _row(run: SmoothRun, unit: _Seen, phi: Activation) -> FloatArray | None:
    """Return weights and bias ``(d + 1,)`` of a unit from steps along axes in its window."""
    d = run.domain.dimension
    project = unit.outputs / float(unit.outputs @ unit.outputs)
    inside = unit.line.at(np.array([unit.centre + _INSIDE / unit.slope]))
    side = unit.line.at(np.array([unit.centre - _SIDE / unit.slope]))
    here = float(phi(np.array([[_INSIDE]]))[0, 0])
    ends = phi(np.array([[0.0], [2.0 * _INSIDE]]))[:, 0]
    entries, step = np.full(d, np.nan), 0.5 / abs(unit.slope)
    for _ in range(8):
        open_ = np.flatnonzero(np.isnan(entries))
        if len(open_) == 0:
            break
        moves = np.zeros((len(open_), d))
        moves[np.arange(len(open_)), open_] = step
        asked = np.concatenate([inside, inside + moves, side, side + moves])
        answers = run.ask(asked) @ project
        moved, beside = np.split(answers, 2)
        # The straight part moves by as much beside the window as within it.
        value = here + (moved[1:] - moved[0]) - (beside[1:] - beside[0])
        good = (value > ends[0]) & (value < ends[1])
        entries[open_[good]] = (_inverse(phi, value[good]) - _INSIDE) / step
        step /= 4.0
    if np.isnan(entries).any() or not entries.any():
        return None
    return _pinned(run, phi, entries, inside[0], project)


def _pinned(
    run: SmoothRun, phi: Activation, weights: FloatArray, inside: FloatArray, project: FloatArray
) -> FloatArray | None:
    """Return weights and bias ``(d + 1,)``, corrected on the other side of the origin.

    An error of the row along the way to its window, times the way, is the bias's. At the mirror
    image of the place where it was measured the same preactivation is expected; what is found
    there corrects both. None where it is not met there: two units were taken for one.
    """
    normal = weights / float(weights @ weights)
    bias = _INSIDE - float(weights @ inside)
    image = 2.0 * (_INSIDE - bias) * normal - inside
    steps = np.array([0.0, -_SIDE, -2.0 * _SIDE])
    here, beside, beyond = run.ask(image + np.multiply.outer(steps, normal)) @ project
    value = here - 2.0 * beside + beyond + float(phi(np.array([[-_SIDE]]))[0, 0])
    ends = phi(np.array([[0.0], [2.0 * _INSIDE]]))[:, 0]
    if not ends[0] < value < ends[1]:
        return None
    error = float(_inverse(phi, np.array([value]))[0]) - _INSIDE
    if abs(error) > 0.5 * _INSIDE:
        return None
    way = image - inside
    weights = weights + error * way / float(way @ way)
    return np.append(weights, _INSIDE - float(weights @ inside))


def _inverse(phi: Activation, values: FloatArray) -> FloatArray:
    """Return z between 0 and twice ``_INSIDE`` with ``phi(z) = values``, by bisection."""
    low, high = np.zeros_like(values), np.full_like(values, 2.0 * _INSIDE)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = phi(middle[:, None])[:, 0] > values
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)


def find_far_units(run: SmoothRun) -> list[Start]:
    """Return starts from units met on lines far out, likeliest activation first.

    Lines are searched until one shows known units only.
    """
    d = run.domain.dimension
    # Hyperplanes must be farther apart than rounding moves them: R and eps R^2 both small.
    radius = float(run.relative_noise ** (-1.0 / 3.0)) * np.sqrt(d)
    rows: list[FloatArray] = []
    misfits: dict[str, float] = {}
    for _ in range(run.config.tries):
        base, direction = run.rng.standard_normal((2, d))
        direction -= (direction @ base) / (base @ base) * base
        base, direction = (v / np.linalg.norm(v) for v in (base, direction))
        line = _Line(radius * base, direction, radius)
        windows = _search(run, line)
        if not windows:
            break
        profiles = [_as_profile(run, line, window) for window in windows]
        if not misfits:  # which activation, a few windows tell
            some = profiles[:: max(1, len(profiles) // run.config.profile)]
            ranked = rank_activations(some, _STRAIGHT)
            misfits = {phi.name: _typical(units) for phi, units in ranked}
        new, unclear = _met(run, line, list(zip(windows, profiles, strict=True)), misfits, rows)
        if new == 0 and all(_crossing(rows, line, window) > 1 for window in unclear):
            break
    if not rows:
        return []
    table = np.stack(rows)
    return [Start(activation(n), table[:, :-1], table[:, -1], v) for n, v in misfits.items()]


def _met(
    run: SmoothRun,
    line: _Line,
    windows: list[tuple[_Window, Profile]],
    misfits: dict[str, float],
    rows: list[FloatArray],
) -> tuple[int, list[_Window]]:
    """Add the rows of units met for the first time; their number, and windows left unclear."""
    name = next(iter(misfits))
    phi, limit = activation(name), run.config.margin**3 * max(misfits[name], 1.0)
    before, unclear = len(rows), []
    for window, profile in windows:
        unit = fit_profile(profile, phi)
        if not np.isfinite(unit.misfit):
            continue
        seen = _seen(run, line, window, unit, phi)
        if _known(rows, line, seen, run.config.margin):
            continue
        row = _row(run, seen, phi) if unit.misfit <= limit else None
        if row is None:
            unclear.append(window)
        elif not _twice(rows, row, run.config.margin):
            rows.append(row)
    return len(rows) - before, unclear


def _typical(units: list[UnitFit]) -> float:
    """Return the median misfit: windows with two units in them fit nothing."""
    return float(np.median([unit.misfit for unit in units]))


def _crossing(rows: list[FloatArray], line: _Line, window: _Window) -> int:
    """Return how many known units cross the line in a window."""
    ends = line.at(window.t[[0, -1]])
    sides = [ends @ row[:-1] + row[-1] for row in rows]
    return sum(1 for side in sides if side[0] * side[1] < 0)


def _twice(rows: list[FloatArray], row: FloatArray, margin: float) -> bool:
    """Whether a row is there already: a window may fall into two where a profile is straight."""
    size = float(np.linalg.norm(row))
    apart = [min(np.linalg.norm(row - r), np.linalg.norm(row + r)) for r in rows]
    return bool(min(apart, default=np.inf) < size / margin**2)


def _known(rows: list[FloatArray], line: _Line, seen: _Seen, margin: float) -> bool:
    """Whether a unit known already crosses the line there, as steeply."""
    for row in rows:
        slope = float(row[:-1] @ line.direction)
        value = float(row[:-1] @ (line.base + seen.centre * line.direction) + row[-1])
        apart = abs(abs(slope) - abs(seen.slope))
        if apart * margin < max(abs(slope), abs(seen.slope)) and abs(value) < _SIDE:
            return True
    return False
