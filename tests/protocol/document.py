"""PROTOCOL.md, taken apart: its clauses, JSON blocks and field tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "PROTOCOL.md").read_text(encoding="utf-8")

_CLAUSE = re.compile(r"^- \*\*(P-\d+)\*\* \(([^)]*)\) (.*?)(?=\n- |\n\n|\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)


@dataclass(frozen=True)
class Clause:
    """One numbered sentence."""

    id: str
    binds: str
    text: str


@dataclass(frozen=True)
class Field:
    """One row of a field table."""

    name: str
    type: str
    meaning: str
    default: str


def clauses() -> list[Clause]:
    """The numbered sentences, in the order of the document."""
    return [Clause(*match.groups()) for match in _CLAUSE.finditer(TEXT)]


def json_blocks(text: str = TEXT) -> list[str]:
    """The fenced JSON blocks."""
    return _BLOCK.findall(text)


def section(heading: str) -> str:
    """The text below a heading, up to the next one of any level."""
    start = TEXT.index(f"\n{heading}\n") + len(heading) + 2
    following = re.search(r"^#+ ", TEXT[start:], re.MULTILINE)
    return TEXT[start:] if following is None else TEXT[start : start + following.start()]


def action_headings() -> list[str]:
    """Tags of the actions that have a section."""
    return re.findall(r"^#### `(\w+)`$", TEXT, re.MULTILINE)


def rows(table: str) -> list[list[str]]:
    """The cells of a Markdown table, without its head."""
    lines = [line.strip() for line in table.strip().splitlines()]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]


def fields(text: str) -> list[Field]:
    """The first field table in a text."""
    for found in _TABLE.findall(text):
        if found.startswith("| field | type | meaning | default |"):
            return [Field(name.strip("`"), kind, meaning, default) for name, kind, meaning, default in rows(found)]
    raise AssertionError("there is no field table")


def table_after(text: str) -> str:
    """The first table behind a sentence of the document."""
    start = TEXT.index(text)
    found = _TABLE.search(TEXT, start)
    assert found is not None
    return found[0]
