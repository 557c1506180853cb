"""The papers page, from the modules' own maps, and the reproductions of each paper's claims."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import mutations
from benchmarks.harness import load, summary
from benchmarks.names import resolve, thing
from benchmarks.report_common import figure, markdown

SOURCE = Path(__file__).parent.parent / "src" / "unrelu"


class Paper(NamedTuple):
    """A paper, where it is implemented, and the page that reproduces its claims."""

    title: str
    modules: tuple[str, ...]  # whose heads hold the table
    page: str
    guide: str
    heads: tuple[str, ...] = ()  # with maps of their own, for readers there


PAPERS = [
    Paper(
        "Daniely & Granot 2021, *An Exact Poly-Time Membership-Queries Algorithm for Extracting a "
        "Three-Layer ReLU Network*",
        ("extraction/letter.py",),
        "reproduce_daniely",
        "two_layer.md",
        ("extraction/two_layer.py", "extraction/three_layer.py"),
    ),
    Paper(
        "Chen, Klivans & Meka 2021, *Efficiently Learning Any One Hidden Layer ReLU Network From "
        "Queries*",
        ("learner/algorithm.py",),
        "reproduce_chen",
        "query_learner.md",
    ),
    Paper(
        "Jayaram, Woodruff & Zhang 2020, *Span Recovery for Deep Neural Networks with "
        "Applications to Input Obfuscation*",
        ("span/algorithm.py",),
        "reproduce_jayaram",
        "span.md",
    ),
    Paper(
        "Awasthi, Tang & Vijayaraghavan 2021, *Efficient Algorithms for Learning Depth-2 Neural "
        "Networks with General ReLU Activations*",
        ("gaussian/algorithm.py",),
        "reproduce_awasthi",
        "samples.md",
    ),
    Paper(
        "Goel & Panigrahy 2018, *Recovering the Lowest Layer of Deep Networks with High Threshold "
        "Activations*",
        (
            "thresholds/algorithm.py", "thresholds/halfspaces.py",
            "thresholds/detector.py", "thresholds/structured_layers.py", "modular.py",
        ),
        "reproduce_goel",
        "thresholds.md",
    ),
]  # fmt: skip


def paper_map(docstring: str) -> list[tuple[str, str]]:
    """Return the rows of the two-column tables in a module's docstring."""
    rows: list[tuple[str, str]] = []
    lines = docstring.splitlines()
    rules = [i for i, line in enumerate(lines) if re.fullmatch(r"=+  +=+", line.strip())]
    for first, last in itertools.pairwise(rules):
        split = lines[first].index("  ", lines[first].index("="))
        column = next(i for i in range(split, len(lines[first])) if lines[first][i] == "=")
        for line in lines[first + 1 : last]:
            left, right = line[:column].strip(), line[column:].strip()
            if left and right:
                rows.append((left, right))
            elif rows and (left or right):
                rows[-1] = (f"{rows[-1][0]} {left}".strip(), f"{rows[-1][1]} {right}".strip())
    return [(a, b) for a, b in rows if (a, b) != ("paper", "here")]


def _code(text: str) -> str:
    """Turn reStructuredText's markup of a name into Markdown's."""
    text = re.sub(r":(?:func|class|meth|mod):`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", "\\|")


def full_names(text: str, module: str, last: str = "") -> tuple[str, list[str], str]:
    """Write every name of a cell in full.

    Returns the cell, the names that are nowhere, and the last class that was named (a later
    row may speak of "the same class"). What follows a name in brackets is kept, and an
    option such as ``biased=True`` is one of the module's own functions.
    """
    names = re.findall(r"`([^`]+)`", text)
    plain = [name.partition("(")[0] for name in names]
    classes = [n for n in plain if inspect.isclass(thing(resolve(n, module) or n))]
    near = (*(resolve(n, module) or n for n in classes), *([last] if last else []))
    missing = []
    for name, bare in zip(names, plain, strict=True):
        if "=" in bare:
            if not _takes(module, bare.partition("=")[0]):
                missing.append(name)
            continue
        full = resolve(bare, module, near)
        if full is None:
            missing.append(name)
        else:
            text = text.replace(f"`{name}`", f"`{full}{name.removeprefix(bare)}`", 1)
    return text, missing, near[-1] if near else last


def _takes(module: str, option: str) -> bool:
    """Whether a public function of a module has an option."""
    functions = [thing(f"{module}.{name}") for name in getattr(thing(module), "__all__", ())]
    return any(
        option in inspect.signature(function).parameters
        for function in functions
        if inspect.isfunction(function)
    )


def paper_rows(paper: Paper) -> tuple[list[list[str]], list[str]]:
    """Return a paper's rows with every name in full, and the names that are nowhere."""
    rows, missing = [], []
    for file in paper.modules:
        docstring = ast.get_docstring(ast.parse((SOURCE / file).read_text())) or ""
        module = "unrelu." + file.removesuffix(".py").replace("/", ".")
        last = ""
        for line, here in paper_map(docstring):
            cell, absent, last = full_names(_code(here), module, last)
            missing += [f"{module}: {name}" for name in absent]
            rows.append([_code(line), cell, f"`{module}`"])
    return rows, missing


PRACTICE, DEVIATES = "in practice ", "deviates: "
TEST = re.compile(r"\btest_\w+")


def parts(cell: str) -> list[str]:
    """Split a cell of a map: as printed, in practice, how the two deviate, and the tests.

    Written ``printed; in practice this; deviates: thus; test_one, test_two``; what is not
    there is empty.
    """
    printed, practice, deviation, tests = [], [], [], TEST.findall(cell)
    where = printed
    for part in re.split(r";\s+", TEST.sub("", cell)):
        text = part.strip(" ,;")
        if text.startswith(PRACTICE):
            where, text = practice, text.removeprefix(PRACTICE)
        elif text.startswith(DEVIATES):
            where, text = deviation, text.removeprefix(DEVIATES)
        if text:
            where.append(text)
    columns = ["; ".join(column) for column in (printed, practice, deviation)]
    return [*columns, ", ".join(f"`{test}`" for test in tests)]


def tests_of(paper: Paper) -> list[str]:
    """Return the tests that a paper's table names."""
    return [test for row in paper_rows(paper)[0] for test in TEST.findall(row[1])]


def page() -> str:
    """Return the papers page: paper line to function, as printed and in practice."""
    lines = [
        "# The papers, line by line",
        "",
        "Generated by `python -m benchmarks.report` from the modules' heads, which also list",
        "every deviation with its reason. A test holds that every name is there; the test named",
        "last fails if the line is broken (`python -m benchmarks.mutations` breaks them).",
    ]
    for paper in PAPERS:
        lines += ["", f"## {paper.title}", ""]
        lines += [f"[Guide]({paper.guide}); [its claims, reproduced]({paper.page}.md).", ""]
        header = ["paper", "as printed", "in practice", "deviation", "test", "module"]
        rows = [[line, *parts(cell), module] for line, cell, module in paper_rows(paper)[0]]
        kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
        lines.append(markdown([header[i] for i in kept], [[row[i] for i in kept] for row in rows]))
    lines += ["", "## Tests that can fail", ""]
    lines.append(
        "Constants, signs and bounds of the tables above, each changed once in a copy of the\n"
        "sources: the test that names the line must fail (`python -m benchmarks.mutations`).\n"
    )
    lines.append(mutations.table())
    return "\n".join(lines) + "\n"


class Claim(NamedTuple):
    """What a paper says, the rows that test it here, and what they show of it."""

    says: str
    suite: str
    rows: tuple[str, ...]
    keys: tuple[str, ...] = ("error",)


CLAIMS: dict[str, list[Claim]] = {
    "daniely": [
        Claim("Theorem 1: a depth-2 network in general position is extracted exactly, in "
              "polynomial time, whatever its width", "two_layer",
              ("20-10-1 float64", "10-40-1 float64", "100-200-1 float64", "784-32-1 float64",
               "784-128-1 float64", "10-500-1 float64", "40-4000-1 float64"),
              ("error", "ratio")),
        Claim("Theorems 1 and 3 as printed, in exact arithmetic: rational networks with d ≤ 4 and "
              "k ≤ 6 come back bit for bit, up to order and positive scaling; Theorem 2 on the "
              "orthant (part: queries over what the boxes ask at most; ratio: over the theorem's "
              "order, such as d1 log2(1/δ) + d1 d)", "letter_daniely",
              ("one hidden layer, exact", "two hidden layers, exact",
               "Theorem 2, the orthant, exact", "two hidden layers, units that never switch",
               "one hidden layer, float64"), ("part", "ratio", "queries", "delta")),
        Claim("Lemma 2: networks of whole numbers, perturbed by 2^-d, are regular for its δ "
              "(promised) but for a chance of 2^-d; δ: the one measured", "letter_daniely",
              ("Lemma 2, depth 2", "Lemma 2, depth 3"), ("delta", "promised")),
        Claim("Lemma 15 and Theorem 5: how often a random top layer is flat somewhere, and "
              "Sauer's bound", "letter_daniely",
              ("Theorem 5, d1 = 2, d2 = 4", "Theorem 5, d1 = 2, d2 = 7",
               "Theorem 5, d1 = 2, d2 = 12"), ("mean:flat", "mean:bound")),
        Claim("General position: δ as Definition 1 measures it, and the largest with which the "
              "extraction as printed succeeded (needed); in practice all succeed",
              "letter_daniely", ("delta, random", "delta, trained"),
              ("delta", "needed", "lemma")),
        Claim("Theorem 2: the same on the non-negative orthant", "two_layer",
              ("20-10-1 orthant",), ("error", "ratio", "outside")),
        Claim("Theorem 3: depth-3 networks with d1 ≤ d", "three_layer",
              ("10-5-20-1", "10-10-10-1", "20-10-40-1", "80-40-20-1", "100-20-70-1", "40-20-80-1"),
              ("error", "ratio")),
        Claim("Lemma 4 and Theorem 5: for random networks the assumption on the top layer fails "
              "with a probability that falls with d2/d1 (failed: measured share; bound: the "
              "paper's sum, 1 where it says nothing)",
              "three_layer",
              ("d2/d1 = 0.25", "d2/d1 = 0.5", "d2/d1 = 1,", "d2/d1 = 2", "d2/d1 = 3.5"),
              ("mean:failed", "mean:bound")),
        Claim("Outside the assumptions nothing is promised; counted is a wrong RECOVERED",
              "three_layer", ("hostile:",), ("false_recovered",)),
    ],
    "chen": [
        Claim("Theorem 1.1: any one-hidden-layer network to square loss ε², in time and queries "
              "polynomial in d, k, 1/ε and the bounds on weights", "query_learner",
              ("random k=10", "random k=50, epsilon", "random k=200", "k=2000"),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("No condition number enters: neurons may nearly coincide or cancel",
              "query_learner", ("5 clusters", "cancelling"),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("Example 1.2 and Remark 1.3: a bump of width w takes about 1/w queries to find",
              "query_learner",
              ("bump of width 0.1, epsilon", "bump of width 0.01", "bump of width 1e-3"),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("Beyond the paper: noise and float32", "query_learner",
              ("random k=50, noise", "bump of width 0.1, noise", "random k=50, float32",
               "bump of width 0.1, float32"),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("Algorithms 1 to 4 as printed, constants of `AFFORDABLE`, and with the paper's own "
              "powers", "letter_chen", ("as printed",),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("Theorem 1.1 as certified: slopes up to k·R (success: no wrong RECOVERED; found: "
              "share that is RECOVERED)", "letter_chen", ("100 copies", "30 copies"),
              ("mean:found", "queries", "certificate_queries")),
    ],
    "jayaram": [
        Claim("Figure 2 and Theorem 3.4: 100 gradients and fewer give the whole span, of rank 80, "
              "of a random network's first layer", "span",
              ("random 784-80-10 output 0", "random 784-80-40-10 output 0",
               "random 784-80-40-30-10 output 0", "random 784-80-40-30-20-10 output 0"),
              ("angle", "gradients", "ratio")),
        Claim("The same for networks trained on MNIST", "span",
              ("mnist 784-80-10 output 0", "mnist 784-80-40-10 output 0",
               "mnist 784-80-40-30-10 output 0", "mnist 784-80-40-30-20-10 output 0"),
              ("angle", "gradients", "ratio")),
        Claim("Algorithm 1, non-adaptive: all gradients chosen in advance", "span",
              ("random 784-80-40-30-20-10 non-adaptive", "mnist 784-80-40-30-20-10 non-adaptive"),
              ("angle", "gradients")),
        Claim("Theorem 4.3, Algorithm 2: the span from 0/1 labels alone, differentiable units",
              "span", ("labels tanh 50-10", "labels softplus 50-10", "labels sigmoid 50-10",
                       "labels tanh 200-40"), ("angle", "queries")),
        Claim("Beyond the paper: the argmax of ReLU networks", "span",
              ("argmax random 100-20-10", "argmax mnist 784-20-10"), ("angle", "queries")),
        Claim("Figure 3: noise in the null space leaves the network's answers unchanged",
              "span", ("obfuscation",), ("logit_change", "unchanged", "noise_norm")),
        Claim("Figure 1: very thin layers on top hide part of the span (by queries, a linear "
              "head; ten networks a run)", "span", ("thin",), ("rank", "full", "half", "silent")),
        Claim("Figure 1 in both readings, one network a run, gradients analytic as in the paper: "
              "with a ReLU on the output node too, partial rank at [6, 3]; with a linear head, "
              "the whole (full: share of networks)", "letter_jayaram", ("figure 1",),
              ("rank", "mean:full", "mean:half", "silent")),
        Claim("Figure 2, tabulated: rank after so many samples", "letter_jayaram", ("figure 2",),
              ("rank 20", "rank 40", "rank 60", "rank 80", "rank 90", "rank 100")),
        Claim("Theorem 4.3, Algorithm 2 as printed (whole: share of networks whose rank is "
              "complete; missing: directions that Assumption 3 keeps back)", "letter_jayaram",
              ("Algorithm 2",), ("angle", "mean:whole", "missing", "queries")),
        Claim("Theorem 3.4: rank k/2 at least from its number of gradients, networks as in "
              "Lemma 3.1 (holds: share whose assumptions hold)", "letter_jayaram",
              ("Theorem 3.4",), ("rank", "gradients", "mean:holds")),
    ],
    "awasthi": [
        Claim("Theorem 4.1 and Algorithm 1: exact from exact tensors, m ≤ d", "samples",
              ("population order 1",), ("error", "error_as_published")),
        Claim("Theorem 4.2 at order 2: more units than inputs, from exact tensors", "samples",
              ("population order 2",), ("error", "error_as_published")),
        Claim("Theorem 3.1: from samples, m ≤ d", "samples",
              ("d=10 m=5 N=1e6", "d=20 m=10 N=1e6", "d=20 m=20 N=1e6", "d=50 m=20"),
              ("error", "moment_cosine", "seconds")),
        Claim("Theorem 3.2: from samples, more units than inputs", "samples",
              ("d=8 m=12 N=1e6", "d=20 m=40 N=1e6"), ("error", "moment_cosine", "seconds")),
        Claim("Corollary 3.3, smoothed analysis: a perturbation of size τ suffices", "samples",
              ("smoothed",), ("error", "moment_cosine")),
        Claim("Lemma 5.9: units with large biases are replaced by a linear function", "samples",
              ("large biases",), ("error", "function_error")),
        Claim("The paper's own route on samples", "samples", ("paper route",),
              ("error", "moment_cosine", "default_moment_cosine")),
        Claim("The moments' error falls as N^-1/2 (slope)", "samples", ("moment error",),
              ("slope",)),
        Claim("Beyond the paper: label noise, error over the Cramér-Rao bound (ratio)", "samples",
              ("noise 0.1",), ("error", "ratio")),
    ],
    "goel": [
        Claim("Theorem 1 and Claim 2: the landscape of a Hermite moment shows the units of a "
              "monotone network with high thresholds (landscape); Theorem 5: refined to any "
              "accuracy (angle)", "thresholds",
              ("sign union n=10 k=10 t=2 N=1e7", "sign union n=10 k=10 t=2 N=1e6",
               "relu n=10 k=10", "relu n=20 k=10 t=2.5 under a sigmoid"),
              ("landscape", "angle", "queries")),
        Claim("Theorem 6: intersections of halfspaces", "thresholds", ("halfspaces",),
              ("angle", "offset", "wrong", "queries")),
        Claim("Theorem 7, section 3: no linear term, by queries in low dimension", "thresholds",
              ("section 3",), ("angle", "queries")),
        Claim("Theorems 8 and 9: binary weights, exactly", "thresholds",
              ("theorem 8", "theorem 9"), ("exact", "seconds")),
        Claim("Theorem 10: orthonormal even units", "thresholds", ("theorem 10",), ("angle",)),
        Claim("B.6 and Theorem 13: sigmoid units from the biased sampler", "thresholds",
              ("sigmoid",), ("angle",)),
        Claim("B.7: powers of the units", "thresholds", ("B.7",), ("landscape", "angle")),
        Claim("Appendix E: two halves of a deep network", "thresholds", ("appendix E",),
              ("angle", "whole")),
        Claim("Not in the paper: what general methods reach on the same samples", "thresholds",
              ("baseline",), ("angle", "wrong")),
    ],
}  # fmt: skip


def _cell(runs: list[dict[str, Any]], facts: dict[str, Any], key: str) -> str:
    """Return the median and maximum of a key, or the mean where the key asks for it."""
    if key.startswith("mean:"):
        values = [float(run[key[5:]]) for run in runs if run.get(key[5:]) is not None]
        return figure(sum(values) / len(values)) if values else "–"
    if not isinstance(facts.get(key), dict):
        return "–"
    return f"{figure(facts[key]['median'])} ({figure(facts[key]['max'])})"


def _column(key: str) -> str:
    return f"{key[5:]}, mean" if key.startswith("mean:") else f"{key}, median (max)"


def reproduction(paper: str) -> str:
    """Return a paper's claims, each with the rows that test it."""
    lines: list[str] = []
    for number, claim in enumerate(CLAIMS[paper], start=1):
        lines += [f"**{number}. {claim.says}.**", ""]
        rows = []
        for name, entry in load(claim.suite)["rows"].items():
            if not entry["runs"] or not name.startswith(claim.rows):
                continue
            facts = summary(entry)
            cells = [_cell(entry["runs"], facts, key) for key in claim.keys]
            rows.append([name, f"{facts['successes']}/{facts['runs']}", *cells])
        if rows:
            header = ["row", "success", *map(_column, claim.keys)]
            lines.append(markdown(header, rows))
        else:
            lines.append("Not measured yet.")
        first = claim.rows[0]
        lines += ["", f'`python -m benchmarks.{claim.suite} --rows "{first}"`', ""]
    return "\n".join(lines).rstrip()


BLOCKS: dict[str, Callable[[], str]] = {
    f"reproduce-{paper}": partial(reproduction, paper) for paper in CLAIMS
}
