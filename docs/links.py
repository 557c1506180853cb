"""Check every link of the built site, without the network: ``python docs/links.py FOLDER``.

Links between pages must lead to a file, and to an anchor where they name one. Links to other hosts
must be https (http only for this machine and for examples), and are not followed. Pages of source
code link back to the page of each object; that page holds nothing else, so its anchor may differ.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

OWN = ("127.0.0.1", "localhost", "example.com", "example.org")


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag links to, and how it may be linked to."""
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.add(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


def broken(folder: Path) -> list[str]:
    """Return a sentence for each link that leads nowhere."""
    pages = {path.resolve(): Page(path.read_text()) for path in folder.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            problem = _problem(path, link, pages)
            if problem:
                found.append(f"{path.name}: {link}: {problem}")
    return found


def _problem(path: Path, link: str, pages: dict[Path, Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme in ("http", "https"):
        host = parts.hostname or ""
        known = parts.scheme == "https" or host.endswith(OWN)
        return "" if known and "." in host else "not an https address"
    if parts.scheme:
        return "" if parts.scheme in ("data", "mailto") else "an unknown kind of link"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return "no such file"
    anchor = unquote(parts.fragment)
    from_source = "_modules" in path.parts and target.parent.name == "generated"
    if anchor and not from_source and target in pages and anchor not in pages[target].anchors:
        return "no such anchor"
    return ""


def main() -> None:
    """Check the folder named on the command line."""
    found = broken(Path(sys.argv[1]))
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
