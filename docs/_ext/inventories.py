"""Links to other projects' pages, without the network.

Sphinx looks up foreign names in an inventory that it downloads, and fails where it cannot. The few
names that signatures here mention are listed in ``inventories.toml``; this writes them in the form
that Sphinx reads.
"""

from __future__ import annotations

import tomllib
import zlib
from pathlib import Path


def written(source: Path, folder: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory for each project of a file; return what Sphinx wants to know."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for project, facts in tomllib.loads(source.read_text()).items():
        path = folder / f"{project}.inv"
        path.write_bytes(_inventory(project, facts["names"]))
        mapping[project] = (facts["url"], str(path))
    return mapping


def _inventory(project: str, names: dict[str, dict[str, str]]) -> bytes:
    """Return an inventory, version 2: a head in plain text, the entries compressed."""
    head = (
        f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    lines = (
        f"{name} py:{role} 1 {page} -\n"
        for role, entries in names.items()
        for name, page in entries.items()
    )
    return head.encode() + zlib.compress("".join(lines).encode())
