"""Options that every command with a TARGET shares, added by one decorator.

``takes_target`` extends a command's signature by the options below that the
command does not define itself; ``open_target`` reads what the user gave. What a
file says of a target fills in what the user did not give (:class:`_Call`).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from unrelu.cli._config import named_targets
from unrelu.errors import InvalidInput
from unrelu.oracles import HTTPOptions
from unrelu.oracles.http_options import PROTOCOLS, parse_rate

__all__ = ["as_described", "connect_options", "given_rate", "takes_target", "with_flags"]

TARGET_PANEL, ATTACK_PANEL, COST_PANEL, HTTP_PANEL, OUTPUT_PANEL = (
    "The target", "The attack", "Limits and cost", "Prediction APIs", "What comes out"
)  # fmt: skip


def _option(
    name: str, kind: Any, default: Any, text: str, *flags: str, **more: Any
) -> inspect.Parameter:
    """Declare one shared option."""
    option = typer.Option(*flags, help=text, **more)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


_target = functools.partial(_option, rich_help_panel=TARGET_PANEL)
_cost = functools.partial(_option, rich_help_panel=COST_PANEL)
_http = functools.partial(_option, rich_help_panel=HTTP_PANEL)
SHARED = (
    _target("shape", str | None, None, "Shape of one input, such as 28,28 or 1,3,32,32.",
            metavar="SIZES",
            show_default="as the target says, or flat"),
    _target("scale", str, "1", "Ask the target at SCALE times x: 255 for pixels, or one number a "
            "feature: 1,0.001,250.", metavar="SCALE"),
    _target("data", str | None, None, "Rows like those the model is meant for (.npy, .csv, "
            ".parquet): they tell where inputs lie and in which units.",
            show_default="found by asking", metavar="FILE"),
    _target("input_range", str | None, None, "What the target takes; nothing outside is sent.",
            "--range", show_default="no limits", metavar="LOW,HIGH"),
    _target("output_name", str | None, None, "Output to read, or method (scikit-learn).",
            show_default="the scores"),
    _target("name", str | None, None, "Name of the target in the ledger; change it when the "
            "model behind an address changes.", show_default="derived"),
    _cost("price", float | None, None, "Price of one query.", min=0.0, envvar="UNRELU_PRICE"),
    _cost("max_cost", float | None, None, "Spend at most this much, at --price.", min=0.0,
          envvar="UNRELU_MAX_COST", show_default="no limit"),
    _cost("store_points", bool, False, "Keep the points in the ledger too, for unrelu ledger "
          "export.", "--store-points"),
    _cost("batch", int, 4096, "Send at most this many queries in one request.", min=1),
    _http("protocol", str, "auto", f"One of {', '.join(PROTOCOLS)}.", metavar="NAME"),
    _http("request", str | None, None, "With {{x}} for the rows, {{row}} for a single one, or "
          "\"{{png}}\" for a single picture (base64).", metavar="JSON"),
    _http("answer", str | None, None, "Where the answers are, such as '$.outputs[0].scores'.",
          metavar="PATH"),
    _http("token_env", str | None, None, "Environment variable with a bearer token.",
          metavar="VARIABLE",
          envvar="UNRELU_TOKEN_ENV"),
    _http("header_env", list[str] | None, None, "A header's value from the environment.",
          metavar="HEADER=VARIABLE"),
    _http("datatype", str | None, None, "KServe: FP64, FP32 or FP16.",
          show_default="as the server says", metavar="TYPE"),
    _http("rate", str | None, None, "Send at most so many queries, retries too: 50/s, 1000/min.",
          metavar="RATE",
          envvar="UNRELU_RATE", show_default="no limit"),
    _http("concurrency", int, 4, "Keep at most this many requests in flight.", min=1),
    _http("timeout", float, 60.0, "Give one request at most this long.", metavar="SECONDS"),
    _http("retries", int, 8, "Send a failed request again so many times at most.", min=0),
)  # fmt: skip
"""The options of every command that opens a target."""


def takes_target(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command."""
    own = inspect.signature(command).parameters
    extra = [parameter for parameter in SHARED if parameter.name not in own]
    names = [parameter.name for parameter in extra]
    own_hints = get_type_hints(command, include_extras=True)
    mine = [
        parameter.replace(annotation=own_hints[key], kind=inspect.Parameter.KEYWORD_ONLY)
        for key, parameter in own.items()
    ]

    context_parameter = inspect.Parameter(
        "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
    )

    @functools.wraps(command)
    def wrapped(context: typer.Context, **values: Any) -> None:
        from unrelu.cli._common import friendly

        call = _Call(context, values, tuple(parameters), tuple(names))
        with friendly():
            described = named_targets().get(values.get("target") or "")
            if described is not None:
                call = call.described(values["target"], described)
        with call:
            command(**{key: value for key, value in call.values.items() if key not in names})

    parameters = [context_parameter, *mine, *extra]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


@dataclasses.dataclass(frozen=True)
class _Call:
    """A command as it was called: its options by name, and those that all commands share."""

    context: typer.Context
    values: dict[str, Any]
    parameters: tuple[inspect.Parameter, ...]
    shared: tuple[str, ...]

    def described(self, name: str, said: dict[str, Any]) -> _Call:
        """Fill in what a file says of a target; the command line and the environment go first."""
        kinds = {parameter.name: _kind(parameter.annotation) for parameter in self.parameters}
        known = _by_flag(self.context.find_root().command)
        filled = self.values | {"target": said["target"]}
        for flag, value in said.items():
            if flag == "target":
                continue
            if flag not in known:
                raise InvalidInput(
                    f"[targets.{name}]: there is no option --{flag.replace('_', '-')}"
                )
            key = known[flag]
            source = self.context.get_parameter_source(key)
            if key in kinds and (source is None or source.name == "DEFAULT"):
                filled[key] = _converted(kinds[key], value, f"[targets.{name}] {flag}")
        return dataclasses.replace(self, values=filled)

    def __enter__(self) -> None:
        _calls.set((*_calls.get(), self))

    def __exit__(self, *_: object) -> None:
        _calls.set(_calls.get()[:-1])


_calls: contextvars.ContextVar[tuple[_Call, ...]] = contextvars.ContextVar("calls", default=())
"""The commands that run, the innermost last."""


@contextlib.contextmanager
def as_described(name: str, said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run the block as though the command had been called for this target; yields its options."""
    call = _calls.get()[-1].described(name, said)
    with call:
        yield call.values


def with_flags(text: str) -> str:
    """Return a message of the library as the shell's user reads it: flags for arguments.

    Only names with an underscore are taken for arguments: others are words, too.
    """
    calls = _calls.get()
    if not calls:
        return text
    for flag, name in _by_flag(calls[-1].context.find_root().command).items():
        shown = f"--{flag.replace('_', '-')}"
        if "_" in name:
            text = re.sub(rf"(?<!--)\b{name}\b(?!=)(?: \({shown}\))?", shown, text)
    return text


def _by_flag(command: Any) -> dict[str, str]:
    """Return the options of all commands that take a target: flag to name, as a file writes it.

    A target is described for all commands, so an option of another one is no mistake.
    """
    found: dict[str, str] = {}
    if any(option.name == "target" for option in command.params):
        for option in command.params:
            flags = [flag for flag in option.opts if flag.startswith("--")]
            found |= {flag[2:].replace("-", "_"): option.name for flag in flags}
    for child in getattr(command, "commands", {}).values():
        found |= _by_flag(child)
    return found


def _kind(annotation: Any) -> Any:
    """Return the plain type of an option: str for ``Annotated[str | None, ...]``."""
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    plain = [part for part in get_args(kind) if part is not type(None)]
    return plain[0] if isinstance(kind, types.UnionType) and plain else kind


def _converted(kind: Any, value: Any, where: str) -> Any:
    """Return a value of the file as the command line would give it."""
    if get_origin(kind) is list:
        return value if isinstance(value, list) else [value]
    if kind is str and isinstance(value, list):
        return ",".join(map(str, value))
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where}: {value!r} is no {kind.__name__}") from error


def _given() -> dict[str, Any]:
    """Return the shared options of the command that runs; empty outside of one."""
    calls = _calls.get()
    return {key: calls[-1].values[key] for key in calls[-1].shared} if calls else {}


def given_rate() -> float | None:
    """Return the rows a second that the user allows; None without a limit."""
    text = _given().get("rate")
    return None if text is None else parse_rate(text)


def connect_options() -> dict[str, Any]:
    """Return what the user gave as keyword arguments of :func:`unrelu.connect`.

    ``store_points`` is the ledger's.
    """
    given = _given()
    if not given:
        return {}
    return {
        "shape": _numbers(given.get("shape"), int, "--shape", "sizes such as 28,28"),
        "scale": _scale(given.get("scale")),
        "data": given.get("data"),
        "input_range": _pair(given.get("input_range")),
        "output": given.get("output_name"),
        "name": given.get("name"),
        "price": given.get("price"),
        "max_cost": given.get("max_cost"),
        "batch_size": given.get("batch", 4096),
        "store_points": given.get("store_points", False),
        "http": HTTPOptions(
            protocol=given["protocol"],
            request=given["request"],
            answer=given["answer"],
            token_variable=given["token_env"],
            header_variables=_headers(given["header_env"] or []),
            datatype=given["datatype"],
            rate=given_rate(),
            concurrency=given["concurrency"],
            timeout=given["timeout"],
            retries=given["retries"],
        ),
    }


def _numbers(text: str | None, kind: type, option: str, what: str) -> tuple[Any, ...] | None:
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInput(f"{option} takes {what}, got {text!r}") from error


def _scale(text: str | None) -> float | tuple[float, ...]:
    numbers = _numbers(text, float, "--scale", "a number such as 255, or one a feature") or (1.0,)
    return numbers[0] if len(numbers) == 1 else numbers


def _pair(text: str | None) -> tuple[float, float] | None:
    numbers = _numbers(text, float, "--range", "LOW,HIGH such as 0,1")
    if numbers is not None and len(numbers) != 2:
        raise InvalidInput(f"--range takes LOW,HIGH such as 0,1, got {text!r}")
    return numbers


def _headers(pairs: list[str]) -> dict[str, str]:
    headers = {}
    for pair in pairs:
        header, equals, variable = pair.partition("=")
        if not (header and equals and variable.isidentifier()):
            raise InvalidInput(
                "--header-env takes HEADER=VARIABLE, the name of an environment variable, not its "
                f"value (header {header!r})"
            )
        headers[header] = variable
    return headers
