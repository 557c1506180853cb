"""One virtual environment per peer, under ``.venvs/peer-NAME``, filled from the package index."""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".venvs"

#: pip commands, in order. torch comes alone and first: the index may offer a build of a
#: gigabyte with CUDA, and a later resolution must not replace the one that is there.
REQUIREMENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "art": (
        ("torch==2.13.0",),
        ("adversarial-robustness-toolbox==1.20.1", "packaging"),
    ),
    "torch": (("torch==2.13.0",), ("numpy",)),
    "sklearn": (("scikit-learn",),),
    "tensorly": (("tensorly",),),
}


class NoEnvironment(Exception):
    """A peer's environment is missing and could not be made."""


def python_of(name: str) -> Path:
    return FOLDER / f"peer-{name}" / "bin" / "python"


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Let one process at a time install an environment; the others wait for it."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"peer-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepare(name: str, *, install: bool = True) -> Path:
    """Return the environment's interpreter, installing it where it is missing."""
    stamp = FOLDER / f"peer-{name}" / ".installed"
    wanted = json.dumps(REQUIREMENTS[name])

    def ready() -> bool:
        return stamp.exists() and stamp.read_text() == wanted

    if ready():
        return python_of(name)
    if not install:
        raise NoEnvironment(f"peer-{name} is not installed; run python -m benchmarks.peers")
    with _alone(name):
        if not ready():
            _install(name)
            stamp.write_text(wanted)
    return python_of(name)


def _install(name: str) -> None:
    folder = FOLDER / f"peer-{name}"
    print(f"installing peer-{name} from the package index", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True, symlinks=True)  # mends one that was cut short
    for packages in REQUIREMENTS[name]:
        command = [str(python_of(name)), "-m", "pip", "install", "--quiet", *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoEnvironment(f"peer-{name}: pip failed: {done.stderr[-500:]}")


def versions(name: str) -> dict[str, str]:
    """Return the versions that matter of an installed environment."""
    command = [str(python_of(name)), "-m", "pip", "list", "--format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {}
    wanted = {"adversarial-robustness-toolbox", "torch", "scikit-learn", "tensorly", "numpy"}
    return {p["name"]: p["version"] for p in json.loads(done.stdout) if p["name"] in wanted}
