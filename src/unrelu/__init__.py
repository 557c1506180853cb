"""Recover a ReLU network from the outside.

Queries in, network out: ``unrelu.connect`` a target, run an algorithm, look at
``result.network`` and ``result.certificate``. This file is the public surface: the verbs
and a few types. The rest, each method's own result for one, is imported from its module.
"""

from typing import TYPE_CHECKING, Any

from unrelu import planted
from unrelu._version import __version__
from unrelu.choose import extract, plan_extraction
from unrelu.diagnostics import diagnose
from unrelu.errors import (
    BudgetExhausted,
    InvalidAnswer,
    InvalidInput,
    LedgerError,
    LedgerFull,
    LedgerMismatch,
    MissingExtra,
    OracleError,
    UnreluError,
)
from unrelu.extraction.three_layer import extract_three_layer
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.gaussian.algorithm import identifiability, learn_from_samples
from unrelu.labels.algorithm import extract_from_labels
from unrelu.learner.algorithm import learn_from_queries
from unrelu.ledger import Ledger
from unrelu.metrics import compare
from unrelu.networks import Network, ReLUNetwork
from unrelu.oracles import Oracle, connect
from unrelu.result import Certificate, RecoveryResult, Status
from unrelu.span.algorithm import obfuscate, recover_span
from unrelu.thresholds.algorithm import learn_halfspaces, recover_lowest_layer

if TYPE_CHECKING:
    from unrelu.gaussian.estimator import HermiteNetRegressor

__all__ = [
    "BudgetExhausted",
    "Certificate",
    "HermiteNetRegressor",
    "InvalidAnswer",
    "InvalidInput",
    "Ledger",
    "LedgerError",
    "LedgerFull",
    "LedgerMismatch",
    "MissingExtra",
    "Network",
    "Oracle",
    "OracleError",
    "ReLUNetwork",
    "RecoveryResult",
    "Status",
    "UnreluError",
    "__version__",
    "compare",
    "connect",
    "diagnose",
    "extract",
    "extract_from_labels",
    "extract_three_layer",
    "extract_two_layer",
    "identifiability",
    "learn_from_queries",
    "learn_from_samples",
    "learn_halfspaces",
    "obfuscate",
    "plan_extraction",
    "planted",
    "recover_lowest_layer",
    "recover_span",
]


def __getattr__(name: str) -> Any:
    """Load the scikit-learn estimator when it is asked for: its import is slow."""
    if name == "HermiteNetRegressor":
        from unrelu.gaussian.estimator import HermiteNetRegressor

        return HermiteNetRegressor
    raise AttributeError(f"module 'unrelu' has no attribute {name!r}")
