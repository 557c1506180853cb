r"""Two hidden layers of leaky or saturating units, where the first's hyperplanes are known.

Setting
-------
:math:`f(x) = g(\varphi(Wx + b))`, where unit j of the first layer has the slope 1 above zero and
:math:`a_j` below (leaky ReLU; PReLU: a slope a unit; the absolute value: -1), and g is one hidden
layer of piecewise linear units. ``extract_three_layer`` finds the hyperplanes of such a first
layer, and stops where no side of them is off.

Assumptions
-----------
Rows of W that are linearly independent; every unit of the second layer switches somewhere where
all first-layer preactivations are positive (any row with entries of both signs does).

Guarantee
---------
RECOVERED: as of :func:`unrelu.extraction.deep_certify.certify_network`, and of every answer seen.

Method
------
Every preactivation z can be asked for, at :math:`x = W^+(z - b)`. Across :math:`z_j = 0`, the
others held, the top's gradient is continuous: slopes of the answers on both sides are in the
ratio :math:`a_j`. The steeper side is the upper one. Where all z are positive they are what the
second layer sees, and Daniely & Granot's Theorem 2 recovers it there, with an affine term: one
linear unit (a leaky one of slope 1) for each output carries it.

Where all ratios are zero the units may saturate above (hard tanh, ReLU6, hard sigmoid):
:mod:`unrelu.extraction.clipped`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from unrelu._random import RandomState
from unrelu._types import FloatArray
from unrelu.activations import activation
from unrelu.core.explain import explained
from unrelu.core.noise import AGREES, NoiseModel
from unrelu.core.run import Run
from unrelu.extraction.box import extract_in_box
from unrelu.extraction.box_clip import HAIR
from unrelu.extraction.clipped import clipped_network, find_ends
from unrelu.extraction.deep_certify import certify_network
from unrelu.extraction.deep_numbers import ALIKE, FINE, TRIES, ZERO
from unrelu.extraction.three_layer_result import ThreeLayerResult
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.networks import Network, ReLUNetwork
from unrelu.oracles.base import Oracle, Wrapper
from unrelu.progress import Progress
from unrelu.result import Certificate, RecoveryResult, Status

__all__ = ["LeakyResult", "extract_leaky"]


@dataclasses.dataclass(frozen=True, repr=False)
class LeakyResult(RecoveryResult):
    """A recovered network with two hidden layers of leaky units.

    Attributes
    ----------
    slopes
        Of the first layer's units below zero, ``(k,)``.
    answers
        What the network computes.
    """

    slopes: FloatArray = dataclasses.field(default_factory=lambda: np.empty(0))
    answers: str = "values"


@dataclasses.dataclass(frozen=True)
class _First:
    """A first layer: rows ``(k, d)`` of unit length, biases, and slopes below zero."""

    weights: FloatArray
    biases: FloatArray
    slopes: FloatArray

    def input_of(self, z: FloatArray) -> FloatArray:
        """Return inputs ``(n, d)`` at which preactivations ``(n, k)`` are what is asked."""
        return np.asarray((z - self.biases) @ np.linalg.pinv(self.weights).T)


class _Above(Wrapper):
    """The target as a function of what its first layer gives, where that is positive."""

    def __init__(self, inner: Oracle, first: _First) -> None:
        super().__init__(inner)
        self.first, self.input_dim, self.row_shape = first, len(first.biases), None

    def _identity_suffix(self) -> str:
        digest = hashlib.blake2b(self.first.weights.tobytes() + self.first.biases.tobytes())
        return f"|above:{digest.hexdigest()[:16]}"

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        return self.inner._answer(self.first.input_of(points), repeat)


def extract_leaky(
    oracle: Any,
    deep: ThreeLayerResult,
    *,
    rng: RandomState = None,
    progress: Progress | None = None,
) -> LeakyResult:
    """Recover two hidden layers of leaky units from the first one's hyperplanes.

    Parameters
    ----------
    oracle
        The target; its answers are values.
    deep
        What ``extract_three_layer`` found of it.
    rng
        Seed or generator.
    progress
        Receives updates while it runs.
    """
    run = Run(oracle, algorithm="extract_leaky", rng=rng, progress=progress)
    state = _State(run, deep)
    return run.ended(state.recovered, state.result, lambda r: explained(run.target, r, r.answers))


@dataclasses.dataclass
class _State:
    """A run, and what it has come to."""

    run: Run
    deep: ThreeLayerResult
    first: _First | None = None
    network: Network | None = None
    certificate: Certificate | None = None

    def recovered(self) -> LeakyResult:
        """Slopes, then the layer above, then the certificate."""
        run, noise = self.run, self.noise()
        norms = np.linalg.norm(self.deep.first_weights, axis=1)
        rows = self.deep.first_weights / norms[:, None]
        plain = _First(rows, self.deep.first_biases / norms, np.zeros(len(rows)))
        with run.stage("slopes") as details:
            self.first = _with_slopes(run, plain, noise)
            if self.first is None:
                return self.result(
                    Status.ASSUMPTION_VIOLATED,
                    "slopes on both sides of the first layer's hyperplanes are in no fixed ratio: "
                    "no leaky units",
                )
            details |= {"least": float(self.first.slopes.min())}
        ends, kind = None, "leaky units"
        view = _Above(run.target, self.first)
        if not self.first.slopes.any():
            with run.stage("ends"):
                ends, kind = find_ends(view, len(rows), run.rng), "units that saturate"
            if ends is None:
                return self.result(
                    Status.ASSUMPTION_VIOLATED, "the first layer's units are plain ReLUs"
                )
        above = self.above(view, ends)
        top = above.network
        if not above.success or not isinstance(top, ReLUNetwork):
            return self.result(above.status if not above.success else Status.PARTIAL, (
                f"the first layer has {len(rows)} {kind}; of the layer above: {above.message}"
            ))  # fmt: skip
        if ends is None:
            self.network, plain_relus = _composed(self.first, top)
        else:
            layer = self.first.weights, self.first.biases
            self.network, plain_relus = clipped_network(*layer, ends, top)
        with run.stage("certificate"):
            verdict = certify_network(run.target, plain_relus, noise, rng=run.rng)
        self.certificate = verdict.certificate
        if verdict.message:
            return self.result(Status.PARTIAL, verdict.message)
        widths = f"hidden widths {len(rows)} and {top.hidden_widths[0]}"
        return self.result(
            Status.RECOVERED, f"{widths}, the first of {kind}; {verdict.certificate}"
        )

    def above(self, view: _Above, ends: FloatArray | None) -> RecoveryResult:
        """Recover what is above the first layer, where its units all rise."""
        run = self.run
        found: RecoveryResult
        if ends is None:
            found = extract_two_layer(
                view, domain="nonnegative", answers="values", rng=run.rng, progress=run.progress
            )
        else:  # rows are off by rounding: not at the very ends
            box = HAIR * ends, (1.0 - HAIR) * ends
            found = extract_in_box(
                view, domain=box, answers="values", rng=run.rng, progress=run.progress
            )
        run.stages.extend(found.stages)
        return found

    def noise(self) -> NoiseModel:
        """Return the noise of an answer, which grows with the input as rounding does."""
        target = self.run.target
        level = np.full(target.output_dim, self.deep.noise)
        return NoiseModel(level, level / np.sqrt(target.input_dim))

    def result(self, status: Status, message: str) -> LeakyResult:
        """Put the result together."""
        run = self.run
        return LeakyResult(
            status=status,
            message=message,
            queries=run.target.queries,
            provenance=run.provenance,
            network=self.network,
            certificate=self.certificate,
            stages=tuple(run.stages),
            slopes=np.empty(0) if self.first is None else self.first.slopes,
        )


def _with_slopes(run: Run, first: _First, noise: NoiseModel) -> _First | None:
    """Measure each unit's slopes on both sides; the steeper side becomes the upper one.

    The step is halved until both sides are straight at half of a unit's places. None where
    places disagree.
    """
    k, d = first.weights.shape
    unit = np.repeat(np.arange(k), TRIES + 1)
    z = run.rng.standard_normal((len(unit), d)) @ first.weights.T + first.biases
    z[np.arange(len(unit)), unit] = 0.0
    slopes = np.full((len(unit), 2, run.target.output_dim), np.nan)
    room = np.zeros(len(unit))
    step = 1.0
    while step > ALIKE:
        enough = 2 * np.bincount(unit[room > 0.0], minlength=k) > TRIES
        open_ = np.flatnonzero((room == 0.0) & ~enough[unit])
        if len(open_) == 0:
            break
        # Three points a side, none at the kink: that is as far off as its row is.
        t = step * np.array([1.0, 2.0, 3.0, -1.0, -2.0, -3.0])
        places = np.repeat(z[open_][:, None, :], len(t), axis=1)
        places[np.arange(len(open_)), :, unit[open_]] += t
        points = first.input_of(places.reshape(-1, k))
        y = run.target(points).reshape(len(open_), 2, 3, -1)
        level = noise.at(points).reshape(y.shape).max(axis=(1, 2))
        bend = np.abs(y[:, :, 0] - 2.0 * y[:, :, 1] + y[:, :, 2]).max(axis=1)
        allowed = ZERO * AGREES * level
        rise = (y[:, :, 2] - y[:, :, 0]) / (t[[2, 5]] - t[[0, 3]])[:, None]
        # Both sides meet at the kink, unless a unit above switches on the way to it.
        apart = np.abs(np.diff(2.0 * y[:, :, 0] - y[:, :, 1], axis=1))[:, 0]
        meet = apart <= np.maximum(allowed, FINE * step * np.abs(rise).max(axis=1))
        straight = ((bend <= allowed) & meet).all(axis=1)
        found = open_[straight]
        slopes[found] = rise[straight]
        room[found] = step
        step /= 2.0
    return _agreed(first, slopes.reshape(k, TRIES + 1, 2, -1), room.reshape(k, -1))


def _agreed(first: _First, slopes: FloatArray, room: FloatArray) -> _First | None:
    """Return the layer with the ratio of slopes of each unit, turned where it is above one."""
    ratios, turn = np.empty(len(slopes)), np.zeros(len(slopes), dtype=bool)
    for j, (unit, space) in enumerate(zip(slopes, room, strict=True)):
        good = space > 0
        size = np.linalg.norm(unit, axis=2)  # (places, side)
        if 2 * np.count_nonzero(good) < len(good):
            return None
        best = int(np.argmax(np.where(good, space * size.max(axis=1), 0.0)))
        turn[j] = size[best, 1] > size[best, 0]
        upper, lower = (unit[:, 1], unit[:, 0]) if turn[j] else (unit[:, 0], unit[:, 1])
        if not np.linalg.norm(upper[best]) > 0:
            return None
        ratios[j] = float(lower[best] @ upper[best] / (upper[best] @ upper[best]))
        off = np.linalg.norm(lower - ratios[j] * upper, axis=1)
        if (off[good] > FINE * size[best].max()).any():
            return None
    sign = np.where(turn, -1.0, 1.0)
    ratios = np.where(np.abs(ratios) <= FINE, 0.0, ratios)
    return _First(first.weights * sign[:, None], first.biases * sign, ratios)


def _composed(first: _First, top: ReLUNetwork) -> tuple[Network, ReLUNetwork]:
    """Return both layers as leaky units, and as ReLUs: ``phi(z) = [z] - a [-z]``."""
    (w, u), (b, c), k = top.weights, top.biases, len(top.weights[0])
    skip = np.zeros((len(u), w.shape[1])) if top.skip is None else top.skip
    lines = len(skip) if top.skip is not None else 0
    w, b = np.concatenate([w, skip[:lines]]), np.append(b, np.zeros(lines))
    u = np.concatenate([u, np.eye(len(u))[:, :lines]], axis=1)
    slopes = np.append(np.zeros(k), np.ones(lines))
    network = Network(
        [first.weights, w, u], [first.biases, b, c],
        [activation("leaky_relu", first.slopes), activation("leaky_relu", slopes)],
    )  # fmt: skip
    relus = ReLUNetwork(
        [
            np.concatenate([first.weights, -first.weights]),
            np.concatenate(
                [np.concatenate([w, -w[k:]]), -np.concatenate([w, -w[k:]]) * first.slopes], axis=1
            ),
            np.concatenate([u, -u[:, k:]], axis=1),
        ],
        [np.append(first.biases, -first.biases), np.append(b, -b[k:]), c],
    )
    return network, relus
