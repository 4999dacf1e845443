"""``make docs``: builds the site in ``build/docs/html``; a warning is an error, and so is a link that leads nowhere.

Sphinx checks links between pages while it builds. What it cannot see is checked in the pages as they are built: every
link within the site leads to a file, and to an id in it, and nothing is loaded from another host.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sphinx.cmd.build import main as build

ROOT: Final = Path(__file__).parents[1]
OUT: Final = ROOT / "build" / "docs"

LOADED: Final = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements whose attribute a browser fetches by itself: from the site only. (A canonical link is fetched by nobody.)"""


class Page(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what counts of an element."""
        given = {name: value for name, value in attrs if value is not None}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        loaded = given.get(LOADED.get(tag, ""))
        if loaded is not None:
            self.loads.append(loaded)


def problems(folder: Path) -> Iterator[str]:
    """Links of built pages that lead nowhere, and what they load from other hosts."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder).as_posix()
        yield from (f"{name} loads {target} from another host" for target in page.loads if urlsplit(target).netloc)
        for target in [*page.links, *page.loads]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if file.is_dir():
                file /= "index.html"
            if not file.is_file():
                yield f"{name} links to {target}, which is not there"
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].ids:
                yield f"{name} links to {target}, and there is no such place on that page"


def main(arguments: Sequence[str]) -> int:
    """Build, and check what was built."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument(
        "--fresh", action="store_true", help="begin with nothing: a page that is gone stays in the site otherwise"
    )
    options = parser.parse_args(arguments)
    html = OUT / "html"
    if options.fresh:
        shutil.rmtree(OUT, ignore_errors=True)
    flags = ["-b", "html", "-c", str(ROOT / "docs"), "-d", str(OUT / "doctrees"), "-W", "--keep-going", "-q"]
    if code := build([*flags, str(ROOT), str(html)]):
        return code
    found = sorted(set(problems(html)))
    for problem in found:
        print(problem)
    if not found:
        print(f"Built without a warning: {html.relative_to(ROOT) / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
