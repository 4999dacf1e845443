"""What commands print, without what differs from one run to the next."""

from __future__ import annotations

import re
import shlex

from tests.cli.command_line import run
from txnlog.cli.commands import DONE

VARYING = [
    (r"[\w.-]+:\d+ txnlog/[\w.+-]+", "<client>"),
    (r" +", " "),
    (r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "<time>"),
    (r"\b(?!0{16})[0-9a-f]{32}\b", "<id>"),
    (r'("behind_ms": |PREPARED \d+ <time> )\d+', r"\1<age>"),
    (r'("timestamp_ms": )\d{13}', r"\1<time>"),
    (r"\b\d+(\.\d)?(ms|m\d\ds|s|B|KiB)\b", "<amount>"),
    (r"(commits/s )[\d.]+", r"\1<rate>"),
    (r"\b\d{3,5}\b", "<bytes>"),
]
"""What differs from run to run, or with a newer Arrow: clients, times, ages, ids, sizes; and the blanks that align."""


def steady(text: str) -> str:
    """A text without what varies."""
    for pattern, stands in VARYING:
        text = re.sub(pattern, stands, text)
    return text.strip()


def fits(printed: str, shown: str) -> bool:
    """Whether a page shows a part of what is printed: a line ``...`` stands for lines that are left out."""
    parts = shown.split("\n...\n")
    return len(parts) > 1 and re.fullmatch(r"\n(?:.*\n)?".join(map(re.escape, parts)), printed, re.DOTALL) is not None


def runs_as_shown(call: str, shown: str) -> None:
    """Run a command of a page: it ends well, and prints what the page shows, if that shows anything."""
    done = run(*shlex.split(call.removeprefix("txnlog ")))
    assert done.returncode == DONE, f"{call}: {done.stdout}{done.stderr}"
    printed = steady(done.stdout)
    assert not shown or printed == steady(shown) or fits(f"\n{printed}", f"\n{steady(shown)}"), call


__all__ = ["fits", "runs_as_shown", "steady"]
