"""The certificate of a network of any depth: held-out points where it could be wrong.

Typical inputs, for a statement about them. Points on a few lines, densely, to
see features too thin for the former. And typical inputs where a unit is in a
state that they rarely show, or about to switch: what is wrong about a unit that is
rarely on is seen nowhere else.

A network is judged by every point, per output, and where one deviates nothing
more is asked: the search goes on from there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unrelu._types import FloatArray
from unrelu.core.memory import BLOCK
from unrelu.core.noise import NoiseModel
from unrelu.extraction.deep_numbers import EXPECTED, FAINT, FINE
from unrelu.extraction.deep_regions import beside_surfaces, unseen_pairs
from unrelu.networks import ReLUNetwork
from unrelu.oracles.base import Oracle
from unrelu.result import Certificate

__all__ = ["DeepCertifyConfig", "Verdict", "certify_network"]


@dataclasses.dataclass(frozen=True)
class DeepCertifyConfig:
    """Sizes and tolerances of the certificate."""

    samples: int = 10_000
    """Standard Gaussian inputs asked: 360 let 5 of 14 wrong networks pass, and a unit that is
    on for one input in a thousand needs some thousands."""
    first: int = 1000
    """So many of them, the lines and the rare states come first; most that fails does there."""
    lines: int = 4
    line_samples: int = 512
    """Lines through them, and points on each, over four times their range."""
    pool: int = 60_000
    """Gaussian inputs among which rare states are looked for, not asked."""
    pool_size: int = BLOCK
    """Numbers that the pool may hold: fewer inputs where they are long."""
    shown: int = 4
    """A pair of states that fewer of the samples show is looked for in the pool."""
    beside: int = 2
    """Inputs on each side of every unit's surface, the nearest of the pool."""
    rare: int = 1500
    """Inputs of rare states asked at most."""
    least: float = EXPECTED
    """Part of the Gaussian inputs that must have an answer: log-odds may underflow."""
    accept: float = 100.0
    """A deviation may have this many standard deviations of an answer's noise: the polish
    fits about as many answers as parameters, which leaves a few of them ..."""
    floor: float = FINE
    ceiling: float = FAINT
    """... or, where answers are exact, the first part of the output's spread, if that is more;
    and never more than the second."""
    exact: float = 1e-11
    """Noise over the size of answers up to which they are exact float64."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the held-out points say.

    Attributes
    ----------
    certificate
        None where too few points had an answer.
    message
        Empty where every deviation is within its tolerance, else a sentence.
    points, answers
        All points asked that had an answer, ``(n, d)`` and ``(n, m)``.
    over
        How far each deviates, over what was allowed there, ``(n,)``.
    """

    certificate: Certificate | None
    message: str
    points: FloatArray
    answers: FloatArray
    over: FloatArray

    @property
    def teaches(self) -> bool:
        """Whether there are answers from which a search can go on."""
        flat = self.certificate is None or self.certificate.scale == 0.0
        return not flat and bool((self.over > 1.0).any())


def certify_network(
    oracle: Oracle,
    network: ReLUNetwork,
    noise: NoiseModel,
    *,
    rng: np.random.Generator,
    units: FloatArray | float = 1.0,
    config: DeepCertifyConfig | None = None,
) -> Verdict:
    """Compare network and target at fresh points.

    Points with an answer that is NaN are left out: log-odds of probabilities
    that underflowed.

    Parameters
    ----------
    units
        What an answer of one means to the caller, ``(m,)``: the certificate's
        numbers are in the caller's units.
    """
    config = DeepCertifyConfig() if config is None else config
    d, m = oracle.input_dim, oracle.output_dim
    typical = rng.standard_normal((config.samples, d))
    others = np.concatenate([_lines(d, rng, config), _rare_inputs(network, typical, rng, config)])
    none = np.empty((0, d)), np.empty((0, m))
    gaussian, elsewhere = none, none
    asked = 0
    for block in np.split(typical, range(config.first, config.samples, 3 * config.first)):
        extra = others if asked == 0 else none[0]
        seen = oracle(np.concatenate([block, extra]))
        asked += len(block)
        gaussian = _with_answers(gaussian, block, seen[: len(block)])
        elsewhere = _with_answers(elsewhere, extra, seen[len(block) :])
        if len(gaussian[0]) < config.least * asked:
            return Verdict(
                None,
                f"only {len(gaussian[0])} of {asked} held-out points have probabilities that do "
                "not underflow: too few for a certificate",
                *none,
                np.empty(0),
            )
        limits = _Limits(gaussian[1], noise, d, config)
        over = (
            limits.over(network, *gaussian, typical=True),
            limits.over(network, *elsewhere, typical=False),
        )
        if max(part.max(initial=0.0) for part in over) > 1.0:
            break
    certificate = _certificate(network, gaussian, elsewhere, over, limits, units)
    points, answers = (np.concatenate([a, b]) for a, b in zip(gaussian, elsewhere, strict=True))
    excess = np.concatenate(over)
    message = ""
    if certificate.scale == 0.0:
        message = (
            f"all {certificate.samples} held-out typical inputs have the same answer: they do not "
            "confirm what was found far out, where the target changes; scale its inputs up"
        )
    elif (excess > 1.0).any():
        miss = np.abs(answers - network(points)) / limits.spread
        message = (
            f"{int((excess > 1.0).sum())} of {len(points)} held-out points deviate by more than "
            f"was expected, up to {float(miss[excess > 1.0].max()):.2g} of an output's spread"
        )
    return Verdict(certificate, message, points, answers, excess)


@dataclasses.dataclass(frozen=True)
class _Limits:
    """What deviations are allowed: each output is judged by its own noise and spread."""

    typical: FloatArray
    noise: NoiseModel
    dimension: int
    config: DeepCertifyConfig

    @property
    def spread(self) -> FloatArray:
        """Of each output at typical inputs, ``(m,)``; one where it is constant."""
        spread = self.typical.std(axis=0)
        return np.asarray(np.where(spread > 0, spread, 1.0))

    def at(self, points: FloatArray, *, typical: bool) -> FloatArray:
        """Return the deviations allowed at points, ``(n, m)``.

        A typical input is not excused by being longer than others: what the
        certificate states holds for all of them.
        """
        config, root = self.config, np.sqrt(self.dimension)
        norms = np.linalg.norm(points, axis=1)
        # Far out on the lines both the function and its errors grow with the input.
        growth = np.maximum(1.0, norms / root)
        usual = self.noise.std(np.array([root]))[0]
        spread = self.typical.std(axis=0)
        exact = (usual <= config.exact * np.abs(self.typical).max(axis=0)) & (spread > 0.0)
        level = self.noise.std(np.minimum(norms, root) if typical else norms)
        least = np.multiply.outer(growth, config.floor * spread)
        most = np.multiply.outer(np.ones(len(points)) if typical else growth, spread)
        allowed = np.clip(config.accept * level, least, np.maximum(least, config.ceiling * most))
        return np.asarray(np.where(exact, allowed, config.accept * level))

    def over(
        self, network: ReLUNetwork, points: FloatArray, answers: FloatArray, *, typical: bool
    ) -> FloatArray:
        """Return deviations over those allowed, the largest of all outputs, ``(n,)``."""
        off = np.abs(answers - network(points))
        allowed = self.at(points, typical=typical) + _rounding(network, points)
        return np.asarray((off / allowed).max(axis=1, initial=0.0))


def _rounding(network: ReLUNetwork, points: FloatArray) -> FloatArray:
    """Return what rounding in the network itself may change, ``(n, m)``: its terms cancel."""
    value = points
    for w, b in zip(network.weights[:-1], network.biases[:-1], strict=True):
        value = np.maximum(value @ w.T + b, 0.0)
    terms = value @ np.abs(network.weights[-1]).T + np.abs(network.biases[-1])
    return np.asarray(4.0 * np.finfo(np.float64).eps * terms)


def _with_answers(
    known: tuple[FloatArray, FloatArray], points: FloatArray, answers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    usable = np.isfinite(answers).all(axis=1)
    return np.concatenate([known[0], points[usable]]), np.concatenate([known[1], answers[usable]])


def _lines(d: int, rng: np.random.Generator, config: DeepCertifyConfig) -> FloatArray:
    """Return points on random lines, spread evenly, ``(n, d)``."""
    reach = 4.0 * np.sqrt(d)
    blocks = [np.empty((0, d))]
    for _ in range(config.lines):
        a, direction = rng.standard_normal((2, d))
        direction /= np.linalg.norm(direction)
        edges = np.linspace(-reach, reach, config.line_samples + 1)
        t = edges[:-1] + np.diff(edges) * rng.uniform(size=config.line_samples)
        blocks.append(a + np.multiply.outer(t, direction))
    return np.concatenate(blocks)


def _rare_inputs(
    network: ReLUNetwork,
    typical: FloatArray,
    rng: np.random.Generator,
    config: DeepCertifyConfig,
) -> FloatArray:
    """Return typical inputs that show what those given rarely do, ``(n, d)``."""
    d = typical.shape[1]
    pool = rng.standard_normal((min(config.pool, config.pool_size // d), d))
    chosen = np.union1d(
        unseen_pairs(network, typical, pool, config.shown, config.rare),
        beside_surfaces(network, pool, config.beside),
    )
    return np.asarray(pool[chosen])


def _certificate(
    network: ReLUNetwork,
    gaussian: tuple[FloatArray, FloatArray],
    elsewhere: tuple[FloatArray, FloatArray],
    over: tuple[FloatArray, FloatArray],
    limits: _Limits,
    units: FloatArray | float,
) -> Certificate:
    deviation = np.abs(gaussian[1] - network(gaussian[0])) * units
    aside = np.abs(elsewhere[1] - network(elsewhere[0])) * units
    allowed = limits.at(gaussian[0], typical=True).max(axis=0) * units
    details: dict[str, Any] = {
        "points elsewhere": len(aside),
        "points elsewhere exceeding": int((over[1] > 1.0).sum()),
        "largest deviation elsewhere": float(aside.max(initial=0.0)),
    }
    if len(allowed) > 1:
        details["tolerance per output"] = [float(a) for a in allowed]
    return Certificate.from_deviations(
        deviation,
        scale=float((gaussian[1].std(axis=0) * units).max()),
        tolerance=float(allowed.max()),
        exceeding=over[0] > 1.0,
        details=details,
    )
