"""Which protocol an address speaks, and what a row looks like there."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from unrelu.errors import InvalidInput
from unrelu.ledger import redact
from unrelu.oracles.http_options import HTTPOptions
from unrelu.oracles.wire.columns import Columns
from unrelu.oracles.wire.kserve import KServeV2
from unrelu.oracles.wire.mapping import JsonMapping
from unrelu.oracles.wire.protocol import WireProtocol
from unrelu.oracles.wire.services import SERVICES, service

__all__ = ["Arranged", "arrange"]

Describe = Callable[[str], tuple[int, dict[str, Any]]]
"""Asks an address for its description: status and JSON object."""
Shape = tuple[int, ...]

_V2_PATH = re.compile(r"^(?P<base>.*/v2/models/[^/]+(?:/versions/[^/]+)?)(?:/infer)?/?$")
_V1_PATH = re.compile(
    r"^(?P<base>.*/v1/models/[^/:]+(?:/(?:versions|labels)/[^/:]+)?)(?::predict)?/?$"
)
_ADDRESSES = {
    "torchserve": re.compile(r"/predictions/[^/]+(?:/[^/]+)?/?$"),
    "sagemaker": re.compile(r"/endpoints/[^/]+/invocations/?$"),
    "mlflow": re.compile(r"/invocations/?$"),
}


@dataclasses.dataclass(frozen=True)
class Arranged:
    """How a model is asked.

    Attributes
    ----------
    url
        Where requests go.
    protocol
        None: a JSON API that no description names, to be tried in the usual ways.
    shape
        Shape of one row.
    """

    url: str
    protocol: WireProtocol | None
    shape: Shape


def arrange(
    url: str, options: HTTPOptions, given: Shape | None, output: str | None, describe: Describe
) -> Arranged:
    """Choose the protocol by name, or by the address.

    Parameters
    ----------
    given
        Shape of a row as the caller says; None: as the server says.
    output
        Name of the output to read.
    describe
        Asks an address for its description.
    """
    parts = urlsplit(url)
    kind = options.protocol
    if kind == "auto":
        kind = "json" if options.request is not None else _by_address(parts.path)
    if kind.startswith("v2"):
        return _v2(parts, kind, options, given, output, describe)
    if kind == "tfserving":
        return _tensorflow(parts, given, output, describe)
    if given is None:
        raise InvalidInput(
            "this API does not tell how many inputs it takes: pass input_dim (--input-dim) or "
            "the shape (--shape)"
        )
    if kind in SERVICES:
        return Arranged(url, service(kind, output), given)
    if kind == "plain":
        return Arranged(url, None, given)
    if options.request is None or options.answer is None:
        raise InvalidInput("a JSON API needs a request template and an answer path")
    return Arranged(url, JsonMapping(options.request, options.answer, Columns(output)), given)


def _by_address(path: str) -> str:
    if _V2_PATH.match(path):
        return "v2"
    if _V1_PATH.match(path):
        return "tfserving"
    return next((name for name, form in _ADDRESSES.items() if form.search(path)), "plain")


def _at(parts: SplitResult, path: str) -> str:
    return urlunsplit(parts._replace(path=path))


def _v2(
    parts: SplitResult,
    kind: str,
    options: HTTPOptions,
    given: Shape | None,
    output: str | None,
    describe: Describe,
) -> Arranged:
    """Read a KServe model's metadata: input name, type and shape."""
    matched = _V2_PATH.match(parts.path)
    base = matched["base"] if matched else parts.path.rstrip("/")
    model = _at(parts, base)
    status, facts = describe(model)
    inputs = facts.get("inputs")
    first = inputs[0] if isinstance(inputs, list) and inputs else {}
    if not isinstance(first, dict):
        first = {}
    if isinstance(inputs, list) and len(inputs) > 1:
        raise InvalidInput(f"{redact(model)} takes {len(inputs)} inputs; only one can be asked")
    shape = _row_shape(model, first.get("shape"), given, status)
    binary = kind == "v2-binary"
    if not binary and options.protocol == "auto":
        extensions = describe(model.split("/v2/models/")[0] + "/v2")[1].get("extensions")
        binary = isinstance(extensions, list) and "binary_tensor_data" in extensions
    protocol = KServeV2(
        input_name=str(first.get("name", "input-0")),
        output=output,
        datatype=options.datatype or str(first.get("datatype", "FP64")),
        binary=binary,
    )
    return Arranged(_at(parts, base + "/infer"), protocol, shape)


def _tensorflow(
    parts: SplitResult, given: Shape | None, output: str | None, describe: Describe
) -> Arranged:
    """Read a TensorFlow Serving model's signature: the shape of its one input."""
    matched = _V1_PATH.match(parts.path)
    if matched is None:  # a gateway's own address
        if given is None:
            raise InvalidInput(
                f"{redact(urlunsplit(parts))} does not tell how many inputs it takes: pass "
                "input_dim (--input-dim) or the shape (--shape)"
            )
        return Arranged(urlunsplit(parts), service("tfserving", output), given)
    model = _at(parts, matched["base"])
    status, facts = describe(model + "/metadata")
    inputs = _signature(facts)
    if len(inputs) > 1:
        raise InvalidInput(f"{redact(model)} takes {len(inputs)} inputs; only one can be asked")
    declared: Any = None
    for tensor in inputs.values():
        sizes = tensor.get("tensor_shape") if isinstance(tensor, dict) else None
        dimensions = sizes.get("dim") if isinstance(sizes, dict) else None
        if isinstance(dimensions, list):
            declared = [_size(d.get("size")) if isinstance(d, dict) else -1 for d in dimensions]
    shape = _row_shape(model, declared, given, status)
    return Arranged(model + ":predict", service("tfserving", output), shape)


def _signature(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a model's default signature, by name; empty where it does not tell."""
    place: Any = facts
    for key in ("metadata", "signature_def", "signature_def", "serving_default", "inputs"):
        place = place.get(key) if isinstance(place, dict) else None
    return place if isinstance(place, dict) else {}


def _size(text: Any) -> int:
    """Return a size that a server writes as text; -1 for any."""
    try:
        return int(text)
    except (TypeError, ValueError):
        return -1


def _row_shape(model: str, declared: Any, given: Shape | None, status: int) -> Shape:
    """Return the shape of a row, as the server declares it or as the caller says."""
    tail = declared[1:] if isinstance(declared, list) else []
    if tail and all(isinstance(size, int) and size > 0 for size in tail):
        if given is not None and math.prod(given) != math.prod(tail):
            raise InvalidInput(f"{redact(model)} takes rows of shape {tail}, not {given}")
        return tuple(tail)
    if given is None:
        raise InvalidInput(
            f"{redact(model)} does not tell how many inputs it takes (status {status}): check "
            "the address, or pass input_dim (--input-dim) or the shape (--shape)"
        )
    return given
