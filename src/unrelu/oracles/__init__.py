"""The only door to the outside: adapters, wrappers, and the function that picks."""

from unrelu.oracles.adapters import CallableOracle, NetworkOracle
from unrelu.oracles.base import Adapter, Meter, Oracle, Wrapper
from unrelu.oracles.connect import as_oracle, connect
from unrelu.oracles.recorded import Recorded
from unrelu.oracles.wrappers import Batched, Cast, Labels, LogOdds, Noisy, Rounded, Softmax

__all__ = [
    "Adapter",
    "Batched",
    "CallableOracle",
    "Cast",
    "Labels",
    "LogOdds",
    "Meter",
    "NetworkOracle",
    "Noisy",
    "Oracle",
    "Recorded",
    "Rounded",
    "Softmax",
    "Wrapper",
    "as_oracle",
    "connect",
]
