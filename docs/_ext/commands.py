"""The ``{commands}`` directive: every command of the program with its options, from the program.

Only what the commands say of themselves is shown, so that the page cannot go stale.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from unrelu.cli.main import app


def every(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each command that does something, with its full name."""
    inner = getattr(command, "commands", None)
    if not inner:
        yield name, command
        return
    for word, each in inner.items():
        yield from every(each, f"{name} {word}")


def _cell(text: Any) -> str:
    plain = re.sub(r"\s+", " ", inspect.cleandoc(str(text or ""))).strip()
    return plain.replace("|", "\\|")


def _default(option: Any) -> str:
    shown = option.show_default
    if isinstance(shown, str):
        return shown
    value = option.default
    empty = value is None or value is False or callable(value) or str(value).startswith("Sentinel")
    return "" if empty or value == () else f"`{value}`"


WORDS = {int: "NUMBER", float: "NUMBER", Path: "FILE"}


def _kind(option: Any) -> str:
    """Say what follows an option: nothing, one of several words, or what kind of value."""
    if option.is_flag:
        return ""
    if option.metavar:
        return f" {option.metavar}"
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " " + "\\|".join(str(each.value) for each in kind)
    if typing.get_origin(kind) is typing.Literal:
        return " " + "\\|".join(map(str, typing.get_args(kind)))
    return " " + WORDS.get(kind, "TEXT")


def _rows(options: list[Any]) -> Iterator[str]:
    for option in options:
        names = ", ".join(f"`{name}`" for name in option.opts)
        told = _cell(option.help)
        default = _default(option)
        extra = f" Default: {default}." if default else ""
        env = f" Environment: `{option.envvar}`." if option.envvar else ""
        yield f"| {names}{_kind(option)} | {told}{extra}{env} |"


def page() -> str:
    """Return the reference as Markdown."""
    lines: list[str] = []
    for name, command in every(typer.main.get_command(app), "unrelu"):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option"]
        lines += [f"## {name}", ""]
        words = " ".join((p.metavar or p.name or "").upper().strip("{}[]") for p in arguments)
        lines += ["```console", f"$ {name} [OPTIONS] {words}".rstrip(), "```", ""]
        lines += [_help(command), ""]
        for panel, members in _panels([p for p in options if not getattr(p, "hidden", False)]):
            lines += [f"**{panel}**", "", "| option | meaning |", "| --- | --- |"]
            lines += [*_rows(members), ""]
    return "\n".join(lines)


def _help(command: Any) -> str:
    text = inspect.cleandoc(command.help or "").replace("\b", "")
    return re.sub(r"\[/?\w+\]", "", text)


def _panels(options: list[Any]) -> list[tuple[str, list[Any]]]:
    grouped: dict[str, list[Any]] = {}
    for option in options:
        grouped.setdefault(getattr(option, "rich_help_panel", None) or "Options", []).append(
            option
        )
    return list(grouped.items())


class Commands(SphinxDirective):
    """Write the reference of all commands here."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        return self.parse_text_to_nodes(page(), allow_section_headings=True)


def setup(sphinx: Any) -> dict[str, bool]:
    """Register the directive."""
    sphinx.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
