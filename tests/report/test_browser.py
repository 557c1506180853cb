"""The report in real headless Chromium.

Needs Debian's ``chromium`` (or ``CHROMIUM=/path``) and playwright in an
environment of its own: ``make environments``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from unrelu import connect, planted
from unrelu.report import audit, render_page
from unrelu.report.audit import AuditConfig

PYTHON = Path(__file__).parents[2] / ".venvs" / "browser" / "bin" / "python"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
QUICK = AuditConfig(
    decimals=(4,), noise=(1e-1,), fractions=(0.2, 1.0), points=300, epochs=5, copies=(50, 300)
)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium; run: make environments")
@pytest.mark.skipif(not PYTHON.exists(), reason="no playwright; run: make environments")
def test_the_report_in_a_browser(tmp_path):
    name = '<script>alert(1)</script><img src="http://127.0.0.1:9/x" onerror="alert(2)">'
    oracle = connect(planted.random_network(16, 6, 3, rng=0), name=name)
    path = tmp_path / "report.html"
    page = render_page(audit(oracle, rng=0, image_shape=(4, 4), config=QUICK))
    path.write_text(page)
    drawn = len(re.findall("<(?:svg|img) ", page))  # the name's own <img is escaped
    assert drawn >= 7
    done = subprocess.run(
        [PYTHON, Path(__file__).with_name("browse.py"), CHROMIUM, path],
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    views = json.loads(done.stdout)
    assert len(views) == 4
    for view, seen in views.items():
        assert seen["console"] == []
        assert seen["dialogs"] == []
        # Nothing but the file itself; images are inside it.
        assert {r for r in seen["requests"] if not r.startswith("data:")} == {path.as_uri()}
        assert len(seen["figures"]) == drawn
        for figure in seen["figures"]:
            assert figure["loaded"]
            assert figure["text"]
            assert figure["width"] > 150
            assert figure["height"] > 30
            assert figure["left"] >= 0
            assert figure["right"] <= int(view.split()[0])
        assert seen["overflow"] <= 0  # nothing to scroll sideways
        assert {"svg", "summary", "div"} <= set(seen["reached"])
        # On paper it looks as in light, whatever the screen was: dark ink, nothing cut.
        light = views["1280 light"]
        assert seen["printed"] == [light["ink"], light["background"]]
        assert seen["sheets"] >= 2
    assert views["1280 light"]["background"] != views["1280 dark"]["background"]
