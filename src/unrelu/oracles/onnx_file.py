"""Adapter for ONNX files, run by onnxruntime on the CPU.

The file is read as data. Its input's name, shape and type are discovered, and
of its outputs the one that carries scores is chosen. No library of custom
operators is ever loaded, and weights that lie outside the file are refused.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from unrelu._types import ArrayLike, FloatArray
from unrelu.errors import InvalidInput, MissingExtra
from unrelu.oracles.base import Adapter, Meter

__all__ = ["OnnxOracle"]

_DTYPES = {
    "tensor(double)": np.float64,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
}
_SCORE_WORDS = ("prob", "score", "logit")


class OnnxOracle(Adapter):
    """A model in an ONNX file.

    Parameters
    ----------
    path
        The file; onnxruntime checks it.
    output
        Name of the output to read; by default the one whose name speaks of
        probabilities, scores or logits, or else the last of floating type.
    row_shape
        Shape of one input row; needed only where the file leaves it open.
    """

    def __init__(
        self,
        path: str,
        *,
        output: str | None = None,
        input_dim: int | None = None,
        row_shape: tuple[int, ...] | None = None,
        meter: Meter | None = None,
    ) -> None:
        content, session = _open(path)
        inputs = session.get_inputs()
        if len(inputs) != 1:
            raise InvalidInput(f"{path} takes {len(inputs)} inputs; only models of one are asked")
        self._input = inputs[0].name
        if inputs[0].type not in _DTYPES:
            raise InvalidInput(f"{path} takes {inputs[0].type}, not floating-point numbers")
        self._dtype = _DTYPES[inputs[0].type]
        shape = _row_shape(path, inputs[0].shape, input_dim, row_shape)
        self._one_by_one = bool(inputs[0].shape) and inputs[0].shape[0] == 1
        self._output = _choose_output(path, session.get_outputs(), output)
        digest = hashlib.blake2b(content, digest_size=12).hexdigest()
        super().__init__(
            input_dim=math.prod(shape), identity=f"onnx:{digest}:{self._output}", meter=meter
        )
        self.row_shape = shape if len(shape) > 1 else None
        self._shape = shape
        self._session = session

    def _ask(self, points: FloatArray) -> ArrayLike:
        rows = points.astype(self._dtype).reshape(-1, *self._shape)
        if self._one_by_one and len(rows) > 1:  # a batch axis fixed to one row
            return np.concatenate([self._run(row[None]) for row in rows])
        return self._run(rows)

    def _run(self, rows: Any) -> FloatArray:
        answer = self._session.run([self._output], {self._input: rows})[0]
        if isinstance(answer, list):  # a sequence of {class: probability}
            answer = [list(row.values()) for row in answer]
        return np.asarray(answer, dtype=np.float64).reshape(len(rows), -1)


def _open(path: str) -> tuple[bytes, Any]:
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx", "asking an ONNX model") from error
    if not Path(path).is_file():
        raise InvalidInput(f"there is no file {path}")
    content = Path(path).read_bytes()
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:
        raise InvalidInput(f"{path} is not a readable ONNX file: {_brief(error)}") from error
    external = _external_data(model.graph) or next(
        filter(None, (_external_data(function) for function in model.functions)), ""
    )
    if external:
        raise InvalidInput(
            f"{path} keeps weights in other files ({external!r}); only self-contained ONNX "
            "files are opened. Save it with its weights inside"
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors come as exceptions
    options.intra_op_num_threads = 1  # the same bits whatever else runs
    try:
        session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise InvalidInput(f"onnxruntime cannot run {path}: {_brief(error)}") from error
    return content, session


def _external_data(graph: Any) -> str:
    """Return the location of the first tensor outside the file, or an empty string."""
    tensors = list(getattr(graph, "initializer", ()))
    for sparse in getattr(graph, "sparse_initializer", ()):
        tensors += [sparse.values, sparse.indices]
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t, *attribute.tensors]
            for inner in (attribute.g, *attribute.graphs):
                found = _external_data(inner) if inner.ByteSize() else ""
                if found:
                    return found
    for tensor in tensors:
        if tensor.data_location == 1 or len(tensor.external_data):  # TensorProto.EXTERNAL
            entries = {entry.key: entry.value for entry in tensor.external_data}
            return str(entries.get("location", "unnamed"))
    return ""


def _brief(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def _row_shape(
    path: str, declared: list[Any], input_dim: int | None, given: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the shape of one row: declared in the file, completed by the caller."""
    tail = list(declared[1:])
    if given is not None:
        if tail and (
            len(tail) != len(given)
            or any(isinstance(a, int) and a != b for a, b in zip(tail, given, strict=True))
        ):
            raise InvalidInput(f"{path} takes rows of shape {tuple(tail)}, not {given}")
        return given
    if tail and all(isinstance(size, int) and size > 0 for size in tail):
        return tuple(tail)
    if input_dim is not None and len(tail) <= 1:
        return (input_dim,)
    raise InvalidInput(
        f"{path} does not fix the shape of its input ({declared}): pass row_shape (--shape)"
    )


def _choose_output(path: str, outputs: list[Any], wanted: str | None) -> str:
    names = [output.name for output in outputs]
    if wanted is not None:
        if wanted not in names:
            raise InvalidInput(f"{path} has no output {wanted!r}; it has: {', '.join(names)}")
        return wanted
    usable = [o.name for o in outputs if o.type in _DTYPES or o.type.startswith("seq(map(")]
    if not usable:
        usable = names  # labels only
    telling = [name for name in usable if any(word in name.lower() for word in _SCORE_WORDS)]
    return str((telling or usable)[-1])
