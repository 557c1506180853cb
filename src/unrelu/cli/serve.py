"""``unrelu serve``: a model server to practise on."""

from __future__ import annotations

import signal
import threading
from typing import Annotated, Any

import typer

from unrelu.cli._common import (
    InputDimOption,
    JsonOption,
    QuietOption,
    TargetArgument,
    console,
    friendly,
    open_target,
    print_json,
)
from unrelu.oracles import Oracle, Rounded, Softmax
from unrelu.serving import ModelServer


def serve(
    target: TargetArgument,
    input_dim: InputDimOption = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 picks a free one.")
    ] = 8080,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; there is no authentication.")
    ] = "127.0.0.1",
    model_name: Annotated[str, typer.Option("--model-name", help="In the address.")] = "model",
    single: Annotated[
        bool, typer.Option("--float32", help="Inputs and answers in single precision.")
    ] = False,
    softmax: Annotated[
        bool, typer.Option("--softmax", help="Show probabilities of a model that gives logits.")
    ] = False,
    decimals: Annotated[
        int | None,
        typer.Option("--decimals", min=0, help="Round answers.", show_default="don't round"),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Serve a model over the KServe v2 protocol, to practise on.

    Runs until interrupted. With --json the address goes to stdout, for scripts.

    Example: unrelu serve planted:64-32-10 --port 8080
    """
    with friendly():
        oracle: Oracle = open_target(target, input_dim=input_dim)
        if softmax:
            oracle = Softmax(oracle)
        if decimals is not None:
            oracle = Rounded(oracle, decimals)
        server = ModelServer(
            oracle,
            name=model_name,
            datatype="FP32" if single else "FP64",
            host=host,
            port=port,
        )
    if as_json:
        print_json({"url": server.url})
    if not quiet:
        console.print(f"serving {server.url} (Ctrl-C to stop)", markup=False)

    def stop(*_: Any) -> None:
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with server:
        server.serve_forever(poll_interval=0.1)
