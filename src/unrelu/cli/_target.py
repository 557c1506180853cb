"""Options that every command with a TARGET shares, added by one decorator.

``takes_target`` extends a command's signature by the options below that the
command does not define itself; ``open_target`` reads what the user gave.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import click
import typer
from click.core import ParameterSource

from unrelu.cli._config import named_targets
from unrelu.errors import InvalidInput
from unrelu.oracles import HTTPOptions
from unrelu.oracles.http_options import PROTOCOLS, parse_rate

__all__ = ["connect_options", "given_option", "takes_target"]

TARGET_PANEL, COST_PANEL, HTTP_PANEL, OUTPUT_PANEL = (
    "The target", "Limits and cost", "Prediction APIs", "What comes out"
)  # fmt: skip

_given: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar(
    "given", default=None
)


def _shared(
    shape: Annotated[
        str | None,
        typer.Option(help="Shape of one input, such as 28,28 or 1,3,32,32.",
                     show_default="as the target says, or flat", rich_help_panel=TARGET_PANEL),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(help="Ask the target at SCALE times x: 255 for pixels, or one number a "
                     "feature: 1,0.001,250.", rich_help_panel=TARGET_PANEL),
    ] = "1",
    data: Annotated[
        str | None,
        typer.Option(help="Rows like those the model is meant for (.npy, .csv, .parquet): they "
                     "tell where inputs lie and in which units.", show_default="found by asking", rich_help_panel=TARGET_PANEL),
    ] = None,
    input_range: Annotated[
        str | None,
        typer.Option("--range", help="LOW,HIGH of what the target takes; nothing outside is "
                     "sent.", show_default="no limits", rich_help_panel=TARGET_PANEL),
    ] = None,
    output_name: Annotated[
        str | None,
        typer.Option(help="Output to read (ONNX, KServe) or method (scikit-learn).",
                     show_default="the scores", rich_help_panel=TARGET_PANEL),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the target in the ledger; change it when the model behind an "
                     "address changes.", show_default="derived", rich_help_panel=TARGET_PANEL),
    ] = None,
    price: Annotated[
        float | None, typer.Option(min=0.0, help="Price of one query.", envvar="UNRELU_PRICE", rich_help_panel=COST_PANEL)
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(min=0.0, help="Most money to spend, at --price.", envvar="UNRELU_MAX_COST",
                     show_default="no limit", rich_help_panel=COST_PANEL),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Most queries in one request.", rich_help_panel=COST_PANEL)] = 4096,
    protocol: Annotated[
        str, typer.Option(help=f"HTTP: {', '.join(PROTOCOLS)}.", rich_help_panel=HTTP_PANEL)
    ] = "auto",
    request: Annotated[
        str | None,
        typer.Option(help="HTTP: JSON with {{x}} for the rows, or {{row}} for a single one.", rich_help_panel=HTTP_PANEL),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(help="HTTP: where the answers are, such as '$.outputs[0].scores'.", rich_help_panel=HTTP_PANEL),
    ] = None,
    token_env: Annotated[
        str | None,
        typer.Option(help="HTTP: environment variable with a bearer token.",
                     envvar="UNRELU_TOKEN_ENV", rich_help_panel=HTTP_PANEL),
    ] = None,
    header_env: Annotated[
        list[str] | None,
        typer.Option(help="HTTP: HEADER=VARIABLE, a header's value from the environment.", rich_help_panel=HTTP_PANEL),
    ] = None,
    datatype: Annotated[
        str | None,
        typer.Option(help="KServe: FP64, FP32 or FP16.", show_default="as the server says", rich_help_panel=HTTP_PANEL),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="HTTP: most queries per time, retries included: 50/s, 1000/min.",
                     envvar="UNRELU_RATE", show_default="no limit", rich_help_panel=HTTP_PANEL),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="HTTP: requests in flight at a time.", rich_help_panel=HTTP_PANEL)
    ] = 4,
    timeout: Annotated[float, typer.Option(help="HTTP: seconds for one request.", rich_help_panel=HTTP_PANEL)] = 60.0,
    retries: Annotated[
        int, typer.Option(min=0, help="HTTP: times a failed request is sent again.", rich_help_panel=HTTP_PANEL)
    ] = 8,
) -> None:  # fmt: skip
    """Hold the shared options' declarations."""


def takes_target(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command."""
    own = inspect.signature(command).parameters
    hints = get_type_hints(_shared, include_extras=True)
    extra = [
        parameter.replace(annotation=hints[key], kind=inspect.Parameter.KEYWORD_ONLY)
        for key, parameter in inspect.signature(_shared).parameters.items()
        if key not in own
    ]
    names = [parameter.name for parameter in extra]
    own_hints = get_type_hints(command, include_extras=True)
    mine = [
        parameter.replace(annotation=own_hints[key], kind=inspect.Parameter.KEYWORD_ONLY)
        for key, parameter in own.items()
    ]

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        values = _as_described(values)
        token = _given.set({key: values.pop(key) for key in names})
        try:
            command(**values)
        finally:
            _given.reset(token)

    wrapped.__signature__ = inspect.Signature([*mine, *extra])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in (*mine, *extra)}
    return wrapped


def _as_described(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in what the configuration file says of a target that is named there.

    What the command line or the environment gave stays.
    """
    from unrelu.cli._common import friendly

    with friendly():
        described = named_targets().get(values.get("target") or "")
        if described is None:
            return values
        context = click.get_current_context()
        options = {parameter.name: parameter for parameter in context.command.params}
        filled = values | {"target": described["target"]}
        for key, value in described.items():
            if key == "target":
                continue
            if key not in options and not _is_option(key):
                raise InvalidInput(
                    f"[targets.{values['target']}]: there is no option --{key.replace('_', '-')}"
                )
            given = context.get_parameter_source(key) if key in options else None
            if key in options and given in {None, ParameterSource.DEFAULT}:
                text = ",".join(map(str, value)) if _is_text(options[key], value) else value
                filled[key] = options[key].type_cast_value(context, text)
    return filled


def _is_option(name: str) -> bool:
    """Whether another command takes it: a target is described for all of them."""
    return name in inspect.signature(_shared).parameters or name in {
        "input_dim", "seed", "budget", "ledger", "out", "depth", "epsilon", "relative", "domain",
        "image", "examples",
    }  # fmt: skip


def _is_text(option: click.Parameter, value: Any) -> bool:
    """Whether a list in the file is text with commas on the command line."""
    return isinstance(value, list) and not option.multiple and option.nargs == 1


def given_option(name: str) -> Any:
    """Return one shared option as the user gave it; None without a command."""
    return (_given.get() or {}).get(name)


def connect_options() -> dict[str, Any]:
    """Return what the user gave as keyword arguments of :func:`unrelu.connect`."""
    given = _given.get()
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
        "http": HTTPOptions(
            protocol=given["protocol"],
            request=given["request"],
            answer=given["answer"],
            token_variable=given["token_env"],
            header_variables=_headers(given["header_env"] or []),
            datatype=given["datatype"],
            rate=None if given["rate"] is None else parse_rate(given["rate"]),
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
