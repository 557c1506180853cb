"""Help in words of people: what follows an option is a number or a file, not a Python type."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

__all__ = ["PlainCommand", "add_command", "new_group"]

_WORDS: dict[Any, str] = {bool: "", int: "N", float: "NUMBER", Path: "FILE", str: "TEXT"}
Made = TypeVar("Made", bound=Callable[..., None])


class _Plain:
    """Says nothing of a flag's type: nothing follows it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all options, the one for help too."""
        options: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for option in options:
            if getattr(option, "is_flag", False) and option.metavar is None:
                option.metavar = ""
        return options


class PlainCommand(_Plain, TyperCommand):
    """A command whose help people read."""


class PlainGroup(_Plain, TyperGroup):
    """Commands whose help people read."""


def new_group(**settings: Any) -> typer.Typer:
    """Return a place for commands that shows its help where none is named."""
    return typer.Typer(
        no_args_is_help=True,
        cls=PlainGroup,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )


def add_command(app: typer.Typer, name: str | None = None) -> Callable[[Made], Made]:
    """Add a command to a group, its options told in words."""

    def added(command: Made) -> Made:
        for hint in get_type_hints(command, include_extras=True).values():
            for part in get_args(hint) if get_origin(hint) is Annotated else ():
                if isinstance(part, OptionInfo) and part.metavar is None:
                    part.metavar = word_for(get_args(hint)[0])
        app.command(name, cls=PlainCommand)(command)
        return command

    return added


def word_for(kind: Any) -> str:
    """Say what follows an option of this type; nothing follows a flag."""
    if isinstance(kind, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    inner = get_args(kind)
    if inner:  # a list of them, or a pair
        count = 1 if get_origin(kind) is list else len(inner)
        return " ".join([word_for(inner[0])] * count)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "|".join(str(each.value) for each in kind)
    return _WORDS.get(kind, "TEXT")
