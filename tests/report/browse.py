"""Open a page in headless Chromium and print what was seen: browse.py CHROMIUM PAGE."""

import json
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def look(browser, address, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(0.0)  # the caller's patience ends it, however busy the machine
    console, requests, dialogs = [], [], []
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(address)
    figures = page.evaluate(
        """() => [...document.querySelectorAll("svg, img")].map(e => {
            const b = e.getBoundingClientRect();
            return {width: b.width, height: b.height, left: b.left, right: b.right,
                    loaded: e.tagName.toLowerCase() !== "img" || e.naturalWidth > 0,
                    text: e.getAttribute("alt") || e.getAttribute("aria-label")};
        })"""
    )
    overflow = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => document.activeElement.tagName.toLowerCase()"))
    colours = "() => ['color', 'backgroundColor'].map(k => getComputedStyle(document.body)[k])"
    ink, background = page.evaluate(colours)
    page.emulate_media(media="print", color_scheme=scheme)
    printed = page.evaluate(colours)
    sheets = page.pdf(format="A4", print_background=False).count(b"/Type /Page\n")
    page.close()
    return {
        "console": console, "requests": requests, "dialogs": dialogs, "figures": figures,
        "overflow": overflow, "reached": sorted(reached), "background": background,
        "ink": ink, "printed": printed, "sheets": sheets,
    }  # fmt: skip


def main(chromium, path):
    address = Path(path).absolute().as_uri()
    with sync_playwright() as engine:
        browser = engine.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            timeout=0.0,
        )
        seen = {
            f"{width} {scheme}": look(browser, address, width, scheme)
            for width in (1280, 390)
            for scheme in ("light", "dark")
        }
        browser.close()
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
