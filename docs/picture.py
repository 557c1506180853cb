"""Take the README's picture of the demo's report: ``python docs/picture.py``.

Runs ``unrelu demo`` and opens its report in headless Chromium, with playwright from
``.venvs/browser`` (``pip install playwright``) and the system's Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "figures" / "demo_report.png"

SHOOT = """
import sys
from playwright.sync_api import sync_playwright
chromium, page, out = sys.argv[1:]
with sync_playwright() as engine:
    browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    view = browser.new_page(viewport={"width": 1000, "height": 990}, color_scheme="light")
    view.goto(page)
    view.screenshot(path=out)
    browser.close()
"""


def main() -> None:
    """Run the demo, open its report, keep the picture."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    browser = ROOT / ".venvs" / "browser" / "bin" / "python"
    if chromium is None or not browser.exists():
        sys.exit("needs Chromium, and playwright in .venvs/browser")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        subprocess.run(
            [sys.executable, "-m", "unrelu", "demo", "--out", str(report)], check=True, cwd=folder
        )
        command = [str(browser), "-c", SHOOT, chromium, report.as_uri(), str(OUT)]
        subprocess.run(command, check=True)
    size = OUT.stat().st_size
    if size > 300_000:
        sys.exit(f"{OUT.name} has {size:,} bytes: too large for a README")


if __name__ == "__main__":
    main()
