"""Definition 1 measured: ``python -m benchmarks.letter_daniely_figures``.

Draws ``docs/figures/letter_daniely.svg`` from the rows ``delta, ...`` of the suite: for random
and trained networks the delta for which they are regular, the largest with which the extraction
as printed succeeded, and Lemma 2's; on the right the queries of Theorems 1 to 3 against what the
boxes ask at most.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import load

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "letter_daniely.svg"
SUITE, DELTA = "letter_daniely", "delta, "
EXACT = {
    "one hidden layer, exact": "Theorem 1",
    "Theorem 2, the orthant, exact": "Theorem 2",
    "two hidden layers, exact": "Theorem 3",
}


def runs_of(name: str) -> list[dict[str, Any]]:
    """Return a row's runs that ended with numbers."""
    entry = load(SUITE)["rows"].get(name, {"runs": []})
    return [run for run in entry["runs"] if run.get("delta")]


def draw() -> int:
    """Write the figure; return how many runs it shows."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "unrelu"
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.0), layout="constrained")
    shown = 0
    kinds = [name for name in load(SUITE)["rows"] if name.startswith(DELTA)]
    for place, name in enumerate(kinds):
        runs = runs_of(name)
        shown += len(runs)
        spread = place + np.linspace(-0.2, 0.2, max(len(runs), 1))[: len(runs)]
        first = place == 0
        for key, mark, words in (
            ("delta", "o", "regular (Definition 1)"),
            ("needed", "^", "needed, as printed"),
            ("lemma", "_", "promised after noise (Lemma 2)"),
        ):
            left.semilogy(
                spread,
                [run[key] for run in runs],
                mark,
                color={"o": "C0", "^": "C1", "_": "C2"}[mark],
                label=words if first else None,
            )
        good = sum(bool(run["practice"]) for run in runs)
        left.annotate(
            f"{good}/{len(runs)}", (place, 1.0), ha="center", fontsize="small", color="0.3"
        )
    left.set_xticks(range(len(kinds)), [name.removeprefix(DELTA) for name in kinds])
    left.tick_params(axis="x", labelrotation=25)
    left.set(ylabel="delta", ylim=(1e-27, 1e2), title="general position; above: practice succeeds")
    left.legend(loc="lower left")
    for name, words in EXACT.items():
        runs = [run for run in runs_of(name) if run.get("most")]
        shown += len(runs)
        right.loglog(
            [run["most"] for run in runs], [run["queries"] for run in runs], ".", label=words
        )
    ends = np.array(right.get_xlim())
    right.loglog(ends, ends, "k:", label="what the boxes ask at most")
    right.set(xlabel="the boxes' bound", ylabel="queries", title="queries, exact arithmetic")
    right.legend()
    figure.savefig(FIGURE, metadata={"Date": None})
    return shown


def main() -> None:
    """Draw the figure from the saved runs."""
    print(f"{draw()} runs drawn into {FIGURE.name}")


if __name__ == "__main__":
    main()
