"""The only door to the outside: adapters, wrappers, and the function that picks."""

from unrelu.oracles.adapters import CallableOracle, NetworkOracle
from unrelu.oracles.base import Adapter, Meter, Oracle, Wrapper
from unrelu.oracles.connect import as_oracle, connect
from unrelu.oracles.estimators import EstimatorOracle
from unrelu.oracles.exact import ExactOracle
from unrelu.oracles.http import HTTPOptions, HTTPOracle
from unrelu.oracles.input_map import Mapped
from unrelu.oracles.onnx_file import OnnxOracle
from unrelu.oracles.recorded import Recorded
from unrelu.oracles.torch_module import TorchOracle
from unrelu.oracles.wrappers import Batched, Cast, Labels, LogOdds, Noisy, Rounded, Softmax

__all__ = [
    "Adapter",
    "Batched",
    "CallableOracle",
    "Cast",
    "EstimatorOracle",
    "ExactOracle",
    "HTTPOptions",
    "HTTPOracle",
    "Labels",
    "LogOdds",
    "Mapped",
    "Meter",
    "NetworkOracle",
    "Noisy",
    "OnnxOracle",
    "Oracle",
    "Recorded",
    "Rounded",
    "Softmax",
    "TorchOracle",
    "Wrapper",
    "as_oracle",
    "connect",
]
