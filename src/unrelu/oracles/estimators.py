"""Adapter for scikit-learn estimators, in memory or in a skops file.

A skops file names the types it holds; one that names a type outside
scikit-learn's own data types is refused before anything is built. Pickle files
(.pkl, .joblib) are never opened: loading one runs whatever its author wrote.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput, MissingExtra
from unrelu.oracles.base import Adapter, Meter
from unrelu.oracles.fingerprint import fingerprint

__all__ = ["EstimatorOracle", "is_estimator", "load_skops"]

METHODS = ("predict_proba", "decision_function", "predict")

# Plain holders of arrays and numbers that skops does not list itself.
_HARMLESS = {
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
}


def is_estimator(target: Any) -> bool:
    """Whether ``target`` is a scikit-learn estimator that predicts."""
    return (
        not isinstance(target, type)
        and hasattr(target, "get_params")
        and any(hasattr(target, method) for method in METHODS)
    )


def load_skops(path: str, *, method: str | None = None) -> EstimatorOracle:
    """Open a skops file; types that could run code are refused by name."""
    try:
        import skops.io
    except ImportError as error:
        raise MissingExtra("skops", "sklearn", "opening a skops file") from error
    if not Path(path).is_file():
        raise InvalidInput(f"there is no file {path}")
    content = Path(path).read_bytes()
    try:
        unknown = set(skops.io.get_untrusted_types(data=content)) - _HARMLESS
        if unknown:
            raise InvalidInput(
                f"{path} holds types that are not known to be harmless: "
                f"{', '.join(sorted(unknown))}. Nothing was loaded. If you trust its author, load "
                "it yourself with skops and pass the estimator to unrelu.connect"
            )
        estimator = skops.io.loads(content, trusted=sorted(_HARMLESS))
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{path} is not a readable skops file: {type(error).__name__}: {error}"
        ) from error
    if not is_estimator(estimator):
        raise InvalidInput(f"{path} holds a {type(estimator).__name__}, not an estimator")
    digest = hashlib.blake2b(content, digest_size=12).hexdigest()
    return EstimatorOracle(estimator, method=method, identity=f"skops:{digest}")


class EstimatorOracle(Adapter):
    """A fitted scikit-learn estimator or pipeline.

    Parameters
    ----------
    estimator
        Fitted; its number of inputs is read from ``n_features_in_``.
    method
        ``"predict_proba"``, ``"decision_function"`` or ``"predict"``; by
        default the first that it has, so a classifier shows probabilities.
    input_dim
        For an estimator that does not say.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        method: str | None = None,
        input_dim: int | None = None,
        identity: str | None = None,
        meter: Meter | None = None,
    ) -> None:
        if method is not None and method not in METHODS:
            raise InvalidInput(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        chosen = method or next((name for name in METHODS if hasattr(estimator, name)), "predict")
        if not hasattr(estimator, chosen):
            raise InvalidInput(f"{type(estimator).__name__} has no {chosen}")
        features = getattr(estimator, "n_features_in_", input_dim)
        if features is None:
            raise InvalidInput(
                f"{type(estimator).__name__} does not say how many inputs it takes: call fit "
                "first, or pass input_dim"
            )
        if identity is None:
            identity = f"sklearn:{type(estimator).__name__}#{fingerprint(estimator)}"
        super().__init__(input_dim=int(features), identity=f"{identity}:{chosen}", meter=meter)
        self._predict = getattr(estimator, chosen)

    def _ask(self, points: FloatArray) -> ArrayLike:
        answers: ArrayLike = self._predict(points)
        return answers
