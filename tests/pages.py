"""Pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def programs(*folders: str) -> list[str]:
    """The pages below some folders of docs/ that have Python in them, such as ``docs/guide/spark.md``."""
    paths = [path for folder in folders for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
    return [name for path in paths if blocks(page(name := path.relative_to(ROOT).as_posix()))]


def needs_spark(name: str) -> bool:
    """Whether the Python of a page has a session of Spark."""
    return "pyspark" in "".join(blocks(page(name)))


def run_page(
    name: str,
    folder: Path,
    given: dict[str, Any] | None = None,
    *,
    compare: bool = True,
    console: Callable[[str, str], None] | None = None,
) -> None:
    """Run the Python of a page as one program in a folder: it must print what the page says.

    A block of text after a block of Python is all that this block, and those before it, printed since the last one.
    What was printed after the last block of text must be nothing: a reader of the page sees all that there is.

    Args:
        folder: stands for /tmp.
        compare: False runs the page only. That is for a second run, which adds to what the first one left.
        console: called with each call on a console, behind its ``$ ``, and what it prints there by the page; without it
            these blocks are passed over.
    """
    names = given if given is not None else {}
    printed = io.StringIO()
    for kind, code in re.findall(r"^```(python|text|console)\n(.*?)^```", page(name), re.DOTALL | re.MULTILINE):
        if kind == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(code.replace("/tmp/", f"{folder}/"), name, "exec"), names)
        elif kind == "console":
            if console is not None:
                call, _, shown = code.replace("/tmp/", f"{folder}/").partition("\n")
                console(call.removeprefix("$ "), shown)
        elif compare:
            assert printed.getvalue().replace(f"{folder}/", "/tmp/").rstrip() == code.rstrip(), name
            printed = io.StringIO()
    assert not compare or printed.getvalue() == "", f"{name} does not show what its last block prints"
