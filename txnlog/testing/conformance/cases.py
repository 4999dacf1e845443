"""Cases of the kit: what a reader is asked about a golden root, what it must answer, and in what an answer differs."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GOLDEN: Final = Path(__file__).parent / "golden"
"""The roots that came with the kit: a folder each, with ``expected.json`` and the root itself in ``root``."""

EXPECTED: Final = "expected.json"
ROOT: Final = "root"

OK: Final = "rows"
EXIT_CODES: Final = {OK: 0, "damaged": 10, "unsupported": 11, "version": 12, "topic": 13, "namespace": 14}
"""What a reader can answer, and the exit code by which it says so."""

LATEST: Final = "latest"
LEVELS: Final = ("read_committed", "read_uncommitted")

_SHOWN_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reader says: rows as JSON objects, or one of the other keys of ``EXIT_CODES`` and no rows."""

    kind: str
    rows: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One question about a golden root; ``version`` is a decimal number or ``latest``.

    ``also`` are other kinds of answers that PROTOCOL.md leaves to the reader.
    """

    golden: str
    root: Path
    namespace: str
    topic: str
    version: str
    level: str
    expected: Answer
    also: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """What stands behind ``read`` on the command line."""
        return (str(self.root), self.namespace, self.topic, self.version, self.level)

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return f"{self.golden}: {self.namespace}/{self.topic} at {self.version}, {self.level}"


def cases_of(folder: Path = GOLDEN) -> list[Case]:
    """All cases of a folder of golden roots, in a fixed order."""
    found: list[Case] = []
    for path in sorted(folder.glob(f"*/{EXPECTED}")):
        for item in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            expected = Answer(item.pop("answer"), tuple(item.pop("rows", ())))
            also = tuple(item.pop("or", ()))
            found.append(Case(path.parent.name, path.parent / ROOT, **item, expected=expected, also=also))
    return found


def write_expected(folder: Path, about: str, cases: Iterable[tuple[Sequence[str], Answer, Sequence[str]]]) -> None:
    """Write ``expected.json`` of a golden root: for each question (namespace, topic, version, level) the answer.

    Behind it stand the other kinds of answers that are right as well.

    A row takes a line, so that differences between two of these files can be read.
    """
    lines = ["{", f' "about": {json.dumps(about)},', ' "cases": [']
    written: list[str] = []
    for (namespace, topic, version, level), found, also in cases:
        asked: dict[str, Any] = {
            "namespace": namespace,
            "topic": topic,
            "version": version,
            "level": level,
            "answer": found.kind,
        }
        if also:
            asked["or"] = list(also)
        text = f"  {json.dumps(asked)[:-1]}"
        if found.kind == OK:
            rows = ",\n   ".join(json.dumps(row, ensure_ascii=False) for row in found.rows)
            text += f', "rows": [\n   {rows}]' if rows else ', "rows": []'
        written.append(f"{text}}}")
    lines += [",\n".join(written), " ]", "}", ""]
    (folder / EXPECTED).write_text("\n".join(lines), encoding="utf-8")


# --- comparing --------------------------------------------------------------------------------------------------------


def exact(value: Any) -> Any:
    """A JSON value so that two are equal if and only if they say the same: 1, 1.0 and true differ, as 0.0 and -0.0."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value if not isinstance(value, bool) else ("bool", value)
    if isinstance(value, int):
        return ("int", value)
    if isinstance(value, float):
        return ("float", struct.pack(">d", value))
    if isinstance(value, dict):
        return ("object", tuple(sorted((name, exact(item)) for name, item in value.items())))
    return ("array", tuple(exact(item) for item in value))


def difference(expected: Answer, found: Answer) -> str | None:
    """In what an answer differs from the expected one, in a sentence; None where in nothing.

    Visible rows of a partition must come in the order of their offsets. All others may come in any order.
    """
    if expected.kind != found.kind:
        return f"the answer is {found.kind}, not {expected.kind}"
    wanted, given = Counter(map(exact, expected.rows)), Counter(map(exact, found.rows))
    missing = [row for row in expected.rows if (wanted - given)[exact(row)]]
    added = [row for row in found.rows if (given - wanted)[exact(row)]]
    if missing or added:
        parts = [f"{len(found.rows)} rows instead of {len(expected.rows)}"]
        if missing:
            parts.append(f"missing is {_shown(missing[0])}")
        if added:
            parts.append(f"not expected is {_shown(added[0])}")
        return "; ".join(parts)
    last: dict[int, int] = {}
    for row in found.rows:
        partition, offset = row["_partition"], row["_offset"]
        if offset is not None:
            if offset <= last.get(partition, -1):
                return f"offset {offset} of partition {partition} comes behind offset {last[partition]}"
            last[partition] = offset
    return None


def _shown(row: dict[str, Any]) -> str:
    text = json.dumps(row)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


__all__ = [
    "EXIT_CODES",
    "EXPECTED",
    "GOLDEN",
    "LATEST",
    "LEVELS",
    "OK",
    "ROOT",
    "Answer",
    "Case",
    "cases_of",
    "difference",
    "exact",
    "write_expected",
]
