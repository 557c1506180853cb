"""Conversions between :class:`Network` and other frameworks.

Frameworks are imported inside the functions that need them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unrelu._files import replace_file
from unrelu._types import FloatArray
from unrelu.activations import Activation, activation
from unrelu.errors import InvalidInput, MissingExtra
from unrelu.networks import Network

if TYPE_CHECKING:
    import torch

__all__ = ["network_to_onnx", "network_to_torch", "parts_from_torch"]

Parts = tuple[list[FloatArray], list[FloatArray], list[Activation]]
"""Weights, biases and activations, as :class:`Network` takes them."""

_ONNX_OPSET = 17
"""The newest that every onnxruntime since 1.17 reads."""


class _Graph:
    """Nodes and constants of an ONNX graph under construction."""

    def __init__(self, helper: Any, numpy_helper: Any, dtype: str) -> None:
        self._helper, self._numpy_helper, self.dtype = helper, numpy_helper, dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: FloatArray | float) -> str:
        self.constants.append(
            self._numpy_helper.from_array(np.asarray(value, dtype=self.dtype), name)
        )
        return name

    def node(self, kind: str, *inputs: str | float, out: str = "", **attributes: Any) -> str:
        """Add a node; numbers among its inputs become constants. Returns its output."""
        out = out or f"v{len(self.nodes)}"
        names = [
            name if isinstance(name, str) else self.constant(f"{out}_{i}", name)
            for i, name in enumerate(inputs)
        ]
        self.nodes.append(self._helper.make_node(kind, names, [out], **attributes))
        return out

    def activate(self, phi: Activation, z: str) -> str:
        """Add the nodes of an activation, of operators that runtimes have in double as well."""
        name, p = phi.name, phi.parameters
        simple = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid", "sine": "Sin"}
        simple |= {"abs": "Abs"}
        if name in simple:
            return self.node(simple[name], z)
        if name == "gelu":  # onnxruntime knows Erf in single precision only
            inner = self.node("Erf", self.node("Mul", z, float(np.sqrt(0.5))))
            return self.node("Mul", self.node("Mul", z, 0.5), self.node("Add", inner, 1.0))
        if name == "gelu_tanh":
            cube = self.node("Mul", self.node("Mul", z, z), z)
            inner = self.node("Add", z, self.node("Mul", cube, 0.044715))
            inner = self.node("Tanh", self.node("Mul", inner, float(np.sqrt(2.0 / np.pi))))
            return self.node("Mul", self.node("Mul", z, 0.5), self.node("Add", inner, 1.0))
        if name == "silu":
            return self.node("Mul", z, self.node("Sigmoid", z))
        if name == "softplus":  # max(z, 0) + log(1 + exp(-|beta z|)) / beta does not overflow
            beta = self.constant(f"beta_{z}", p[..., 0])
            inner = self.node("Neg", self.node("Abs", self.node("Mul", z, beta)))
            inner = self.node("Log", self.node("Add", self.node("Exp", inner), 1.0))
            return self.node("Add", self.node("Relu", z), self.node("Div", inner, beta))
        if name == "elu":
            below = self.node("Neg", self.node("Relu", self.node("Neg", z)))
            below = self.node("Sub", self.node("Exp", below), 1.0)
            return self.node("Add", self.node("Relu", z), below)
        if name == "leaky_relu":
            slope = self.constant(f"slope_{z}", p[..., 0])
            below = self.node("Mul", self.node("Relu", self.node("Neg", z)), slope)
            return self.node("Sub", self.node("Relu", z), below)
        if name == "hard_sigmoid":
            z = self.node("Add", self.node("Mul", z, 1.0 / 6.0), 0.5)
        ends = {"hard_tanh": (-1.0, 1.0), "relu6": (0.0, 6.0), "hard_sigmoid": (0.0, 1.0)}
        if name in ends:
            return self.node("Clip", z, *ends[name])
        raise InvalidInput(f"the activation {name} cannot be written as ONNX")


def network_to_onnx(
    network: Network, path: str | os.PathLike[str], *, dtype: str = "float64"
) -> Path:
    """Write ``network`` as ONNX: Gemm nodes and activations, input ``x``, output ``y``."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise MissingExtra("onnx", "onnx", "writing an ONNX file") from error
    if dtype not in {"float64", "float32"}:
        raise InvalidInput(f"dtype must be 'float64' or 'float32', got {dtype!r}")
    element = TensorProto.DOUBLE if dtype == "float64" else TensorProto.FLOAT
    parts = _Graph(helper, numpy_helper, dtype)
    current = "x"
    last = network.depth - 1
    for i, (w, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        names = [current, parts.constant(f"weight_{i}", w), parts.constant(f"bias_{i}", b)]
        out = "y" if i == last and network.skip is None else f"affine_{i}"
        current = parts.node("Gemm", *names, out=out, transB=1)
        if i < last:
            current = parts.activate(network.activations[i], current)
    if network.skip is not None:
        direct = parts.node("MatMul", "x", parts.constant("skip", network.skip.T))
        parts.node("Add", current, direct, out="y")
    graph = helper.make_graph(
        parts.nodes,
        "unrelu",
        [helper.make_tensor_value_info("x", element, ["n", network.input_dim])],
        [helper.make_tensor_value_info("y", element, ["n", network.output_dim])],
        parts.constants,
    )
    opsets = [helper.make_opsetid("", _ONNX_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="unrelu")
    model.ir_version = helper.find_min_ir_version_for(opsets)
    onnx.checker.check_model(model)
    return replace_file(path, model.SerializeToString())


def network_to_torch(network: Network) -> torch.nn.Module:
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
    for i, (w, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        layers.append(linear(w, b))
        if i < network.depth - 1:
            layers.append(_torch_activation(torch, network.activations[i]))
    body = torch.nn.Sequential(*layers)
    if network.skip is None:
        return body

    class WithSkip(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self, body: torch.nn.Module, skip: torch.nn.Module) -> None:
            super().__init__()
            self.body, self.skip = body, skip

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) + self.skip(x)

    return WithSkip(body, linear(network.skip, None))


def _torch_activation(torch: Any, phi: Activation) -> Any:
    """Return the module of an activation."""
    nn = torch.nn
    plain = {
        "relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid, "silu": nn.SiLU,
        "gelu": nn.GELU, "elu": nn.ELU, "hard_tanh": nn.Hardtanh, "relu6": nn.ReLU6,
        "hard_sigmoid": nn.Hardsigmoid,
    }  # fmt: skip
    if phi.name in plain:
        return plain[phi.name]()
    p = phi.parameters
    if phi.name == "gelu_tanh":
        return nn.GELU(approximate="tanh")
    if phi.name == "softplus" and p.ndim == 1:
        return nn.Softplus(beta=float(p[0]), threshold=float(np.finfo(np.float64).maxexp))
    if phi.name == "leaky_relu" and p.ndim == 1:
        return nn.LeakyReLU(float(p[0]))
    if phi.name == "leaky_relu":
        module = nn.PReLU(len(p), dtype=torch.float64)
        with torch.no_grad():
            module.weight.copy_(torch.from_numpy(p[:, 0].copy()))
        return module
    if phi.name in {"sine", "abs"}:
        function = {"sine": torch.sin, "abs": torch.abs}[phi.name]

        class Elementwise(nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
            def forward(self, x: Any) -> Any:
                return function(x)

        return Elementwise()
    raise InvalidInput(f"the activation {phi.name} cannot be written as a torch module")


def _read(tensor: Any) -> FloatArray:
    return np.asarray(tensor.detach().cpu().double().numpy())


def _read_activation(layer: Any) -> Activation | None:
    """Return the activation that a torch module applies, or None."""
    kind = type(layer).__name__
    plain = {
        "ReLU": "relu", "Tanh": "tanh", "Sigmoid": "logistic", "SiLU": "silu",
        "ReLU6": "relu6", "Hardsigmoid": "hard_sigmoid",
    }  # fmt: skip
    if kind in plain:
        return activation(plain[kind])
    if kind == "GELU":
        return activation("gelu_tanh" if layer.approximate == "tanh" else "gelu")
    if kind == "Softplus":
        return activation("softplus", float(layer.beta))
    if kind == "LeakyReLU":
        return activation("leaky_relu", float(layer.negative_slope))
    if kind == "PReLU":
        return activation("leaky_relu", _read(layer.weight))
    if kind == "ELU" and float(layer.alpha) == 1.0:
        return activation("elu")
    if kind == "Hardtanh" and (layer.min_val, layer.max_val) == (-1.0, 1.0):
        return activation("hard_tanh")
    return None


def _batch_norm(layer: Any) -> tuple[FloatArray, FloatArray]:
    """Return scale and shift of a batch norm at inference."""
    mean, variance = _read(layer.running_mean), _read(layer.running_var)
    scale = 1.0 / np.sqrt(variance + float(layer.eps))
    shift = np.zeros_like(scale)
    if layer.weight is not None:
        scale, shift = scale * _read(layer.weight), _read(layer.bias)
    return scale, shift - scale * mean


def parts_from_torch(module: Any) -> Parts:
    """Read Linear layers and activations in turn, batch norms folded; anything else is refused."""
    weights: list[FloatArray] = []
    biases: list[FloatArray] = []
    activations: list[Activation] = []
    waiting: tuple[FloatArray, FloatArray] | None = None  # a norm in front of the next Linear
    expect_linear = True
    for layer in module.modules():
        kind = type(layer).__name__
        if kind in {"Sequential", "Flatten", "Identity", "Dropout"}:
            continue
        phi = _read_activation(layer)
        if kind == "BatchNorm1d":
            scale, shift = _batch_norm(layer)
            if expect_linear:
                old = (np.ones_like(scale), np.zeros_like(scale)) if waiting is None else waiting
                waiting = scale * old[0], scale * old[1] + shift
            else:
                weights[-1] = weights[-1] * scale[:, None]
                biases[-1] = biases[-1] * scale + shift
        elif kind == "Linear" and expect_linear:
            w = _read(layer.weight)
            b = np.zeros(len(w)) if layer.bias is None else _read(layer.bias)
            if waiting is not None:
                w, b = w * waiting[0], b + w @ waiting[1]
            weights, biases, waiting = [*weights, w], [*biases, b], None
            expect_linear = False
        elif phi is not None and not expect_linear:
            activations.append(phi)
            expect_linear = True
        else:
            raise InvalidInput(
                f"cannot read a {kind} layer here: expected Linear layers and activations in turn"
            )
    if not weights or expect_linear:
        raise InvalidInput("the module must start and end with a Linear layer")
    return weights, biases, activations
