"""Recover a ReLU network from the outside.

Queries in, network out: ``unrelu.connect`` a target, run an algorithm, look at
``result.network`` and ``result.certificate``. This file is the public surface.
"""

from typing import TYPE_CHECKING, Any

from unrelu import modular, planted
from unrelu._version import __version__
from unrelu.choose import (
    DeepSpanResult,
    ExtractionPlan,
    extract,
    plan_extraction,
)
from unrelu.diagnostics import Diagnosis, diagnose
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
from unrelu.extraction.three_layer import ThreeLayerResult, extract_three_layer
from unrelu.extraction.two_layer import TwoLayerResult, extract_two_layer
from unrelu.gaussian.algorithm import (
    Identifiability,
    SamplesResult,
    hermite_risk,
    identifiability,
    learn_from_population,
    learn_from_samples,
)
from unrelu.learner.algorithm import LearnerResult, learn_from_queries
from unrelu.ledger import Ledger
from unrelu.metrics import Comparison, compare
from unrelu.networks import ReLUNetwork
from unrelu.oracles import Oracle, connect
from unrelu.result import (
    Certificate,
    Provenance,
    QueryStats,
    RecoveryResult,
    StageReport,
    Status,
)
from unrelu.span.algorithm import (
    Obfuscation,
    SpanPlan,
    SpanResult,
    obfuscate,
    recover_span,
    recover_span_from_replies,
)
from unrelu.thresholds.algorithm import (
    HalfspacesResult,
    LowestLayerResult,
    draw_biased_samples,
    learn_halfspaces,
    recover_lowest_layer,
)
from unrelu.thresholds.detector import DetectedLayerResult, detect_directions
from unrelu.thresholds.structured_layers import (
    BinaryLayerResult,
    EvenLayerResult,
    recover_binary_layer,
    recover_even_layer,
)

if TYPE_CHECKING:
    from unrelu.gaussian.estimator import HermiteNetRegressor

__all__ = [
    "BinaryLayerResult",
    "BudgetExhausted",
    "Certificate",
    "Comparison",
    "DeepSpanResult",
    "DetectedLayerResult",
    "Diagnosis",
    "EvenLayerResult",
    "ExtractionPlan",
    "HalfspacesResult",
    "HermiteNetRegressor",
    "Identifiability",
    "InvalidAnswer",
    "InvalidInput",
    "LearnerResult",
    "Ledger",
    "LedgerError",
    "LedgerFull",
    "LedgerMismatch",
    "LowestLayerResult",
    "MissingExtra",
    "Obfuscation",
    "Oracle",
    "OracleError",
    "Provenance",
    "QueryStats",
    "ReLUNetwork",
    "RecoveryResult",
    "SamplesResult",
    "SpanPlan",
    "SpanResult",
    "StageReport",
    "Status",
    "ThreeLayerResult",
    "TwoLayerResult",
    "UnreluError",
    "__version__",
    "compare",
    "connect",
    "detect_directions",
    "diagnose",
    "draw_biased_samples",
    "extract",
    "extract_three_layer",
    "extract_two_layer",
    "hermite_risk",
    "identifiability",
    "learn_from_population",
    "learn_from_queries",
    "learn_from_samples",
    "learn_halfspaces",
    "modular",
    "obfuscate",
    "plan_extraction",
    "planted",
    "recover_binary_layer",
    "recover_even_layer",
    "recover_lowest_layer",
    "recover_span",
    "recover_span_from_replies",
]


def __getattr__(name: str) -> Any:
    """Load the scikit-learn estimator when it is asked for: its import is slow."""
    if name == "HermiteNetRegressor":
        from unrelu.gaussian.estimator import HermiteNetRegressor

        return HermiteNetRegressor
    raise AttributeError(f"module 'unrelu' has no attribute {name!r}")
