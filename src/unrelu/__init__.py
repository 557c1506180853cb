"""Recover a ReLU network from the outside.

Queries in, network out: ``unrelu.connect`` a target, run an algorithm, look at
``result.network`` and ``result.certificate``. This file is the public surface.
"""

from unrelu import planted
from unrelu._version import __version__
from unrelu.diagnostics import Diagnosis, diagnose
from unrelu.errors import (
    BudgetExhausted,
    InvalidAnswer,
    InvalidInput,
    LedgerError,
    LedgerFull,
    MissingExtra,
    OracleError,
    UnreluError,
)
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

__all__ = [
    "BudgetExhausted",
    "Certificate",
    "Comparison",
    "Diagnosis",
    "InvalidAnswer",
    "InvalidInput",
    "Ledger",
    "LedgerError",
    "LedgerFull",
    "MissingExtra",
    "Oracle",
    "OracleError",
    "Provenance",
    "QueryStats",
    "ReLUNetwork",
    "RecoveryResult",
    "StageReport",
    "Status",
    "UnreluError",
    "__version__",
    "compare",
    "connect",
    "diagnose",
    "planted",
]
