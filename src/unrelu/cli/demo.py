"""``unrelu demo``: the main job on an embedded default."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from unrelu import planted
from unrelu.algorithms.two_layer import extract_two_layer
from unrelu.cli._common import (
    JsonOption,
    QuietOption,
    SeedOption,
    console,
    exit_for,
    friendly,
    print_json,
    show_progress,
    show_result,
)
from unrelu.diagnostics import diagnose
from unrelu.metrics import compare
from unrelu.oracles import Oracle, Softmax, connect


def demo(seed: SeedOption = 0, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Train a digit classifier, hide it, and recover it from its answers alone.

    The classifier (64 pixels, 32 hidden units, 10 classes) answers with
    probabilities only, through a ledger in a temporary folder. The last line
    says how close the recovered network is to the hidden one.
    """

    def say(text: str) -> None:
        if not (quiet or as_json):
            console.print(text)

    with friendly(), tempfile.TemporaryDirectory(prefix="unrelu-demo-") as folder:
        say("Training a digit classifier (64-32-10) and hiding it ...")
        truth, _ = planted.digits_classifier(32, rng=seed)
        ledger = Path(folder) / "answers.db"
        hidden: Oracle = Softmax(connect(truth))
        oracle = connect(hidden, ledger=ledger)

        say("\nWhat is it? (unrelu doctor)")
        for line in diagnose(connect(Softmax(connect(truth))), rng=seed).sentences():
            say(f"  {line}")

        say("\nRecovering it from its probabilities (unrelu extract)")
        start = time.perf_counter()
        with show_progress(quiet=quiet or as_json, oracle=oracle) as progress:
            result = extract_two_layer(oracle, rng=seed, progress=progress)
        seconds = time.perf_counter() - start
        if not as_json:
            show_result(result, as_json=False, quiet=quiet)
        kept = ledger.stat().st_size
    if result.network is None:
        exit_for(result)
        return
    closeness = compare(result.network, truth, common_function=True)
    ratio = result.queries.without_certificate / truth.parameters
    if as_json:
        print_json(
            {
                "status": result.status.name,
                "queries": result.queries.total,
                "queries_per_parameter": ratio,
                "seconds": seconds,
                "relative_error": closeness.relative_error,
                "max_parameter_error": closeness.max_parameter_error,
            }
        )
    else:
        say(f"  ledger        {kept:,} bytes held every answer while it ran")
        say(f"  cost          {ratio:.2f} queries per parameter, {seconds:.1f} s")
        console.print(
            f"\nThe recovered network is within {closeness.relative_error:.1e} of the hidden one "
            f"(largest logit difference over their spread, 10,000 inputs)."
        )
    exit_for(result)
