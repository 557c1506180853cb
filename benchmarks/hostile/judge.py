"""Hold a network against the truth.

False means one of:

* *wrong*: RECOVERED, and off by more than the certificate's own tolerance on more inputs
  than its own bound, at confidence :data:`CONFIDENCE`. Judged with 20,000 fresh inputs of
  the certificate's own distribution, 200,000 where features are thin or rare, against the
  function or, where answers are rounded, against the answers. A service that changed its
  mind during the run is judged by every function that answered in it.
* *loose*: RECOVERED with a tolerance above 1e-6 of the answers' spread, and above 100 times
  the noise. For float64 answers that noise is the last bit of the largest term in sight,
  for others it is measured: answers minus truth at the fresh inputs (root mean square),
  or what the run measured itself if that is no more than :data:`NOISE_FACTOR` times as much.
* *epsilon*: a learner's RECOVERED whose mean square error exceeds the epsilon asked for,
  by more than the sampling error of the fresh inputs allows.
* *untrue*: APPROXIMATED, and off by more than it says.
* *empty*: RECOVERED or APPROXIMATED without a network or without a certificate.

At 0.3 and 3 times the certificate's inputs the largest deviation over the spread is
written down beside the verdict, and not judged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.special

from benchmarks.hostile.case import Array, Function, Planted, Verdict

CONFIDENCE = 0.9999
FRESH, FRESH_THIN = 20_000, 200_000
LOOSE, LOOSE_NOISE = 1e-6, 100.0
NOISE_FACTOR = 4.0
"""The run's own measurement of the noise counts up to this many times the true one."""
SCALES = (0.3, 3.0)
DEEPEST = 6.0
"""Log-odds are compared up to here: beyond, probabilities of a few digits do not hold them."""


def status_of(result: Any) -> str:
    """Return the status' name; earlier releases lack some."""
    return str(getattr(getattr(result, "status", None), "name", ""))


def more_than(count: int, n: int, bound: float) -> bool:
    """Whether ``count`` of ``n`` refutes that a share of at most ``bound`` exceeds."""
    if count == 0 or bound >= 1.0:
        return False
    # P(X >= count) for a binomial X, by the incomplete beta function.
    chance = float(scipy.special.betainc(count, n - count + 1, bound)) if bound > 0 else 0.0
    return chance < 1.0 - CONFIDENCE


def mean_exceeds(squares: Array, limit: float) -> bool:
    """Whether the mean of ``squares`` is above ``limit`` beyond its sampling error."""
    z = float(scipy.special.ndtri(CONFIDENCE))
    error = float(squares.std(ddof=1)) / math.sqrt(len(squares))
    return float(squares.mean()) - z * error > limit


def fresh_inputs(planted: Planted, result: Any, rng: np.random.Generator) -> Array:
    """Draw inputs from the certificate's own distribution."""
    certificate = result.certificate
    n = FRESH_THIN if planted.thin else FRESH
    if planted.draw is not None:
        return planted.draw(n, rng)
    words = str(getattr(certificate, "distribution", ""))
    if "uniform" in words and getattr(result, "low", None) is not None:
        return rng.uniform(result.low, result.high, size=(n, planted.d))
    if "uniform" in words and not isinstance(planted.domain, str):
        return rng.uniform(*planted.domain, size=(n, planted.d))
    x = rng.standard_normal((n, planted.d))
    return np.abs(x) if "absolute" in words else x


def _log_odds(values: Array) -> Array:
    """Return logits of probabilities, up to a common function."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if values.shape[1] == 1:
            return np.log(values) - np.log1p(-values)
        return np.log(values)


def _relative(logits: Array, reference: int) -> Array:
    with np.errstate(invalid="ignore"):  # two that underflow have no difference
        return logits if logits.shape[1] == 1 else logits - logits[:, [reference]]


class Comparison:
    """A result's network and one true function, in the units of the network."""

    def __init__(self, planted: Planted, truth: Function, result: Any) -> None:
        self.planted, self.network = planted, result.network
        if hasattr(result, "predict"):  # of labels: what the network says, as the target does
            self.network = lambda x: result.predict(x)[:, None]
        self.odds = getattr(result, "answers", "values") == "log-odds"
        self.truth = truth
        self.rounded = planted.phases is None and planted.ask is not None and planted.noise != 0.0
        self.reference = 0
        if self.odds:
            x = np.random.default_rng(0).standard_normal((64, planted.d))
            self.reference = int(np.argmin(np.abs(self.network(x)).max(axis=0)))

    def true(self, x: Array) -> Array:
        if not self.odds:
            return self.truth(x)
        logits = self.planted.logits
        values = logits(x) if logits is not None else _log_odds(self.truth(x))
        return _relative(values, self.reference)

    def answered(self, x: Array) -> Array:
        """Return the answers, in the same units."""
        values = np.asarray(self.planted.target(x), dtype=np.float64).reshape(len(x), -1)
        return _relative(_log_odds(values), self.reference) if self.odds else values

    def deviations(self, x: Array) -> tuple[Array, Array]:
        """Return deviations ``(n,)`` and true values, where they can be compared."""
        f, g = self.true(x), self.network(x)
        if self.odds:
            keep = np.isfinite(f).all(axis=1) & (np.abs(f).max(axis=1) < DEEPEST)
            f, g = f[keep], _relative(g, self.reference)[keep]
        else:
            keep = np.isfinite(f).all(axis=1)  # where it has no answer nothing is claimed
            f, g = f[keep], g[keep]
        if f.shape != g.shape:
            return np.full(max(1, len(f)), np.inf), f
        away = np.abs(f - g).max(axis=1, initial=0.0)
        if self.rounded:
            # A certificate speaks of the target as it answers: rounding is part of it.
            h = self.answered(x)[keep]
            near = np.abs(h - g).max(axis=1, initial=0.0)
            away = np.where(np.isfinite(near), np.minimum(away, near), away)
        return away, f

    def noise(self, x: Array) -> float:
        """Return the standard deviation of an answer's error, in the same units."""
        f = self.true(x)
        keep = np.isfinite(f).all(axis=1)
        if self.odds:
            keep &= np.abs(f).max(axis=1, initial=0.0) < DEEPEST
        x, f = x[keep], f[keep]
        if len(x) == 0:
            return 0.0
        rounding = float(np.finfo(np.float64).eps * np.sqrt(np.mean(f**2)))
        if self.odds:
            rounding = float(np.finfo(np.float64).eps * math.exp(DEEPEST))
        if self.planted.noise is not None and not self.odds:
            return max(self.planted.noise, rounding)
        if self.planted.ask is None:
            return rounding
        error = self.answered(x) - f
        error = error[np.isfinite(error).all(axis=1)]
        return max(float(np.sqrt(np.mean(error**2))) if error.size else 0.0, rounding)


def judge_network(planted: Planted, result: Any, *, rng: np.random.Generator) -> Verdict:
    """Judge what extraction returned."""
    status = status_of(result)
    facts: dict[str, Any] = {"status": status, "message": str(result.message)[:300]}
    if status not in ("RECOVERED", "APPROXIMATED"):
        return Verdict("honest", status, facts)
    certificate = result.certificate
    if result.network is None or certificate is None:
        return Verdict("false", f"empty: {status} without network or certificate", facts)
    x = fresh_inputs(planted, result, rng)
    truths = [planted.truth] if planted.phases is None else planted.phases()
    for truth in truths:
        verdict = _judge_one(planted, truth, result, x, facts)
        if verdict is not None:
            return verdict
    facts |= _at_scales(Comparison(planted, truths[0], result), x)
    return Verdict("right" if status == "RECOVERED" else "approximated", "", facts)


def _judge_one(
    planted: Planted, truth: Function, result: Any, x: Array, facts: dict[str, Any]
) -> Verdict | None:
    """Return a verdict against the result, or None where it holds."""
    certificate, status = result.certificate, status_of(result)
    both = Comparison(planted, truth, result)
    deviation, values = both.deviations(x)
    if len(values) == 0:
        return None
    spread = float((values - values[0]).std(axis=0).max())  # a constant varies by nothing
    size = spread or float(np.abs(values).max()) or 1.0
    tolerance = float(certificate.tolerance)
    slack = 16.0 * float(np.finfo(np.float64).eps) * float(np.abs(values).max())
    count = int(np.count_nonzero(~(deviation <= tolerance + slack)))
    facts |= {
        "tolerance": tolerance,
        "spread": spread,
        "error": float(deviation.max()) / size,
        "exceeding": count,
        "fresh": len(deviation),
        "bound": float(certificate.fraction_bound),
    }
    if more_than(count, len(deviation), float(certificate.fraction_bound)):
        name = "wrong" if status == "RECOVERED" else "untrue"
        return Verdict(
            "false",
            f"{name}: {count} of {len(deviation)} inputs are off by more than {tolerance:.2g}, "
            f"up to {float(deviation.max()):.2g} (spread {spread:.2g}); at most "
            f"{certificate.fraction_bound:.2g} of them were to be",
            facts,
        )
    reached = float(getattr(result, "reached", math.inf))
    if mean_exceeds(deviation**2, reached**2) and math.isfinite(reached):
        rms = float(np.sqrt(np.mean(deviation**2)))
        return Verdict("false", f"untrue: rms {rms:.2g}, stated {reached:.2g}", facts)
    if status != "RECOVERED":
        return None
    noise = both.noise(x[:2000])
    said = float(getattr(result, "noise", 0.0) or 0.0)
    noise = max(noise, min(said, NOISE_FACTOR * noise))
    facts["noise"] = noise
    labels = hasattr(result, "predict")  # right or wrong, never close
    if not labels and tolerance > max(LOOSE * size, LOOSE_NOISE * noise):
        return Verdict(
            "false",
            f"loose: a tolerance of {tolerance:.2g}, {tolerance / size:.2g} of the "
            f"spread, {tolerance / noise if noise else math.inf:.3g} times the noise",
            facts,
        )
    return None


def _at_scales(both: Comparison, x: Array) -> dict[str, float]:
    """Return the largest deviation over the spread, at other scales of the inputs."""
    planted, found = both.planted, {}
    x = x[:20_000]
    for scale in SCALES:
        if isinstance(planted.domain, str):
            points = scale * x
        elif scale < 1:
            middle = 0.5 * (planted.domain[0] + planted.domain[1])
            points = middle + scale * (x - middle)
        else:
            continue
        with np.errstate(all="ignore"):
            deviation, values = both.deviations(points)
        if len(values):
            spread = float(values.std(axis=0).max()) or float(np.abs(values).max()) or 1.0
            found[f"at {scale:g}"] = float(deviation.max()) / spread
    return found


def judge_learner(
    planted: Planted, result: Any, *, epsilon: float, rng: np.random.Generator
) -> Verdict:
    """Judge a learner by the epsilon that was asked for, over the spread of the truth."""
    status = status_of(result)
    facts: dict[str, Any] = {"status": status, "message": str(result.message)[:300]}
    if status == "APPROXIMATED":
        return judge_network(planted, result, rng=rng)
    if status != "RECOVERED":
        return Verdict("honest", status, facts)
    if result.network is None or result.certificate is None:
        return Verdict("false", "empty: RECOVERED without network or certificate", facts)
    x = fresh_inputs(planted, result, rng)
    for truth in [planted.truth] if planted.phases is None else planted.phases():
        f = truth(x)
        g = result.network(x)
        if f.shape != g.shape:
            return Verdict("false", f"wrong: answers of shape {g.shape} for {f.shape}", facts)
        square = ((f - g) ** 2).sum(axis=1)
        spread = float(np.sqrt(f.var(axis=0).sum()))
        limit = max(epsilon * spread, 0.0)
        facts |= {"error": float(np.sqrt(square.mean())) / (spread or 1.0), "spread": spread,
                  "epsilon": epsilon}  # fmt: skip
        # The learner measures the spread by samples of its own: 10 % are its due.
        if mean_exceeds(square, (1.1 * limit) ** 2 + (1e-12 * float(np.abs(f).max())) ** 2):
            return Verdict(
                "false",
                f"epsilon: rms error {facts['error']:.2g} of the spread where {epsilon:.2g} was "
                "asked for and certified",
                facts,
            )
    return Verdict("right", "", facts)
