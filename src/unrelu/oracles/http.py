"""Adapter for prediction APIs over HTTP.

Each attempt to send rows is paced, charged to the meter, and only then made;
rows of a connection that was never made are refunded. Every answer is handed
over (to the ledger, where there is one) as soon as its response is complete,
whatever becomes of other requests. Credentials come from the environment and
stay in the request's headers.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import logging
import math
import random
import re
import threading
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from unrelu._numbers import whole_number
from unrelu._types import ArrayLike, FloatArray, IntArray
from unrelu.errors import InvalidAnswer, InvalidInput, OracleError, UnreluError
from unrelu.ledger import redact
from unrelu.oracles.arriving import Arriving
from unrelu.oracles.base import DEFAULT_BATCH, Adapter, Deliver, Meter
from unrelu.oracles.http_arrange import arrange
from unrelu.oracles.http_options import HTTPOptions, parse_rate
from unrelu.oracles.http_transport import (
    Connection,
    Lost,
    NotSent,
    Pacer,
    Response,
    Stopped,
    retry_after,
    secret_headers,
)
from unrelu.oracles.wire.columns import Columns
from unrelu.oracles.wire.protocol import WireProtocol
from unrelu.oracles.wire.services import PLAIN_FORMS, JsonService

__all__ = ["HTTPOptions", "HTTPOracle", "parse_rate"]

_log = logging.getLogger("unrelu")
NAN_RETRIES = 3  # a server may answer NaN while a model warms up; more is its answer
_MAX_REDIRECTS = 5
_RETRIED = {408, 425, 429, 500, 502, 503, 504}


class HTTPOracle(Adapter):
    """A model behind a prediction API.

    Parameters
    ----------
    url
        ``http://HOST/v2/models/NAME`` (KServe), ``http://HOST/v1/models/NAME``
        (TensorFlow Serving), ``http://HOST/invocations`` (MLflow) and so on, or
        the address of any JSON API. No user or password in it.
    input_dim, row_shape, output
        As far as the server does not tell.
    rows_per_request
        Rows in one request, at most.
    """

    def __init__(
        self,
        url: str,
        *,
        options: HTTPOptions | None = None,
        input_dim: int | None = None,
        row_shape: tuple[int, ...] | None = None,
        output: str | None = None,
        rows_per_request: int = DEFAULT_BATCH,
        meter: Meter | None = None,
    ) -> None:
        self.options = HTTPOptions() if options is None else options
        if "@" in urlsplit(url).netloc:
            raise InvalidInput(
                "an address must not hold a user or password: put the token into an environment "
                "variable and name it (--token-env NAME)"
            )
        self._connection = Connection(
            url,
            headers=secret_headers(self.options.header_variables, self.options.token_variable),
            timeout=self.options.timeout,
            connections=self.options.concurrency,
        )
        self._pacer = Pacer(self.options.rate)
        self._url, self._status = url, 0  # the status is that of the last description asked for
        given = row_shape or (None if input_dim is None else (input_dim,))
        arranged = arrange(url, self.options, given, output, self._describe)
        self._url, shape, self._output = arranged.url, arranged.shape, output
        super().__init__(
            input_dim=math.prod(shape),
            identity=_identity(self._url, arranged.protocol),
            meter=meter,
        )
        self.row_shape = shape if len(shape) > 1 else None
        self._shape = shape
        self._protocol = arranged.protocol or self._find_form()
        rows_per_request = whole_number(rows_per_request, "rows_per_request", least=1)
        limits = [rows_per_request, self._protocol.rows_per_request or rows_per_request]
        if self.options.rate is not None:  # no more at once than a second allows
            limits.append(max(1, int(self.options.rate)))
        self.rows_per_request = min(limits)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    @property
    def address(self) -> str:
        """Where requests go, without what may be secret in it."""
        return redact(self._url)

    @property
    def protocol(self) -> WireProtocol:
        """How rows are sent and answers read."""
        return self._protocol

    def request_for(self, points: FloatArray) -> bytes:
        """Return the body of a request for ``points`` ``(n, d)``; nothing is sent."""
        return self._protocol.encode(points.reshape(-1, *self._shape))[0]

    # ------------------------------------------------------------------ begin

    def _describe(self, url: str) -> tuple[int, dict[str, Any]]:
        """Ask for a description; returns the status and the JSON object, or an empty one."""
        facts = self._get_json(url)
        return self._status, facts or {}

    def _find_form(self) -> JsonService:
        """Ask an API that no one described in the usual ways until it answers."""
        points, refusals = np.zeros((2, math.prod(self._shape))), []
        for field in PLAIN_FORMS:
            form = JsonService("json", field=field, columns=Columns(self._output))
            shown = "the rows alone" if field is None else f'{{"{field}": rows}}'
            body, headers = form.encode(points.reshape(-1, *self._shape))
            response = self._send_as(body, headers, len(points))
            if response.status in {401, 403, 404}:
                raise OracleError(self._refusal(response))
            try:
                if response.status == 200:
                    form.decode(response.body, response.headers, len(points))
                    return form
                refusals.append(f"{shown}: status {response.status}")
            except UnreluError as error:
                refusals.append(f"{shown}: {self._connection.scrub(str(error))}")
        raise InvalidInput(
            f"don't know how to ask {redact(self._url)}. Tried {'; '.join(refusals)}. Describe "
            "the API with --request '{\"inputs\": {{x}}}' --answer '$.outputs', or name its "
            "--protocol"
        )

    def _send_as(self, body: bytes, headers: dict[str, str], rows: int) -> Response:
        """Send a form that is only tried, and again where the connection was lost.

        A server that breaks off over a form that it did not expect closes the connection, which
        the next form then finds closed.
        """
        stop = threading.Event()
        for attempt in range(self.options.retries + 1):
            self._pacer.wait(rows, stop)
            self.meter.charge(rows)
            try:
                return self._connection.request("POST", self._url, body, headers)
            except Lost as error:
                reason = str(error)
            except NotSent as error:
                self.meter.refund(rows)
                reason = str(error)
                break
            stop.wait(self._backoff(attempt, reason))
        raise OracleError(f"{redact(self._url)} cannot be reached: {reason}")

    def _get_json(self, url: str) -> dict[str, Any] | None:
        """Read a description; None where the server has none. Not a query."""
        stop = threading.Event()
        reason = ""
        for attempt in range(self.options.retries + 1):
            try:
                response = self._connection.request("GET", url)
            except (Lost, NotSent) as error:
                reason = str(error)
            else:
                if response.status not in _RETRIED:
                    break
                reason = f"status {response.status}"
            stop.wait(self._backoff(attempt, reason))
        else:
            raise OracleError(f"{redact(url)} cannot be reached: {reason}")
        self._connection.redirected(url, response)
        self._status = response.status
        if response.status in {401, 403}:
            raise OracleError(self._refusal(response))
        try:
            facts = json.loads(response.body) if response.status == 200 else None
        except (ValueError, RecursionError):
            return None
        return facts if isinstance(facts, dict) else None

    # ------------------------------------------------------------------- ask

    def _ask(self, points: FloatArray) -> ArrayLike:
        raise NotImplementedError  # pragma: no cover - rows are charged per request

    def _answer(self, points: FloatArray, repeat: int) -> FloatArray:
        del repeat
        return self.answer_parts(points, lambda rows, answers: answers)

    def answer_parts(self, points: FloatArray, deliver: Deliver) -> FloatArray:
        """Answer points in several requests, delivering each one's answers on arrival."""
        size = self.rows_per_request
        n = len(points)
        chunks = [np.arange(i, min(i + size, n), dtype=np.intp) for i in range(0, n, size)]
        found = Arriving(n, deliver)
        stop = threading.Event()
        try:
            if len(chunks) == 1:
                self._answer_chunk(points, chunks[0], found, stop)
            else:
                self._side_by_side(points, chunks, found, stop)
        except OracleError as error:
            error.answers = found.prefix()
            raise
        return found.all()

    def _side_by_side(
        self, points: FloatArray, chunks: list[IntArray], found: Arriving, stop: threading.Event
    ) -> None:
        workers = min(self.options.concurrency, len(chunks))
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            futures = [
                pool.submit(self._answer_chunk, points, rows, found, stop) for rows in chunks
            ]
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()
            except BaseException as error:
                # What is in flight may still arrive and is kept; nothing new leaves.
                stop.set()
                for future in futures:
                    future.cancel()
                if not isinstance(error, Stopped):
                    raise
                raise OracleError("stopped") from None  # pragma: no cover - set only above

    def _answer_chunk(
        self, points: FloatArray, rows: IntArray, found: Arriving, stop: threading.Event
    ) -> None:
        """Answer some rows: halves where the server finds them too many, NaN asked again."""
        waiting = [(rows, 0)]
        while waiting:
            part, nan_tries = waiting.pop(0)
            response = self._send(points[part], stop)
            if response.status == 413 and len(part) > 1:
                self.rows_per_request = min(self.rows_per_request, math.ceil(len(part) / 2))
                halves = np.array_split(part, math.ceil(len(part) / self.rows_per_request))
                waiting[:0] = [(half, nan_tries) for half in halves]
                continue
            answers = self._decode(response, len(part))
            whole = np.isfinite(answers).all(axis=1)
            if whole.any():
                found.add(part[whole], answers[whole])
            if not whole.all():
                if nan_tries == NAN_RETRIES:
                    row = int(np.flatnonzero(~whole)[0])
                    raise InvalidAnswer(
                        f"the target answered {answers[row].tolist()!r} to the same point "
                        f"{NAN_RETRIES + 1} times: NaN and infinity are not answers"
                    )
                waiting.insert(0, (part[~whole], nan_tries + 1))

    def _decode(self, response: Response, rows: int) -> FloatArray:
        if response.status != 200:
            raise OracleError(self._refusal(response))
        try:
            answers = self._protocol.decode(response.body, response.headers, rows)
        except UnreluError as error:
            raise InvalidAnswer(self._connection.scrub(str(error))) from None
        except Exception as error:
            raise InvalidAnswer(
                f"the server's answer cannot be read: {type(error).__name__}"
            ) from None
        width = self._output_dim
        if answers.shape[1] == 0 or (width is not None and answers.shape[1] != width):
            raise InvalidAnswer(
                f"the server's answer has shape {answers.shape}, expected ({rows}, {width or 'm'})"
            )
        return answers

    def _send(self, points: FloatArray, stop: threading.Event) -> Response:
        """Send rows until a response comes that more tries would not change."""
        body, headers = self._protocol.encode(points.reshape(-1, *self._shape))
        rows = len(points)
        attempt = redirects = 0
        while True:
            self._pacer.wait(rows, stop)
            self.meter.charge(rows)
            pause = None
            try:
                response = self._connection.request("POST", self._url, body, headers)
            except NotSent as error:
                self.meter.refund(rows)
                reason = str(error)
            except Lost as error:
                reason = str(error)
            else:
                moved = self._connection.redirected(self._url, response)
                if moved is not None and redirects < _MAX_REDIRECTS:
                    self._url, redirects = moved, redirects + 1
                    continue
                if response.status not in _RETRIED:
                    return response
                reason = self._refusal(response)
                pause = retry_after(response.headers)
            if attempt == self.options.retries:
                raise OracleError(
                    f"{redact(self._url)} failed {attempt + 1} times; the last time: {reason}"
                )
            if pause is not None:
                if pause > self.options.patience:
                    raise OracleError(
                        f"the server asks to wait {pause:.0f} s (Retry-After), longer than the "
                        f"{self.options.patience:.0f} s allowed; run the same command again later"
                    )
                self._pacer.hold(pause)
            if stop.wait(max(pause or 0.0, self._backoff(attempt, reason))):
                raise Stopped
            attempt += 1

    def _backoff(self, attempt: int, reason: str) -> float:
        """Return the seconds before the next try; jitter keeps clients apart.

        The first one is common and goes untold.
        """
        longest = min(self.options.backoff * 2.0**attempt, self.options.backoff_limit)
        if 0 < attempt < self.options.retries:
            _log.warning(
                "%s; again within %.1f s (%d of %d times)", reason, longest, attempt + 1,
                self.options.retries,
            )  # fmt: skip
        return longest * random.uniform(0.5, 1.0)

    def _refusal(self, response: Response) -> str:
        text = _brief(self._connection.scrub(response.body[:4000].decode(errors="replace")))
        hint = ""
        if response.status in {401, 403}:
            hint = "; put a token into an environment variable and name it (--token-env NAME)"
        return f"{redact(self._url)} answered status {response.status}: {text}{hint}"


def _brief(text: str) -> str:
    """Return the words of an error page, shortened to what a person reads."""
    if text.lstrip().startswith("<"):
        text = re.sub(r"(?is)<(style|script|head)\b.*?</\1>|<[^>]*>?", " ", text)
    words = " ".join(text.split())
    return words if len(words) <= 300 else words[:297] + "..."


def _identity(url: str, protocol: WireProtocol | None) -> str:
    """Name the target without what the query part of its address may hold."""
    query = urlsplit(url).query
    digest = hashlib.blake2b(query.encode(), digest_size=8).hexdigest()
    way = "json" if protocol is None else protocol.identity
    return f"{redact(url)}|{way}" + (f"|query:{digest}" if query else "")
