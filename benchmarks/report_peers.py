"""Tables of the comparison with peers, from ``results/peers.jsonl`` and ``published.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import load
from benchmarks.report_common import count, markdown, measured_where, median, short

PUBLISHED = Path(__file__).parent / "published.json"
Runs = list[dict[str, Any]]
Key = tuple[str, str, str]  # solver, setting, width

SHORT = {
    "ART FunctionallyEquivalentExtraction": "ART FEE",
    "ART KnockoffNets": "ART Knockoff",
    "ART CopycatCNN": "ART Copycat",
    "scikit-learn MLPRegressor": "sklearn MLP",
}
US: Key = ("unrelu", "default", "width unknown")


def results() -> dict[str, dict[Key, Runs]]:
    """Return the runs by target and by (solver, setting, width)."""
    table: dict[str, dict[Key, Runs]] = {}
    for name, entry in load("peers")["rows"].items():
        if entry["runs"]:
            target, solver, setting, width = name.split(" | ")
            table.setdefault(target, {})[(solver, setting, width)] = entry["runs"]
    return table


def wins(runs: Runs) -> int:
    return sum(run["success"] for run in runs)


def cell(runs: Runs | None) -> str:
    """Say how many succeeded, and how many were wrong without saying so."""
    if not runs:
        return "–"
    wrong = sum(run.get("silently_wrong", 0) for run in runs)
    return f"{wins(runs)}/{len(runs)}" + (f", {wrong} silently wrong" if wrong else "")


def success(width: str) -> str:
    """Return the table of success rates for solvers with the given knowledge of widths."""
    table = results()
    solvers = list(
        dict.fromkeys(key for target in table.values() for key in target if key[2] == width)
    )
    columns = ([] if US in solvers else [US]) + solvers
    rows = [
        [target, *(cell(found.get(key)) for key in columns)]
        for target, found in table.items()
        if any(key in found for key in solvers if key != US) or width == US[2]
    ]
    header = [
        "unrelu (width unknown)" if key == US else f"{SHORT.get(key[0], key[0])}, {key[1]}"
        for key in columns
    ]
    return markdown(["target", *header], rows)


def _why(runs: Runs) -> str:
    """Say in a few words why runs failed."""
    words: dict[str, int] = {}
    for run in runs:
        text = str(run.get("failure", ""))
        if not text:
            continue
        kind = "timeout" if "timeout" in text else "declared" if "exit" not in text else "crash"
        words[kind] = words.get(kind, 0) + 1
    return ", ".join(f"{n} {kind}" for kind, n in words.items())


def details() -> str:
    """Return every measured row."""
    rows = []
    for target, found in results().items():
        for (solver, setting, width), runs in found.items():
            rows.append([
                target, solver, setting, width.removeprefix("width "), cell(runs), _why(runs),
                count(median(runs, "queries")), short(median(runs, "error")),
                short(median(runs, "rms_error")), short(median(runs, "weight_error")),
                short(median(runs, "agreement")), short(median(runs, "seconds")),
                count(median(runs, "peak_mib")),
            ])  # fmt: skip
    return markdown(
        ["target", "solver", "setting", "width", "success", "no answer", "queries",
         "error (max)", "error (rms)", "weight error", "same class", "seconds", "MiB"],
        rows,
    )  # fmt: skip


def ours() -> str:
    """Return what unrelu spent, split into recovery and held-out check."""
    rows = []
    for target, found in results().items():
        runs = found.get(US)
        if not runs:
            continue
        total, checks = median(runs, "queries"), median(runs, "checks")
        own = None if total is None or checks is None else total - checks
        parameters = median(runs, "parameters")
        ratio = None if own is None or not parameters else own / parameters
        rows.append([
            target, cell(runs), count(parameters), count(total), count(own), short(ratio),
            short(median(runs, "error")), short(median(runs, "weight_error")),
            short(median(runs, "seconds")), count(median(runs, "peak_mib")),
        ])  # fmt: skip
    return markdown(
        ["target", "success", "parameters", "queries", "without its own check", "a parameter",
         "error (max)", "weight error", "seconds", "MiB"],
        rows,
    )  # fmt: skip


def _better(key: Key, theirs: Runs, mine: Runs) -> list[str]:
    """Say where a peer ties with unrelu or is ahead of it on one target."""
    name = f"{SHORT.get(key[0], key[0])}, {key[1]}, {key[2]}"
    said = []
    ties = wins(theirs) / len(theirs) - wins(mine) / len(mine)
    if wins(theirs) and ties >= 0:
        word = "is ahead of" if ties > 0 else "ties with"
        said.append(
            f"{name} {word} unrelu in success ({wins(theirs)}/{len(theirs)} against "
            f"{wins(mine)}/{len(mine)})"
        )
    elif wins(theirs):
        best = min(run["error"] for run in theirs if run["success"])
        ours = median(mine, "error")
        said.append(
            f"{name} succeeds in {wins(theirs)} of {len(theirs)} runs, with an error of "
            f"{short(best)} (unrelu's median: {short(ours)})"
        )
    error, our_error = median(theirs, "error"), median(mine, "error")
    rms = median(theirs, "rms_error")
    if error is not None and our_error is None:
        said.append(
            f"{name} gives an approximation (rms error {short(rms)}) where unrelu gives no network"
        )
    elif error is not None and our_error is not None and error <= our_error:
        said.append(f"{name} has the smaller error ({short(error)} against {short(our_error)})")
    for quantity, unit in (("seconds", " s"), ("peak_mib", " MiB"), ("queries", " queries")):
        value, our_value = median(theirs, quantity), median(mine, quantity)
        useful = rms is not None and rms < 0.1  # a solver that answers nothing is no rival
        if useful and value is not None and our_value is not None and value < our_value:
            said.append(
                f"{name} needs fewer {quantity.replace('peak_mib', 'megabytes')} "
                f"({short(value)}{unit} against {short(our_value)}{unit}, "
                f"rms error {short(rms)})"
            )
    return said


def ahead() -> str:
    """List every target and measure in which a peer ties or is ahead."""
    lines = []
    for target, found in results().items():
        mine = found.get(US)
        if not mine:
            continue
        for key, theirs in found.items():
            seeds = {run["seed"] for run in theirs}
            same = [run for run in mine if run["seed"] in seeds]  # the same networks
            if key != US and same:
                lines += [f"- {target}: {text}." for text in _better(key, theirs, same)]
    return "\n".join(lines) or "- Nowhere in this run."


def totals() -> str:
    """Sum up each solver over all its runs."""
    sums: dict[Key, Runs] = {}
    for found in results().values():
        for key, runs in found.items():
            sums.setdefault(key, []).extend(runs)
    rows = []
    for (solver, setting, width), runs in sums.items():
        wrong = sum(run.get("silently_wrong", 0) for run in runs)
        claims = any(run.get("claim") in ("exact", "failed") for run in runs)
        targets = sum((solver, setting, width) in found for found in results().values())
        rows.append([
            solver, setting, width.removeprefix("width "), str(targets),
            f"{wins(runs)}/{len(runs)}", f"{wrong}/{len(runs)}" if claims else "claims nothing",
        ])  # fmt: skip
    return markdown(["solver", "setting", "width", "targets", "success", "silently wrong"], rows)


def machine() -> str:
    """Say where and with what the comparison was run."""
    data = load("peers")
    lines = [measured_where(data)]
    for name, packages in data.get("environments", {}).items():
        versions = ", ".join(f"{package} {version}" for package, version in packages.items())
        lines.append(f"peer-{name}: {versions}.")
    return "\n".join(lines)


def moments() -> str:
    """Return the table of directions from the same moments."""
    rows = []
    for name, entry in load("peers_moments")["rows"].items():
        runs: Sequence[dict[str, Any]] = entry["runs"]
        if runs:
            problem, solver, setting = name.split(" | ")
            rows.append([
                problem, solver, setting, f"{sum(r['success'] for r in runs)}/{len(runs)}",
                short(median(runs, "angle")), short(median(runs, "seconds")),
            ])  # fmt: skip
    return markdown(
        ["samples", "solver", "setting", "within 0.1 rad", "largest angle, rad", "seconds"], rows
    )


def published() -> str:
    """Return what others published, beside what was measured here."""
    table = results()
    rows = []
    for entry in json.loads(PUBLISHED.read_text()):
        mine = table.get(entry["target"], {}).get(US, [])
        here = f"{count(median(mine, 'queries'))}; {short(median(mine, 'error'))}" if mine else "–"
        rows.append([
            entry["target"], entry["who"], entry["queries"], entry["error"], entry["kind"],
            entry["source"], here,
        ])  # fmt: skip
    return markdown(
        ["target", "attack", "queries", "error", "how known", "source",
         "unrelu here: queries; error over std(f)"],
        rows,
    )  # fmt: skip


def headline() -> str:
    """Return the README's few lines of the comparison."""
    table = results()
    wanted = [
        ("ART FEE", ("ART FunctionallyEquivalentExtraction", "tuned", "width given")),
        ("torch student", ("torch student", "tuned", "width given")),
        ("sklearn MLP", ("scikit-learn MLPRegressor", "tuned", "width given")),
    ]
    rows = []
    for target in ("20-10-1", "40-20-1", "10-40-1", "10-10-10-1", "40-20-3", "10-20-20-1"):
        found = table.get(target, {})
        row = [target]
        for key in (US, *(key for _, key in wanted)):
            runs = found.get(key)
            error = median(runs, "error") if runs else None
            text = cell(runs)
            row.append(f"{text}; {short(error)}" if error is not None else text)
        rows.append(row)
    return markdown(["target", "unrelu", *(f"{name}, tuned" for name, _ in wanted)], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "peers-given": lambda: success("width given"),
    "peers-unknown": lambda: success("width unknown"),
    "peers-details": details,
    "peers-ours": ours,
    "peers-ahead": ahead,
    "peers-totals": totals,
    "peers-machine": machine,
    "peers-moments": moments,
    "peers-published": published,
    "peers-headline": headline,
}
