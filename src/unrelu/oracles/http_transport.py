"""One request over HTTP, and the pace at which requests may leave.

Everything here protects either the target (rate, Retry-After) or the caller
(TLS, redirects, size and time limits, secrets that stay out of every text).
"""

from __future__ import annotations

import dataclasses
import datetime
import email.utils
import os
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from unrelu.errors import InvalidInput, MissingExtra, OracleError
from unrelu.ledger import redact

__all__ = ["Connection", "Lost", "NotSent", "Pacer", "Response", "Stopped", "retry_after"]

MAX_RESPONSE_BYTES = 1 << 30
_REDIRECTS = {301, 302, 303, 307, 308}
_MAX_REDIRECTS = 5


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
        if rows_per_second is not None and not rows_per_second > 0:
            raise InvalidInput(f"the rate must be positive, got {rows_per_second}")
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
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
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


class Connection:
    """A client for one origin (scheme, host and port), safe to share by threads."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str], timeout: float, connections: int
    ) -> None:
        try:
            import httpx2
        except ImportError as error:
            raise MissingExtra("httpx2", "http", "asking a model over HTTP") from error
        if not timeout > 0:
            raise InvalidInput(f"timeout must be positive, got {timeout}")
        self._httpx = httpx2
        self.origin = _origin(url)
        self.timeout = timeout
        self._secrets = [v.removeprefix("Bearer ") for v in headers.values()]
        self._client = httpx2.Client(
            headers=dict(headers),
            timeout=timeout,
            follow_redirects=False,
            limits=httpx2.Limits(
                max_connections=connections, max_keepalive_connections=connections
            ),
        )
        self._finalizer = weakref.finalize(self, self._client.close)

    def close(self) -> None:
        """Close all connections."""
        self._finalizer()

    def scrub(self, text: str, limit: int = 300) -> str:
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
        deadline = time.monotonic() + self.timeout
        try:
            with self._client.stream(
                method, url, content=body or None, headers=dict(headers or {})
            ) as response:
                blocks, size = [], 0
                for block in response.iter_bytes():
                    blocks.append(block)
                    size += len(block)
                    if size > MAX_RESPONSE_BYTES:
                        raise OracleError(f"{redact(url)} sends more than 1 GiB; it was cut off")
                    if time.monotonic() > deadline:
                        raise Lost(f"no complete answer within {self.timeout:g} s")
                return Response(response.status_code, response.headers, b"".join(blocks))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            if _is_certificate_error(error):
                raise OracleError(
                    f"the TLS certificate of {redact(url)} cannot be verified; nothing was sent"
                ) from None
            raise NotSent(f"no connection ({self.scrub(str(error)) or 'timeout'})") from None
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
