"""Every Python example in the README and the docs runs; generated tables are current."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

import unrelu

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOK = ROOT / "examples" / "unrelu.ipynb"


spec = importlib.util.spec_from_file_location("links", ROOT / "docs" / "links.py")
assert spec is not None
assert spec.loader is not None
links = importlib.util.module_from_spec(spec)
spec.loader.exec_module(links)
broken = links.broken

SLOW = {"tutorial_audit.md", "tutorial_peel.md", "tutorial_samples.md"}


def blocks(page: Path) -> list[str]:
    """Return a page's Python: examples, and cells that a build of the site executes."""
    pattern = r"^```(?:python|\{code-cell\} python)\n(.*?)^```"
    return re.findall(pattern, page.read_text(), flags=re.DOTALL | re.MULTILINE)


def marked(paths: list[Path], slow: set[str]) -> list[object]:
    return [
        pytest.param(p, id=p.name, marks=[pytest.mark.slow] if p.name in slow else [])
        for p in paths
    ]


@pytest.mark.parametrize("page", marked([p for p in PAGES if blocks(p)], SLOW))
def test_examples_in_the_docs_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    namespace: dict[str, object] = {"__name__": "__example__"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("script", marked(EXAMPLES, {"audit_gate.py", "modular.py"}))
def test_example_scripts_run(script, tmp_path):
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"


def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    namespace: dict[str, object] = {"__name__": "__notebook__"}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] or "print" not in "".join(cell["source"])
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), namespace)


def test_every_example_is_linked():
    page = (ROOT / "docs" / "examples.md").read_text()
    for path in (*EXAMPLES, NOTEBOOK):
        assert f"<../examples/{path.name}>" in page, path.name


def anchors(page: Path) -> set[str]:
    """Return the anchors that headings of a page get."""
    headings = re.findall(r"^#{1,3} (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_internal_links_lead_somewhere():
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", text):
            if "://" in target:
                continue
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name}: {target}"
            if anchor:
                assert anchor[1:] in anchors(file), f"{page.name}: {target}{anchor}"


def site(folder: Path, **pages: str) -> Path:
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return folder


def test_the_link_check_passes_what_leads_somewhere(tmp_path):
    site(
        tmp_path,
        a='<h1 id="top"></h1><a href="b.html#there"></a><a href="#top"></a><a href="b.html"></a>',
        b='<p id="there"></p><a href="https://example.com/x"></a><img src="data:,">',
    )
    assert broken(tmp_path) == []


@pytest.mark.parametrize(
    "link", ["c.html", "b.html#gone", "#gone", "http://elsewhere.net/", "ftp://b.html", "x.png"]
)
def test_the_link_check_finds_what_leads_nowhere(tmp_path, link):
    site(tmp_path, a=f'<a href="{link}"></a>', b='<p id="there"></p>')
    (problem,) = broken(tmp_path)
    assert problem.startswith(f"a.html: {link}: ")


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_its_links_lead_somewhere(tmp_path):
    """Not executed here: the cells are, above; ``make docs`` does both."""
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
         "-D", "nb_execution_mode=off", "-D", "suppress_warnings=myst-nb.lexer",
         str(ROOT / "docs"), str(tmp_path / "html")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert broken(tmp_path / "html") == []


def test_pictures_files_and_names_that_pages_mention_exist():
    for page in PAGES:
        text = page.read_text()
        files = re.findall(r"\{(?:literalinclude|include)\} (\S+)", text)
        files += re.findall(r"\{download\}`[^`<]*<([^>]+)>`", text)
        for target in files:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
        for name in re.findall(r"\{(?:func|class|mod)\}`~?(unrelu[\w.]*)`", text):
            assert found(name), f"{page.name}: {name}"


def found(name: str) -> bool:
    """Whether a dotted name can be imported."""
    thing: object = unrelu
    for part in name.split(".")[1:]:
        try:
            thing = getattr(thing, part)
        except AttributeError:
            try:
                thing = importlib.import_module(f"{thing.__name__}.{part}")  # type: ignore[attr-defined]
            except ImportError:
                return False
    return True


def test_external_links_are_https():
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for address in re.findall(r"\]\((\w+://[^)\s]*)\)", text):
            assert re.match(r"https://[\w.-]+\.\w+(/|$)", address), f"{page.name}: {address}"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_every_page_is_in_the_table_of_contents():
    index = (ROOT / "docs" / "index.md").read_text().splitlines()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.stem == "index" or page.stem in index, page.name


def test_generated_tables_are_current():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.report", "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
