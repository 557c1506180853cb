"""What a stranger installs: metadata, citation, and the wheel in an empty environment."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import unrelu

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNREACHABLE = ("No matching distribution", "Could not find a version", "Connection")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_the_metadata_are_complete():
    wanted = {"name", "description", "readme", "license", "license-files", "requires-python"}
    assert wanted | {"authors", "keywords", "classifiers", "urls", "scripts"} <= set(PROJECT)
    assert {"Documentation", "Changelog"} <= set(PROJECT["urls"])
    for path in (PROJECT["readme"], *PROJECT["license-files"]):
        assert (ROOT / path).exists()


def test_the_citation_names_this_version_and_every_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == unrelu.__version__
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    families = {author["family-names"] for each in citation["references"]
                for author in each["authors"]}  # fmt: skip
    assert {"Daniely", "Chen", "Jayaram", "Awasthi", "Goel"} <= families


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Build the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_distributions_pass_twine(built):
    files = sorted(built.iterdir())
    assert [path.suffix for path in files] == [".whl", ".gz"]
    done = run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=built)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data(built):
    names = zipfile.ZipFile(next(built.glob("*.whl"))).namelist()
    source = ROOT / "src"
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert str(path.relative_to(source)) in names, path.name
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(built, tmp_path):
    assert run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path).returncode == 0
    python = tmp_path / "env" / "bin" / "python"
    wheel = next(built.glob("*.whl"))
    done = run(python, "-m", "pip", "install", "--quiet", "--constraint",
               ROOT / "constraints.txt", wheel, cwd=tmp_path)  # fmt: skip
    if done.returncode and any(word in done.stderr for word in UNREACHABLE):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    command = python.with_name("unrelu")
    said = run(command, "--version", cwd=tmp_path)
    assert said.stdout.strip() == f"unrelu {unrelu.__version__}"
    told = run(command, "extract", "planted:6-3-1", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["status"].upper() == "RECOVERED"
