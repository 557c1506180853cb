"""``unrelu targets``: what the configuration file describes, and whether it answers."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import numpy as np

from unrelu.cli._common import (
    InputDimOption,
    JsonOption,
    TargetArgument,
    console,
    entry,
    friendly,
    open_target,
    print_json,
    takes_target,
)
from unrelu.cli._config import find_config, named_targets
from unrelu.cli._help import add_command, new_group
from unrelu.ledger import redact
from unrelu.oracles import Oracle
from unrelu.oracles.http import HTTPOracle

__all__ = ["app"]

app = new_group(help="Show the targets of unrelu.toml, and try one.")
_SHOWN = 400  # characters of a request or an answer that a person reads


@add_command(app, "list")
def list_targets(as_json: JsonOption = False) -> None:
    """Name the targets that unrelu.toml (or pyproject.toml) describes."""
    with friendly():
        path, targets = find_config(), named_targets()
        if as_json:
            print_json({"file": None if path is None else str(path), "targets": targets})
            return
        if path is None:
            console.print(
                "There is no unrelu.toml here or above. Describe a target in one:\n\n"
                '  [targets.fraud]\n  target = "https://host/v1/models/fraud"\n'
                '  token-env = "FRAUD_TOKEN"\n',
                markup=False,
            )
            return
        console.print(f"{path}:", markup=False)
        for name, options in targets.items():
            console.print(f"  {name:<16} {options['target']}", markup=False)


def check(
    target: TargetArgument, input_dim: InputDimOption = None, as_json: JsonOption = False
) -> None:
    """Ask a target one row, and show the request and how its answer is read.

    Costs one or two queries (a few more where the API has to be found out).

    Example: unrelu targets check http://localhost:8501/v1/models/m
    """
    with friendly():
        oracle = open_target(target, input_dim=input_dim)
        facts = {"target": redact(target)} | _tried(oracle)
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        entry(name, value)


def _tried(oracle: Oracle) -> dict[str, Any]:
    """Ask at the origin of the inputs; returns what was sent and read."""
    start = time.perf_counter()
    answers = oracle(np.zeros((1, oracle.input_dim)))
    facts: dict[str, Any] = {"inputs": oracle.input_dim, "outputs": oracle.output_dim}
    adapter = innermost(oracle)
    if isinstance(adapter, HTTPOracle):
        point = np.zeros((1, adapter.input_dim))
        facts |= {
            "address": adapter.address,
            "protocol": adapter.protocol.identity.strip(":").replace(":", ", "),
            "request": _brief(adapter.request_for(point)),
        }
    return facts | {
        "read as": json.dumps(answers[0].tolist())[:_SHOWN],
        "seconds": f"{time.perf_counter() - start:.3f}",
        "queries": oracle.queries.total,
    }


def innermost(oracle: Any) -> Any:
    """Return what talks to the target, below all wrappers."""
    while hasattr(oracle, "inner"):
        oracle = oracle.inner
    return oracle


def _brief(body: bytes) -> str:
    """Return the beginning of a request; of what is no text only how long it is."""
    shown, ending = body, ""
    with contextlib.suppress(ValueError):
        end = json.JSONDecoder().raw_decode(body.decode("latin-1"))[1]
        if end < len(body):  # KServe's binary extension: JSON, then the numbers themselves
            shown, ending = body[:end], f" and {len(body) - end:,} bytes of numbers"
    text = shown[:_SHOWN].decode(errors="replace")
    return f"{text}{'...' if len(shown) > _SHOWN else ''}{ending}"


add_command(app, "check")(takes_target(check))
