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

import itertools
import math
from collections.abc import Sequence

import numpy as np

from unrelu.core.noise import AGREES, Samples
from unrelu.core.pieces import Crossing, cross
from unrelu.lines.chain import MARGIN, Chain, Link, Plan
from unrelu.lines.scan import Ask, LineScan, Noise

__all__ = ["Ask", "LineScan", "Noise", "find_kinks"]

COMPANION = 0.04
"""Distance of a lone point's companion, over the wider of its gaps. Gaps in which it would be
less than a unit in the last place are not split."""
_MOST_ROUNDS = 3 * np.finfo(np.float64).bits
"""Halving a range of float64 takes as many rounds as it has bits, with tests on both sides."""


class _Search:
    def __init__(self, ask: Ask, chain: Chain) -> None:
        self.ask, self.chain, self.scale = ask, chain, chain.scale
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
        return float(np.spacing(abs(t))) / COMPANION

    # ------------------------------------------------------------------ plans

    def plan_gap(self, a: Link) -> Plan | None:
        """Decide what to ask between ``a`` and its right neighbour; None when done."""
        b = a.right
        while b is not None and a.fit is not None and b.fit is not None:
            joint = self.chain.joined(a, b)
            if joint is None:
                break
            self.chain.take_in(a, b, joint, after=True)
            self.chain.remove(b)
            b = a.right
        if b is None or a.fit is None or b.fit is None or self.chain.hand_over(a, b):
            return None
        low, high = a.t[-1], b.t[0]
        width = high - low
        if width <= self._resolution(max(abs(low), abs(high))):
            self.unresolved.add(id(a))
            return None
        return self._plan_between(a, b, cross(a.fit, b.fit))

    def _plan_between(self, a: Link, b: Link, meet: Crossing) -> Plan | None:
        """Test that one kink, where the lines meet, is all there is in a gap."""
        assert a.fit is not None
        assert b.fit is not None
        low, high = a.t[-1], b.t[0]
        width = high - low
        rate = float(np.sqrt(np.sum((meet.jump / (0.5 * (a.std[-1] + b.std[0]))) ** 2)))
        delta = MARGIN / rate + 2.0 * AGREES * meet.std if rate > 0 else math.inf
        # A point beyond the meeting point by more than its uncertainty refutes a single kink.
        slack = AGREES * (meet.std + 1.0 / rate) if rate > 0 else 0.0
        inside = low - slack <= meet.t <= high + slack
        # Parallel lines that are not one (they would have been joined) hide two kinks or more.
        bend = float(np.max(meet.jump**2 / (a.fit.slope_var + b.fit.slope_var)))
        if not inside or bend <= AGREES**2 or meet.misfit > AGREES:
            return Plan(a, self._middle(low, high), None, None)
        if 4.0 * MARGIN / rate > width and len(a.t) > 2 and len(b.t) > 2:
            return None  # tested on both sides, as close as the noise allows
        if 4.0 * delta > width:  # the lines are too uncertain: a point between helps
            t = min(max(meet.t, low + 0.25 * width), high - 0.25 * width)
            return Plan(a, t, a if len(a.t) < len(b.t) else b, None)
        left_done = meet.t - low <= 2.0 * delta
        right_done = high - meet.t <= 2.0 * delta
        for done, piece in ((left_done, a), (right_done, b)):
            if done and len(piece.t) == 2:  # a third point this close would prove nothing
                return Plan(piece, 0.5 * (piece.t[0] + piece.t[1]), piece, None, piece)
        if left_done and right_done:
            return None
        right_first = left_done or (not right_done and len(b.t) < len(a.t))
        t = meet.t + delta if right_first else meet.t - delta
        if not low < t < high:  # the test point falls on a known one: as close as can be
            self.unresolved.add(id(a))
            return None
        return Plan(a, t, b if right_first else a, None)

    def plan_companion(self, z: Link) -> Plan | None:
        a, b = z.left, z.right
        for piece, after in ((a, True), (b, False)):
            if piece is not None and len(piece.t) > 1:
                joint = self.chain.joined(piece, z)
                if joint is not None:
                    self.chain.take_in(piece, z, joint, after=after)
                    self.chain.remove(z)
                    return None
        t = z.t[0]
        left = t - a.t[-1] if a is not None else -1.0
        right = b.t[0] - t if b is not None else -1.0
        wider = max(left, right)
        if wider <= self._resolution(t):
            self.chain.remove(z)  # squeezed between neighbours: nothing more to learn
            return None
        if right >= left:
            assert b is not None
            return Plan(z, self._beside(t, b.t[0]), None, z)
        assert a is not None
        return Plan(a, self._beside(t, a.t[-1]), None, z)

    def _beside(self, t: float, end: float) -> float:
        """Return a point a small part of the way from t to ``end``."""
        part = COMPANION
        straight = t + part * (end - t)
        if abs(straight - t) < 0.25 * self._resolution(t):
            return 0.5 * (t + end)  # in the last places there is nothing between
        if not math.isfinite(self.scale):
            return straight
        u, v = math.asinh(t / self.scale), math.asinh(end / self.scale)
        bent = self.scale * math.sinh(u + part * (v - u))
        return bent if abs(bent - t) < abs(straight - t) else straight

    def plan(self, piece: Link) -> Plan | None:
        """Decide what to ask at a piece or right of it; None when nothing."""
        if len(piece.t) == 2 and piece.failures >= 2:  # a failure for each of its points
            self.chain.dissolve(piece)
        while piece.doubts:
            low, high = piece.doubts.pop()
            if not any(low < t < high for t in piece.t):
                return Plan(piece, self._middle(low, high), None, None, piece)
        if len(piece.t) == 1:
            return self.plan_companion(piece)
        return self.plan_gap(piece)

    def run(self, max_queries: float) -> bool:
        """Ask until every gap is settled; False where a limit came first."""
        while self.rounds < _MOST_ROUNDS:
            plans: list[Plan] = []
            settled = True
            for piece in self.chain:
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
            std = self.chain.noise(t)
            self.queries += len(t)
            self.rounds += 1
            for i, plan in enumerate(plans):
                self.chain.place(plan, y[i], std[i])
        return False


def find_kinks(
    ask: Ask,
    noise: Noise,
    seeds: Sequence[Samples],
    *,
    scale: float = math.inf,
    max_queries: int | None = None,
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
        The search stops before it asks more, if given.

    Notes
    -----
    What lies between two answers of one piece is not seen: a bump that is
    zero at every point asked stays hidden.
    """
    chain = Chain(seeds, noise, scale)
    search = _Search(ask, chain)
    complete = search.run(math.inf if max_queries is None else max_queries)
    return _collect(search, complete)


def _collect(search: _Search, complete: bool) -> LineScan:
    chain = list(search.chain)
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
