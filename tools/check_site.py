"""Check the built documentation site: its links, its independence of a network, its search.

    python tools/check_site.py build/docs

Sphinx checks references between pages. This checks the pages as browsers see them: every local link
and anchor leads somewhere, scripts, styles and pictures come from the disk, and the search finds
some words.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SEARCHED = ("permeability", "forcing", "resume", "norm")
# What a browser loads by itself, as opposed to links that a reader follows.
_LOADED = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src"}


class _Page(HTMLParser):
    """The anchors of a page, its links, and the files that it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in _LOADED and _LOADED[tag] in values and values.get("rel") != "canonical":
            self.loaded.append(values[_LOADED[tag]])


def find_faults(site: Path) -> list[str]:
    """Return a line for each fault of the site in a folder."""
    pages = {path.resolve(): _Page(path) for path in sorted(site.rglob("*.html"))}
    lines = [] if pages else [f"{site}: no pages"]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        lines += [f"{name}: loads {loaded}" for loaded in page.loaded if urlsplit(loaded).netloc]
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists():
                lines.append(f"{name}: {link} does not exist")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                lines.append(f"{name}: {link} has no such anchor")
    index = site / "searchindex.js"
    terms = index.read_text(encoding="utf-8") if index.exists() else ""
    # Sphinx keeps the stems of words.
    lines += [f"search: {word} is not found" for word in SEARCHED if f'"{word[:4]}' not in terms]
    return lines


if __name__ == "__main__":
    lines = find_faults(Path(sys.argv[1]))
    print(*lines or ["the site is complete"], sep="\n")
    sys.exit(bool(lines))
