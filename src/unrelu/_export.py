"""Conversions between :class:`ReLUNetwork` and other frameworks.

Frameworks are imported inside the functions that need them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unrelu._files import replace_file
from unrelu.errors import InvalidInput, MissingExtra
from unrelu.networks import ReLUNetwork

if TYPE_CHECKING:
    import torch

__all__ = ["network_from_sklearn", "network_from_torch", "network_to_onnx", "network_to_torch"]

# The newest pair that every onnxruntime since 1.17 reads.
_ONNX_OPSET = 17
_ONNX_IR = 8


def network_to_onnx(
    network: ReLUNetwork, path: str | os.PathLike[str], *, dtype: str = "float64"
) -> Path:
    """Write ``network`` as ONNX: Gemm and Relu nodes, input ``x``, output ``y``."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise MissingExtra("onnx", "onnx", "writing an ONNX file") from error
    if dtype not in {"float64", "float32"}:
        raise InvalidInput(f"dtype must be 'float64' or 'float32', got {dtype!r}")
    element = TensorProto.DOUBLE if dtype == "float64" else TensorProto.FLOAT
    nodes, constants = [], []

    def constant(name: str, value: np.ndarray[Any, Any]) -> str:
        constants.append(numpy_helper.from_array(value.astype(dtype), name))
        return name

    current = "x"
    last = network.depth - 1
    for i, (w, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        names = [current, constant(f"weight_{i}", w), constant(f"bias_{i}", b)]
        out = "y" if i == last and network.skip is None else f"affine_{i}"
        nodes.append(helper.make_node("Gemm", names, [out], transB=1))
        if i < last:
            nodes.append(helper.make_node("Relu", [out], [f"hidden_{i}"]))
            out = f"hidden_{i}"
        current = out
    if network.skip is not None:
        nodes.append(helper.make_node("MatMul", ["x", constant("skip", network.skip.T)], ["s"]))
        nodes.append(helper.make_node("Add", [current, "s"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "unrelu",
        [helper.make_tensor_value_info("x", element, ["n", network.input_dim])],
        [helper.make_tensor_value_info("y", element, ["n", network.output_dim])],
        constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _ONNX_OPSET)], producer_name="unrelu"
    )
    model.ir_version = _ONNX_IR
    onnx.checker.check_model(model)
    return replace_file(path, model.SerializeToString())


def network_to_torch(network: ReLUNetwork) -> torch.nn.Module:
    """Return a float64 module with the same weights."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("torch", "torch", "converting to torch") from error

    def linear(w: np.ndarray[Any, Any], b: np.ndarray[Any, Any] | None) -> torch.nn.Linear:
        layer = torch.nn.Linear(w.shape[1], w.shape[0], bias=b is not None, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(w.copy()))
            if b is not None:
                layer.bias.copy_(torch.from_numpy(b.copy()))
        return layer

    layers: list[torch.nn.Module] = []
    for w, b in zip(network.weights, network.biases, strict=True):
        layers += [linear(w, b), torch.nn.ReLU()]
    body = torch.nn.Sequential(*layers[:-1])
    if network.skip is None:
        return body

    class WithSkip(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self, body: torch.nn.Module, skip: torch.nn.Module) -> None:
            super().__init__()
            self.body, self.skip = body, skip

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) + self.skip(x)

    return WithSkip(body, linear(network.skip, None))


def network_from_sklearn(estimator: Any) -> ReLUNetwork:
    """Read the weights of a fitted scikit-learn MLP."""
    if not hasattr(estimator, "coefs_") or not hasattr(estimator, "intercepts_"):
        raise InvalidInput(
            f"{type(estimator).__name__} is not a fitted scikit-learn MLP: call fit first, and "
            "take the MLP out of a pipeline"
        )
    if estimator.activation != "relu" and len(estimator.coefs_) > 1:
        raise InvalidInput(f"the activation is {estimator.activation!r}, not 'relu'")
    return ReLUNetwork([w.T for w in estimator.coefs_], list(estimator.intercepts_))


def network_from_torch(module: Any) -> ReLUNetwork:
    """Read alternating Linear and ReLU layers; anything else is refused."""
    weights, biases = [], []
    expect_linear = True
    for layer in module.modules():
        kind = type(layer).__name__
        if kind in {"Sequential", "Flatten", "Identity", "Dropout"}:
            continue
        if kind == "Linear" and expect_linear:
            w = layer.weight.detach().cpu().double().numpy()
            weights.append(w)
            biases.append(
                np.zeros(len(w))
                if layer.bias is None
                else layer.bias.detach().cpu().double().numpy()
            )
        elif kind != "ReLU" or expect_linear:
            raise InvalidInput(
                f"cannot read a {kind} layer here: expected Linear and ReLU layers in turn"
            )
        expect_linear = not expect_linear
    if not weights or expect_linear:
        raise InvalidInput("the module must start and end with a Linear layer")
    return ReLUNetwork(weights, biases)
