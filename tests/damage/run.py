"""The matrix of damage as a table, and the page that keeps it.

``python -m tests.damage.run [--write] [PART OF AN OBJECT'S NAME]``: prints the table, and fails where
``docs/operations/damage.md`` has another one, unless ``--write`` keeps it there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from tests.damage.lake import Target, build
from tests.damage.matrix import TRIED, Case, cases

PAGE: Final = Path(__file__).resolve().parent.parent.parent / "docs" / "operations" / "damage.md"
_BEGIN: Final = "<!-- What follows is printed by `make damage`; `make damage ARGS=--write` keeps it. -->\n"


def cases_of(wanted: Callable[[Sequence[Target]], Iterable[Target]]) -> list[Case]:
    """Every case of some objects, on a root that is made for it; ``wanted`` chooses from all objects."""
    with tempfile.TemporaryDirectory() as folder:
        lake = build(Path(folder) / "lake")
        return list(cases(lake, Path(folder), wanted(lake.objects)))


def table(found: Iterable[Case]) -> str:
    """The cases as Markdown: what differs in nothing is one row, and every message stands once for an object."""
    lines = ["| damaged | how | " + " | ".join(TRIED) + " |", "| --- |" * 2 + " --- |" * len(TRIED)]
    lines[1] = "|" + " --- |" * (len(TRIED) + 2)
    said: list[str] = []
    for name, group in groupby(found, key=lambda case: case.target.name):
        of_object = list(group)
        rows: dict[tuple[str, ...], list[str]] = {}
        messages: dict[str, list[str]] = {}
        for case in of_object:
            rows.setdefault(tuple(case.cells[item] for item in TRIED), []).append(case.damage)
            for text in case.said:
                messages.setdefault(text, []).append(case.damage)
        for cells, damages in rows.items():
            lines.append(f"| {name} | {_joined(damages, of_object)} | {' | '.join(cells)} |")
        if messages:
            said += ["", f"**{name[0].upper()}{name[1:]}**", ""]
            said += [f"- {_joined(damages, of_object)}: {text}" for text, damages in messages.items()]
    return "\n".join([*lines, "", "### Messages", *said, ""])


def _joined(damages: Sequence[str], of_object: Sequence[Case]) -> str:
    return "any" if len(damages) == len(of_object) > 1 else ", ".join(damages)


def sections(text: str) -> dict[str, list[str]]:
    """By object the lines about it, of a table of cases or of the page that has one: its rows, and its messages."""
    text = text.rpartition(_BEGIN)[2]
    found: dict[str, list[str]] = {}
    about = ""
    for line in text.splitlines():
        if line.startswith("| "):
            found.setdefault(line.split(" | ")[0].removeprefix("| "), []).append(line)
        elif line.startswith("**"):
            about = line.strip("*")
            about = about[0].lower() + about[1:]
        elif about and line:
            found.setdefault(about, []).append(line)
    return found


def page_with(text: str) -> str:
    """The page with another table."""
    head, begin, _ = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    assert begin, f"{PAGE} has no place for the table"
    return f"{head}{_BEGIN}\n{text}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; compare it with the page, or keep it there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep the table in the page")
    parser.add_argument("wanted", nargs="?", default="", help="a part of the names of the objects to damage")
    given = parser.parse_args(arguments)
    text = table(cases_of(lambda objects: [item for item in objects if given.wanted in item.name]))
    print(text)
    if given.wanted:
        return 0
    if given.write:
        PAGE.write_text(page_with(text), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page_with(text):
        print(f"{PAGE.name} has another table: look why, then keep this one with ARGS=--write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
