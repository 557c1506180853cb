"""How a prediction API is asked: protocol, credentials, pace and patience."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

from unrelu._numbers import real_number, whole_number
from unrelu.errors import InvalidInput
from unrelu.oracles.wire.services import SERVICES

__all__ = ["PROTOCOLS", "HTTPOptions", "parse_rate"]

PROTOCOLS = ("auto", "v2", "v2-binary", *SERVICES, "json")


@dataclasses.dataclass(frozen=True)
class HTTPOptions:
    """How a prediction API is asked.

    Attributes
    ----------
    protocol
        ``"v2"`` (KServe, Triton, MLServer), ``"v2-binary"``, ``"tfserving"`` (and KServe
        v1), ``"torchserve"``, ``"sagemaker"``, ``"mlflow"``, ``"huggingface"``, ``"json"``,
        or ``"auto"``: by the address, v2 in binary where the server says so; an address that
        is none of these is asked in the usual ways until it answers.
    request, answer
        For ``"json"``: template and path, see
        :class:`~unrelu.oracles.wire.mapping.JsonMapping`.
    token_variable
        Name of the environment variable that holds a bearer token.
    header_variables
        Header name to environment variable.
    datatype
        ``FP64``, ``FP32`` or ``FP16``, where the server does not say (v2).
    concurrency
        Requests in flight at a time, at most.
    rate
        Rows a second, at most, retries included.
    timeout
        Seconds for one request, until its answer is complete.
    retries
        Times a request is sent again after 408, 425, 429, 5xx or a lost
        connection, with exponential back-off.
    patience
        Seconds of a Retry-After that are waited for, at most.
    """

    protocol: str = "auto"
    request: str | None = None
    answer: str | None = None
    token_variable: str | None = None
    header_variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    datatype: str | None = None
    concurrency: int = 4
    rate: float | None = None
    timeout: float = 60.0
    retries: int = 8
    patience: float = 300.0
    backoff: float = 0.1
    """Seconds before the first retry; doubles each time, with jitter."""
    backoff_limit: float = 10.0

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InvalidInput(f"the protocol {self.protocol!r} is none of {', '.join(PROTOCOLS)}")
        whole_number(self.concurrency, "concurrency", least=1)
        whole_number(self.retries, "retries")
        if self.rate is not None:
            real_number(self.rate, "the rate", above=0.0)
        real_number(self.timeout, "timeout", above=0.0)
        for name in ("patience", "backoff", "backoff_limit"):
            real_number(getattr(self, name), name, least=0.0)
        if (self.request is None) != (self.answer is None):
            raise InvalidInput(
                "a JSON mapping needs both a request (--request) and the path to its answers "
                "(--answer)"
            )


def parse_rate(text: str) -> float:
    """Read ``50/s``, ``1000/min`` or ``5000/h`` as rows a second."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*/\s*(s|sec|m|min|h|hour)\s*", text)
    if match is None or not 0 < float(match[1]) < math.inf:
        raise InvalidInput(f"a rate is rows per time, such as 50/s, 1000/min or 5000/h: {text!r}")
    return float(match[1]) / {"s": 1.0, "m": 60.0, "h": 3600.0}[match[2][0]]
