"""Find every kink of a piecewise affine function on a line.

The search keeps an ordered chain of pieces: a lone point (one answer), a
tentative piece (two answers that may share a line) or a sure piece (three or
more that do). Between neighbours with known lines there is a gap. If it hides
exactly one kink, the kink is where the lines meet; this is tested by one
answer just left and one just right of the meeting point. An answer that fits
neither line becomes a lone point, gets a companion that tells the local slope,
and splits the gap. Every round asks one batch for all gaps at once.

About five answers per kink are spent: two for the line of a piece, two for the
test, one for what is lost in splitting.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.noise import Samples
from unrelu.core.pieces import AffinePiece, cross, fit_piece
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle

__all__ = ["Ask", "LineConfig", "LineScan", "Noise", "find_kinks", "restrict"]

Ask = Callable[[FloatArray], FloatArray]
"""A function on a line: points ``(n,)`` to answers ``(n, m)``."""
Noise = Callable[[FloatArray], FloatArray]
"""Standard deviations ``(n, m)`` of the answers at points ``(n,)``."""


@dataclasses.dataclass(frozen=True)
class LineConfig:
    """Tolerances of the line search. Distances are relative to local gaps."""

    accept: float = 12.0
    """Standard deviations within which an answer lies on a piece. Calibrated noise may be
    off by a factor of a few; a true miss is usually millions."""
    margin: float = 60.0
    """A test point stands where the two lines differ by this many standard deviations."""
    informative: float = 1e-4
    """A piece may judge an answer if its prediction's error is below this part of the
    typical variation of the function there."""
    certain: float = 1e-8
    """Where it is above this part, agreement may be chance: a point in between is asked."""
    companion: float = 0.04
    """Distance of a lone point's companion, over the wider of its gaps."""
    patience: int = 2
    """Failed tests after which a tentative piece is taken for two lone points."""
    resolution: float = 32.0
    """Gaps narrower than this many units in the last place of t are not split."""
    max_rounds: int = 200
    """Far above what halving a float64 range takes."""


def restrict(
    oracle: Oracle,
    base: FloatArray,
    direction: FloatArray,
    *,
    subtract: ReLUNetwork | None = None,
) -> Ask:
    """Return ``t -> oracle(base + t direction)``, less a known network where given."""

    def ask(t: FloatArray) -> FloatArray:
        points = base + np.multiply.outer(t, direction)
        answers = oracle(points)
        return answers if subtract is None else answers - subtract(points)

    return ask


@dataclasses.dataclass(frozen=True)
class LineScan:
    """All pieces that a search found, in order.

    Attributes
    ----------
    kinks, kink_std
        Where neighbouring pieces meet and how precisely that is known, ``(k,)``.
    jumps
        Change of slope there, ``(k, m)``.
    resolved
        Whether both sides of the kink were tested, ``(k,)``; False where the
        gap reached the resolution of float64 or the search was cut short.
    pieces
        The k + 1 fitted pieces.
    starts, ends
        First and last point seen on each piece, ``(k + 1,)``.
    counts
        Answers on each piece, ``(k + 1,)``.
    t, y
        Every point asked, sorted, and its answer.
    rounds
        Batches sent.
    complete
        False if the search was cut short by its limit on queries or rounds.
    """

    kinks: FloatArray
    kink_std: FloatArray
    jumps: FloatArray
    resolved: FloatArray
    pieces: tuple[AffinePiece, ...]
    starts: FloatArray
    ends: FloatArray
    counts: FloatArray
    t: FloatArray
    y: FloatArray
    rounds: int
    complete: bool

    def clusters(self) -> list[Samples]:
        """Return the points piece by piece, lone ones by themselves, to go on from."""
        first = np.searchsorted(self.t, self.starts, side="left")
        last = np.searchsorted(self.t, self.ends, side="right")
        groups: list[Samples] = []
        lone = np.ones(len(self.t), dtype=bool)
        end = 0
        for a, b in zip(first, last, strict=True):
            start, end = max(int(a), end), max(int(b), end)
            if start < end:
                groups.append((self.t[start:end], self.y[start:end]))
                lone[start:end] = False
        return groups + [(self.t[[i]], self.y[[i]]) for i in np.flatnonzero(lone)]

    def significance(self, noise: Noise) -> FloatArray:
        """Return by how many deviations each kink bends its shorter neighbour, ``(k,)``."""
        if len(self.kinks) == 0:
            return np.empty(0)
        length = self.ends - self.starts
        shorter = np.minimum(length[:-1], length[1:])
        bend = np.abs(self.jumps) * shorter[:, None] / noise(self.kinks)
        return np.asarray(bend.max(axis=1))

    def without_piece(self, index: int) -> LineScan:
        """Return the scan with a piece taken for noise: its neighbours meet in one kink."""
        kept = np.arange(len(self.pieces)) != index
        first, last = max(index - 1, 0), min(index + 1, len(self.kinks))
        kinks, std, jumps, resolved = (
            np.delete(a, slice(first, last), axis=0)
            for a in (self.kinks, self.kink_std, self.jumps, self.resolved)
        )
        if 0 < index < len(self.pieces) - 1:
            meet = cross(self.pieces[index - 1], self.pieces[index + 1])
            low, high = float(self.ends[index - 1]), float(self.starts[index + 1])
            kinks = np.insert(
                kinks, first, min(max(meet.t, low), high) if meet.t == meet.t else low
            )
            std, resolved = np.insert(std, first, meet.std), np.insert(resolved, first, 0.0)
            jumps = np.insert(jumps, first, meet.jump, axis=0)
        return dataclasses.replace(
            self,
            kinks=kinks,
            kink_std=std,
            jumps=jumps,
            resolved=resolved,
            pieces=tuple(p for p, k in zip(self.pieces, kept, strict=True) if k),
            starts=self.starts[kept],
            ends=self.ends[kept],
            counts=self.counts[kept],
        )

    def misfit(self) -> float:
        """Median over pieces with spare answers of the largest residual, in deviations."""
        values = [p.misfit for p, n in zip(self.pieces, self.counts, strict=True) if n > 3]
        return float(np.median(values)) if values else 0.0


class _Piece:
    """A chain link: points in order, their fit, and the failures blamed on it."""

    __slots__ = ("doubts", "failures", "fit", "gone", "left", "right", "settled", "std", "t", "y")

    def __init__(self, t: list[float], y: list[FloatArray], std: list[FloatArray]) -> None:
        self.t, self.y, self.std = t, y, std
        self.left: _Piece | None = None
        self.right: _Piece | None = None
        self.failures = 0
        self.doubts: list[tuple[float, float]] = []
        self.gone = False
        self.settled: tuple[int, int, int] | None = None
        self.fit: AffinePiece | None = None
        if len(t) > 1:
            self.refit()

    def state(self) -> tuple[int, int, int]:
        """Return what a decision about the gap to the right depends on."""
        other = self.right
        size = len(self.t) + len(self.doubts)
        return (size, id(other), 0 if other is None else len(other.t))

    def refit(self) -> None:
        self.fit = fit_piece(np.array(self.t), np.array(self.y), np.array(self.std))

    def with_points(self, other: _Piece) -> AffinePiece:
        return fit_piece(
            np.array(self.t + other.t),
            np.array(self.y + other.y),
            np.array(self.std + other.std),
        )

    def absorb(self, other: _Piece, fit: AffinePiece, *, after: bool) -> None:
        if after:
            self.t, self.y, self.std = self.t + other.t, self.y + other.y, self.std + other.std
        else:
            self.t, self.y, self.std = other.t + self.t, other.y + self.y, other.std + self.std
        self.fit = fit


@dataclasses.dataclass
class _Plan:
    """One point to ask in the gap right of ``left``."""

    left: _Piece
    t: float
    suspect: _Piece | None  # the piece whose line is on trial
    lone: _Piece | None  # the lone point that wants a companion
    inside: _Piece | None = None  # the tentative piece between whose points t lies


class _Search:
    def __init__(self, ask: Ask, noise: Noise, scale: float, config: LineConfig) -> None:
        self.ask, self.noise, self.scale, self.config = ask, noise, scale, config
        self.length = 0.0
        self.bend = np.zeros(1)
        self.unresolved: set[int] = set()
        self.queries = 0
        self.rounds = 0

    # ------------------------------------------------------------ coordinates

    def _middle(self, a: float, b: float) -> float:
        """Midpoint; beyond the scale, of the inverse hyperbolic sines."""
        if not math.isfinite(self.scale):
            return 0.5 * (a + b)
        u = 0.5 * (math.asinh(a / self.scale) + math.asinh(b / self.scale))
        return min(max(self.scale * math.sinh(u), a + 0.02 * (b - a)), b - 0.02 * (b - a))

    def _resolution(self, t: float) -> float:
        return self.config.resolution * float(np.spacing(abs(t)))

    # ------------------------------------------------------------------- fits

    def _tells(self, piece: _Piece, t: float, std: FloatArray, level: float | None = None) -> bool:
        """Whether a piece predicts its value at t well enough to judge an answer by it.

        A line through points that are close together predicts anything far
        away, within its error; an answer that agrees then means nothing.
        """
        assert piece.fit is not None
        local = self.scale + abs(t) if math.isfinite(self.scale) else self.length
        part = self.config.informative if level is None else level
        least = self.config.margin * std if level is None else 2.0 * std
        error = self.config.accept * np.sqrt(piece.fit.variance(t))
        return bool((error <= np.maximum(part * self.bend * local, least)).all())

    def _joined(self, piece: _Piece, other: _Piece) -> AffinePiece | None:
        """Return the common fit of two links, or None where they are not one piece."""
        if piece.fit is None:
            return None
        gap = other.t[0] if other.t[0] > piece.t[0] else other.t[-1]
        tells = self._tells(piece, gap, other.std[0])
        if not tells and other.fit is not None:
            near = piece.t[-1] if other.t[0] > piece.t[0] else piece.t[0]
            tells = self._tells(other, near, piece.std[0])
        if not tells:
            return None
        joint = piece.with_points(other)
        return joint if joint.misfit <= self.config.accept else None

    def _absorb(self, piece: _Piece, other: _Piece, joint: AffinePiece, *, after: bool) -> None:
        """Join a link to a piece; if the agreement may be chance, note the hole between."""
        hole = (piece.t[-1], other.t[0]) if after else (other.t[-1], piece.t[0])
        sure = self._tells(piece, hole[1 if after else 0], other.std[0], self.config.certain)
        if not sure and other.fit is not None:
            far = hole[0 if after else 1]
            sure = self._tells(other, far, piece.std[0], self.config.certain)
        piece.absorb(other, joint, after=after)
        piece.doubts += other.doubts
        if not sure:
            piece.doubts.append(hole)

    # ----------------------------------------------------------------- chain

    def start(self, seeds: Iterable[Samples]) -> _Piece:
        pieces: list[_Piece] = []
        seeds = list(seeds)
        self._size_up(seeds)
        for t, y in sorted(seeds, key=lambda seed: float(seed[0][0])):
            std = self.noise(t)
            order = np.argsort(t)
            columns = [float(v) for v in t[order]], list(y[order]), list(std[order])
            whole = _Piece(*columns)
            if whole.fit is not None and whole.fit.misfit > self.config.accept:
                pieces += [_Piece([a], [b], [c]) for a, b, c in zip(*columns, strict=True)]
            else:
                pieces.append(whole)
        for a, b in itertools.pairwise(pieces):
            a.right, b.left = b, a
        return pieces[0]

    def _size_up(self, seeds: list[Samples]) -> None:
        """Learn the length of the line and how much slopes vary along it."""
        t = np.concatenate([s[0] for s in seeds])
        y = np.concatenate([s[1] for s in seeds])
        order = np.argsort(t)
        t, y = t[order], y[order]
        self.length = float(t[-1] - t[0])
        wide = np.diff(t) > np.median(np.diff(t))
        slopes = np.diff(y, axis=0)[wide] / np.diff(t)[wide, None]
        if len(slopes):
            middle = np.median(slopes, axis=0)
            self.bend = np.abs(slopes - middle).mean(axis=0)
            # Where all slopes are equal, a tenth of them stands for what would be a bend.
            self.bend = np.maximum(self.bend, 0.1 * np.abs(middle))

    def insert(self, left: _Piece, new: _Piece) -> None:
        new.left, new.right = left, left.right
        if left.right is not None:
            left.right.left = new
        left.right = new

    def remove(self, piece: _Piece) -> None:
        piece.gone = True
        if piece.left is not None:
            piece.left.right = piece.right
        if piece.right is not None:
            piece.right.left = piece.left

    # ------------------------------------------------------------------ plans

    def plan_gap(self, a: _Piece) -> _Plan | None:
        """Decide what to ask between ``a`` and its right neighbour; None when done."""
        config = self.config
        b = a.right
        while b is not None and a.fit is not None and b.fit is not None:
            joint = self._joined(a, b)
            if joint is None:
                break
            self._absorb(a, b, joint, after=True)
            self.remove(b)
            b = a.right
        if b is None or a.fit is None or b.fit is None or self._hand_over(a, b):
            return None
        low, high = a.t[-1], b.t[0]
        width = high - low
        if width <= self._resolution(max(abs(low), abs(high))):
            self.unresolved.add(id(a))
            return None
        meet = cross(a.fit, b.fit)
        rate = float(np.sqrt(np.sum((meet.jump / (0.5 * (a.std[-1] + b.std[0]))) ** 2)))
        delta = config.margin / rate + 2.0 * config.accept * meet.std if rate > 0 else math.inf
        # A point beyond the meeting point by more than its uncertainty refutes a single kink.
        slack = config.accept * (meet.std + 1.0 / rate) if rate > 0 else 0.0
        inside = low - slack <= meet.t <= high + slack
        # Parallel lines that are not one (they would have been joined) hide two kinks or more.
        bend = float(np.max(meet.jump**2 / (a.fit.slope_var + b.fit.slope_var)))
        parallel = bend <= config.accept**2
        if not inside or parallel or meet.misfit > config.accept:
            return _Plan(a, self._middle(low, high), None, None)
        if 4.0 * config.margin / rate > width and len(a.t) > 2 and len(b.t) > 2:
            return None  # tested on both sides, as close as the noise allows
        if 4.0 * delta > width:  # the lines are too uncertain: a point between helps
            t = min(max(meet.t, low + 0.25 * width), high - 0.25 * width)
            return _Plan(a, t, a if len(a.t) < len(b.t) else b, None)
        left_done = meet.t - low <= 2.0 * delta
        right_done = high - meet.t <= 2.0 * delta
        for done, piece in ((left_done, a), (right_done, b)):
            if done and len(piece.t) == 2:  # a third point this close would prove nothing
                return _Plan(piece, 0.5 * (piece.t[0] + piece.t[1]), piece, None, piece)
        if left_done and right_done:
            return None
        right_first = left_done or (not right_done and len(b.t) < len(a.t))
        t = meet.t + delta if right_first else meet.t - delta
        if not low < t < high:  # the test point falls on a known one: as close as can be
            self.unresolved.add(id(a))
            return None
        return _Plan(a, t, b if right_first else a, None)

    def _hand_over(self, a: _Piece, b: _Piece) -> bool:
        """Move a tentative piece's point to the neighbour on whose line it lies."""
        for giver, taker, index, after in ((b, a, 0, True), (a, b, -1, False)):
            if len(giver.t) != 2:
                continue
            point = _Piece([giver.t[index]], [giver.y[index]], [giver.std[index]])
            joint = self._joined(taker, point)
            if joint is not None:
                for column in (giver.t, giver.y, giver.std):
                    del column[index]
                giver.fit, giver.failures = None, 0
                self._absorb(taker, point, joint, after=after)
                return True
        return False

    def plan_companion(self, z: _Piece) -> _Plan | None:
        a, b = z.left, z.right
        for piece, after in ((a, True), (b, False)):
            if piece is not None and len(piece.t) > 1:
                joint = self._joined(piece, z)
                if joint is not None:
                    self._absorb(piece, z, joint, after=after)
                    self.remove(z)
                    return None
        t = z.t[0]
        left = t - a.t[-1] if a is not None else -1.0
        right = b.t[0] - t if b is not None else -1.0
        wider = max(left, right)
        if wider <= self._resolution(t):
            self.remove(z)  # squeezed between neighbours: nothing more to learn
            return None
        if right >= left:
            assert b is not None
            return _Plan(z, self._beside(t, b.t[0]), None, z)
        assert a is not None
        return _Plan(a, self._beside(t, a.t[-1]), None, z)

    def _beside(self, t: float, end: float) -> float:
        """Return a point a small part of the way from t to ``end``."""
        part = self.config.companion
        straight = t + part * (end - t)
        if abs(straight - t) < 0.25 * self._resolution(t):
            return 0.5 * (t + end)  # in the last places there is nothing between
        if not math.isfinite(self.scale):
            return straight
        u, v = math.asinh(t / self.scale), math.asinh(end / self.scale)
        bent = self.scale * math.sinh(u + part * (v - u))
        return bent if abs(bent - t) < abs(straight - t) else straight

    # ----------------------------------------------------------------- digest

    def place(self, plan: _Plan, y: FloatArray, std: FloatArray) -> None:
        """Give an answer to the piece it fits, or make it a lone point."""
        point = _Piece([plan.t], [y], [std])
        if plan.inside is not None:
            self._place_inside(plan.inside, point)
            return
        a = plan.left  # other answers of the round may have put links in between
        while a.right is not None and a.right.t[0] < plan.t:
            a = a.right
        b = a.right
        if a.t[-1] >= plan.t or (b is not None and b.t[0] <= plan.t):
            return  # asked already
        fits = []
        for piece, after in ((a, True), (b, False)):
            if piece is not None and len(piece.t) > 1:
                joint = self._joined(piece, point)
                if joint is not None:
                    fits.append((joint.misfit, after, piece, joint))
        fits.sort(key=lambda f: f[0])
        if fits:
            _, after, piece, joint = fits[0]
            self._absorb(piece, point, joint, after=after)
            if plan.suspect is not None and piece is not plan.suspect:
                plan.suspect.failures += 1
            return
        if plan.suspect is not None:
            plan.suspect.failures += 1
        if plan.lone is not None:
            z = plan.lone
            pair = [z, point] if plan.t > z.t[0] else [point, z]
            z.t = [p.t[0] for p in pair]
            z.y = [p.y[0] for p in pair]
            z.std = [p.std[0] for p in pair]
            z.refit()
            return
        self.insert(a, point)

    def _place_inside(self, piece: _Piece, point: _Piece) -> None:
        """Confirm a piece by a point in a hole of it, or take it apart there."""
        t = point.t[0]
        if piece.fit is None or not piece.t[0] < t < piece.t[-1] or t in piece.t:
            return  # changed by another answer of the same round
        cut = int(np.searchsorted(piece.t, t))
        whole = _Piece(
            [*piece.t[:cut], t, *piece.t[cut:]],
            [*piece.y[:cut], point.y[0], *piece.y[cut:]],
            [*piece.std[:cut], point.std[0], *piece.std[cut:]],
        )
        if whole.fit is not None and whole.fit.misfit <= self.config.accept:
            piece.t, piece.y, piece.std, piece.fit = whole.t, whole.y, whole.std, whole.fit
            return
        right = _Piece(piece.t[cut:], piece.y[cut:], piece.std[cut:])
        right.doubts = [hole for hole in piece.doubts if hole[0] >= right.t[0]]
        piece.doubts = [hole for hole in piece.doubts if hole[1] <= piece.t[cut - 1]]
        piece.t, piece.y, piece.std = piece.t[:cut], piece.y[:cut], piece.std[:cut]
        piece.failures, piece.fit = 0, None
        if cut > 1:
            piece.refit()
        self.insert(piece, right)
        self.insert(piece, point)

    def dissolve(self, piece: _Piece) -> None:
        """Take a tentative piece that keeps failing for two lone points."""
        second = _Piece([piece.t[1]], [piece.y[1]], [piece.std[1]])
        piece.t, piece.y, piece.std = piece.t[:1], piece.y[:1], piece.std[:1]
        piece.fit, piece.failures = None, 0
        self.insert(piece, second)

    def run(self, head: _Piece, max_queries: int) -> bool:
        """Ask until every gap is settled; False where a limit came first."""
        while self.rounds < self.config.max_rounds:
            plans: list[_Plan] = []
            settled = True
            for piece in _chain(head):
                if piece.gone or piece.settled == piece.state():
                    continue
                settled = False
                plan = self.plan(piece)
                if plan is not None:
                    plans.append(plan)
                elif len(piece.t) > 1:
                    piece.settled = piece.state()
            if settled:
                return True
            if not plans:
                continue  # pieces were merged or points moved: look again
            if self.queries + len(plans) > max_queries:
                return False
            t = np.array([p.t for p in plans])
            y = self.ask(t)
            std = self.noise(t)
            self.queries += len(t)
            self.rounds += 1
            for i, plan in enumerate(plans):
                self.place(plan, y[i], std[i])
        return False

    def plan(self, piece: _Piece) -> _Plan | None:
        """Decide what to ask at a piece or right of it; None when nothing."""
        if len(piece.t) == 2 and piece.failures >= self.config.patience:
            self.dissolve(piece)
        while piece.doubts:
            low, high = piece.doubts.pop()
            if not any(low < t < high for t in piece.t):
                return _Plan(piece, self._middle(low, high), None, None, piece)
        if len(piece.t) == 1:
            return self.plan_companion(piece)
        return self.plan_gap(piece)


def _chain(head: _Piece) -> Iterable[_Piece]:
    piece: _Piece | None = head
    while piece is not None:
        yield piece
        piece = piece.right


def find_kinks(
    ask: Ask,
    noise: Noise,
    seeds: Sequence[Samples],
    *,
    scale: float = math.inf,
    max_queries: int = 10_000_000,
    config: LineConfig | None = None,
) -> LineScan:
    """Find all kinks between the outermost seeds.

    Parameters
    ----------
    ask
        The function, ``(n,) -> (n, m)``; asked once per round.
    noise
        Standard deviations of the answers at given points, ``(n,) -> (n, m)``.
    seeds
        Clusters of points with their answers, two or more clusters; points of
        one cluster are first taken to lie on one piece. The outermost ones
        bound the search.
    scale
        Gaps are halved in asinh(t / scale): lengths below it, orders of
        magnitude beyond it. Infinite: halved in t.
    max_queries
        The search stops before it asks more.

    Notes
    -----
    What lies between two answers of one piece is not seen: a bump that is
    zero at every point asked stays hidden.
    """
    config = LineConfig() if config is None else config
    search = _Search(ask, noise, scale, config)
    head = search.start(seeds)
    complete = search.run(head, max_queries)
    return _collect(search, head, complete)


def _collect(search: _Search, head: _Piece, complete: bool) -> LineScan:
    chain = list(_chain(head))
    links = [p for p in chain if p.fit is not None]
    pieces = tuple(p.fit for p in links if p.fit is not None)
    meets = [cross(a, b) for a, b in itertools.pairwise(pieces)]
    outputs = len(chain[0].y[0])
    low = np.array([p.t[-1] for p in links[:-1]])
    high = np.array([p.t[0] for p in links[1:]])
    kinks = np.array([m.t for m in meets], dtype=np.float64)
    lone = len(chain) > len(links)
    resolved = np.array(
        [id(a) not in search.unresolved and complete and not lone for a in links[:-1]],
        dtype=np.float64,
    )
    if len(kinks):
        off = ~np.isfinite(kinks) | (kinks < low) | (kinks > high)
        kinks = np.where(off, np.clip(np.where(np.isfinite(kinks), kinks, low), low, high), kinks)
    order = np.argsort(np.array([t for p in chain for t in p.t]), kind="stable")
    return LineScan(
        kinks=kinks,
        kink_std=np.array([m.std for m in meets], dtype=np.float64),
        jumps=np.array([m.jump for m in meets]).reshape(len(meets), outputs),
        resolved=resolved,
        pieces=pieces,
        starts=np.array([p.t[0] for p in links]),
        ends=np.array([p.t[-1] for p in links]),
        counts=np.array([float(len(p.t)) for p in links]),
        t=np.array([t for p in chain for t in p.t])[order],
        y=np.array([y for p in chain for y in p.y])[order],
        rounds=search.rounds,
        complete=complete,
    )
