"""Pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def page(name: str) -> str:
    """The text of a page, such as ``docs/python.md``."""
    return (ROOT / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """What stands below a heading of the second level, up to the next one."""
    _, found, rest = text.partition(f"\n## {title}\n")
    assert found, f"no section {title!r}"
    return rest.partition("\n## ")[0]


def blocks(text: str, kind: str = "python") -> list[str]:
    """The blocks of a text that are marked so; ``kind`` is a regular expression."""
    return re.findall(rf"```(?:{kind})\n(.*?)```", text, re.DOTALL)
