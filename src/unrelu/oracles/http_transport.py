"""One request over HTTP, and the pace at which requests may leave.

Everything here protects either the target (rate, Retry-After) or the caller
(TLS, redirects, size and time limits, secrets that stay out of every text).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import email.utils
import math
import os
import re
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from unrelu._numbers import real_number
from unrelu.errors import InvalidInput, MissingExtra, OracleError
from unrelu.ledger import redact

__all__ = ["Connection", "Lost", "NotSent", "Pacer", "Response", "Stopped", "retry_after"]

MAX_RESPONSE_BYTES = 1 << 30
_REDIRECTS = {301, 302, 303, 307, 308}
_SHOWN = 300
"""Characters of a server's text that are shown at most."""


class Lost(Exception):
    """The request left, and no complete answer came back."""


class NotSent(Exception):
    """No connection was made; nothing left."""


class Stopped(Exception):
    """Another part of the same batch failed; this one gives up waiting."""


class Pacer:
    """Says when rows may leave, for all threads of one oracle.

    Rows leave only after the time that their number takes at the given rate
    has passed since the rows before them left. So at any moment the rows sent
    since the start, retries included, are at most rate times the time.
    """

    def __init__(self, rows_per_second: float | None) -> None:
        if rows_per_second is not None:
            rows_per_second = real_number(rows_per_second, "the rate", above=0.0)
        self.rows_per_second = rows_per_second
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._held_until = 0.0

    def wait(self, rows: int, stop: threading.Event) -> None:
        """Sleep until ``rows`` may leave; raises :class:`Stopped` when told to stop."""
        with self._lock:
            earliest = self._last
            if self.rows_per_second is not None:
                earliest += rows / self.rows_per_second
            leave = max(time.monotonic(), earliest, self._held_until)
            self._last = leave
        # A server asked for a pause: more than once, while this one slept.
        while (delay := max(leave, self._held_until) - time.monotonic()) > 0:
            if stop.wait(delay):
                raise Stopped
        if stop.is_set():
            raise Stopped

    def hold(self, seconds: float) -> None:
        """Let nothing leave for ``seconds``: the server asked for a pause."""
        with self._lock:
            self._held_until = max(self._held_until, time.monotonic() + seconds)


@dataclasses.dataclass(frozen=True)
class Response:
    """A response that was received whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a Retry-After header asks for, or None."""
    text = headers.get("Retry-After")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        return None if math.isnan(seconds) else max(0.0, seconds)
    try:
        date = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=datetime.UTC)
    return max(0.0, (date - datetime.datetime.now(datetime.UTC)).total_seconds())


def secret_headers(variables: Mapping[str, str], token_variable: str | None) -> dict[str, str]:
    """Read header values from the environment, by the names of the variables."""
    wanted = {header: (variable, "") for header, variable in variables.items()}
    if token_variable is not None:
        wanted["Authorization"] = (token_variable, "Bearer ")
    found = {}
    for header, (variable, prefix) in wanted.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", header):
            raise InvalidInput(f"{header!r} cannot be the name of a header")
        value = os.environ.get(variable, "").strip()
        if not value:
            raise InvalidInput(
                f"the environment variable {variable} (for the header {header}) is not set"
            )
        if not (value.isascii() and value.isprintable()):
            raise InvalidInput(
                f"the value of {variable} cannot be a header: it is not printable ASCII"
            )
        found[header] = prefix + value
    return found


class Deadline:
    """Ends a request in time, however slowly the server sends: its headers, its body, its TLS.

    The client's own time limit is one for each read, and a server that sends a
    byte now and then never meets it. Here the limit of every read and write is
    what is left of the whole request's time, in the thread that makes it.
    """

    def __init__(self) -> None:
        self._end = threading.local()

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Let what this thread reads and writes inside take no longer than that in all."""
        self._end.time = time.monotonic() + seconds
        try:
            yield
        finally:
            del self._end.time

    def left(self) -> float:
        """Return the seconds that remain to this thread's request."""
        end: float = getattr(self._end, "time", math.inf)
        return end - time.monotonic()

    def watch(self, client: Any) -> None:
        """Put this deadline under every connection of the client, those to proxies included."""
        for transport in (client._transport, *client._mounts.values()):
            if transport is not None:
                pool = transport._pool
                pool._network_backend = _Backend(pool._network_backend, self)

    def limit(self, timeout: float | None, late: type[Exception]) -> float:
        """Return the time limit for one read or write; raise ``late`` if there is none left."""
        left = self.left()
        if left <= 0:
            raise late("the time for the whole request is over")
        return left if timeout is None else min(timeout, left)


class _Backend:
    """Makes connections that know the deadline; the rest is the client's own."""

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **more: Any) -> Any:
        import httpcore2

        limit = self._deadline.limit(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, timeout=limit, **more), self._deadline)


class _Stream:
    """A connection whose reads and writes know the deadline."""

    _BLOCK = 1 << 16  # bytes that are written before the time is looked at again

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        import httpcore2

        limit = self._deadline.limit(timeout, httpcore2.ReadTimeout)
        data: bytes = self._inner.read(max_bytes, timeout=limit)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        import httpcore2

        for start in range(0, len(buffer), self._BLOCK):
            limit = self._deadline.limit(timeout, httpcore2.WriteTimeout)
            self._inner.write(buffer[start : start + self._BLOCK], timeout=limit)

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        import httpcore2

        limit = self._deadline.limit(timeout, httpcore2.ConnectTimeout)
        # A handshake reads many times; at its end the socket is shut, and it fails.
        raw = self._inner.get_extra_info("socket")
        alarm = threading.Timer(limit, _shut, [raw])
        alarm.daemon = True
        alarm.start()
        try:
            secured = self._inner.start_tls(ssl_context, server_hostname, timeout=limit)
        finally:
            alarm.cancel()
        return _Stream(secured, self._deadline)


def _shut(raw: Any) -> None:
    with contextlib.suppress(OSError):
        raw.shutdown(socket.SHUT_RDWR)


class Connection:
    """A client for one origin (scheme, host and port), safe to share by threads."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str], timeout: float, connections: int
    ) -> None:
        try:
            import httpx2
        except ImportError as error:
            raise MissingExtra("httpx2", "http", "asking a model over HTTP") from error
        self._httpx = httpx2
        self.origin = _origin(url)
        self.timeout = real_number(timeout, "timeout", above=0.0)
        self._secrets = [v.removeprefix("Bearer ") for v in headers.values()]
        try:
            self._client = httpx2.Client(
                headers=dict(headers),
                timeout=self.timeout,
                follow_redirects=False,
                limits=httpx2.Limits(
                    max_connections=connections, max_keepalive_connections=connections
                ),
            )
        except Exception as error:  # what the environment says of proxies and certificates
            raise OracleError(
                f"no client for HTTP can be set up here: {type(error).__name__}: "
                f"{self.scrub(str(error))}"
            ) from None
        self._deadline = Deadline()
        self._deadline.watch(self._client)
        self._finalizer = weakref.finalize(self, self._client.close)

    def close(self) -> None:
        """Close all connections."""
        self._finalizer()

    def scrub(self, text: str, limit: int = _SHOWN) -> str:
        """Return text of the server fit to be shown: short, one line, no secret of ours."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= limit else line[:limit] + "..."

    def request(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send once; raise :class:`Lost`, :class:`NotSent` or :class:`OracleError`."""
        httpx = self._httpx
        try:
            with (
                self._deadline.within(self.timeout),
                self._client.stream(
                    method, url, content=body or None, headers=dict(headers or {})
                ) as response,
            ):
                blocks, size = [], 0
                for block in response.iter_bytes():
                    blocks.append(block)
                    size += len(block)
                    if size > MAX_RESPONSE_BYTES:
                        raise OracleError(f"{redact(url)} sends more than 1 GiB; it was cut off")
                    if self._deadline.left() <= 0:
                        raise Lost(f"no complete answer within {self.timeout:g} s")
                return Response(response.status_code, response.headers, b"".join(blocks))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            if _is_certificate_error(error):
                raise OracleError(
                    f"the TLS certificate of {redact(url)} cannot be verified; nothing was sent"
                ) from None
            why = re.sub(r"^\[Errno -?\d+\] ", "", self.scrub(str(error)))
            raise NotSent(f"no connection ({why or 'timeout'})") from None
        except httpx.TimeoutException:
            raise Lost(f"no answer within {self.timeout:g} s") from None
        except httpx.TransportError as error:
            raise Lost(f"connection lost ({type(error).__name__})") from None
        except (httpx.DecodingError, httpx.InvalidURL, httpx.StreamError) as error:
            raise OracleError(f"{redact(url)}: {type(error).__name__}") from None

    def redirected(self, url: str, response: Response) -> str | None:
        """Return where a redirect leads on the same origin; None if it is none."""
        if response.status not in _REDIRECTS or "Location" not in response.headers:
            return None
        new = urljoin(url, response.headers["Location"])
        if _origin(new) != self.origin:
            raise OracleError(
                f"{redact(url)} redirects to another host ({self.scrub(redact(new), 100)}); "
                "that is refused, and nothing was sent there. Use that address if you mean it"
            )
        if response.status not in {307, 308}:
            raise OracleError(
                f"{redact(url)} moved to {self.scrub(redact(new), 200)}; use that address"
            )
        return new


def _origin(url: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"not an address: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidInput("an address starts with http:// or https:// and names a host")
    return parts.scheme, parts.hostname, port or {"http": 80, "https": 443}[parts.scheme]


def _is_certificate_error(error: BaseException | None) -> bool:
    seen: Any = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
