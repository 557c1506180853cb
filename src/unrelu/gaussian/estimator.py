"""A scikit-learn regressor around :func:`unrelu.learn_from_samples`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from unrelu._types import FloatArray
from unrelu.errors import InvalidInput
from unrelu.gaussian.algorithm import learn_from_samples
from unrelu.result import Status

__all__ = ["HermiteNetRegressor"]


class HermiteNetRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Depth-2 ReLU network learned by Hermite moments and polished by least squares.

    Parameters
    ----------
    width
        Number of units, or None to discover it.
    order
        None, or the paper's l for its own route.
    method
        "power", "joint" or "jennrich".
    polish
        Whether to refine the moment estimate on the samples.
    check_gaussian
        Whether to refuse inputs that are clearly not Gaussian.
    max_width
        Never look for more units than this.
    random_state
        Seed, ``numpy.random.RandomState`` or None.

    Attributes
    ----------
    network_
        The learned :class:`unrelu.ReLUNetwork`.
    result_
        The whole :class:`unrelu.RecoveryResult`.
    n_features_in_
        Number of inputs.

    Examples
    --------
    >>> import numpy as np, unrelu
    >>> truth = unrelu.planted.random_network(5, 2, 1, rng=0)
    >>> x = np.random.default_rng(0).standard_normal((10_000, 5))
    >>> model = unrelu.HermiteNetRegressor(random_state=0).fit(x, truth(x)[:, 0])
    >>> bool(model.score(x, truth(x)[:, 0]) > 0.999)
    True
    """

    def __init__(
        self,
        *,
        width: int | None = None,
        order: int | None = None,
        method: str = "power",
        polish: bool = True,
        check_gaussian: bool = True,
        max_width: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.width = width
        self.order = order
        self.method = method
        self.polish = polish
        self.check_gaussian = check_gaussian
        self.max_width = max_width
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> HermiteNetRegressor:
        """Learn from ``X`` of shape ``(n, d)`` and ``y`` of shape ``(n,)``."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=4)
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = int(seed.randint(2**31 - 1))
        result = learn_from_samples(
            X,
            np.asarray(y, dtype=np.float64),
            width=self.width,
            order=self.order,
            method=self.method,  # type: ignore[arg-type]
            polish=self.polish,
            check_gaussian=self.check_gaussian,
            max_width=self.max_width,
            rng=seed,
        )
        if result.status is Status.ASSUMPTION_VIOLATED or result.network is None:
            raise InvalidInput(result.message)
        self.result_ = result
        self.network_ = result.network
        return self

    def predict(self, X: Any) -> FloatArray:
        """Evaluate the network at ``X`` of shape ``(n, d)``; returns ``(n,)``."""
        check_is_fitted(self, "network_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.network_(X)[:, 0])
