"""What must hold of the rows of published tables, and of what processes say. Pure: rows and facts in, findings out.

What every published Delta log must be is in ``tests.catalog.replaying``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from txnlog.format.keys import SEGMENT_COLUMN


def with_offsets(found: pa.Table, segments: pa.Table) -> dict[tuple[int, int], tuple[str, int]]:
    """By partition and offset the label and part of each row, by the table of segments. Raises ValueError.

    The rows of a segment must be in the order of its file.
    """
    parts: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for row in segments.to_pylist():
        parts[row["segment"]].append((row["first_row"], row["rows"], row["partition"], row["base_offset"]))
    seen: Counter[int] = Counter()
    result: dict[tuple[int, int], tuple[str, int]] = {}
    for row in found.select([SEGMENT_COLUMN, "label", "part"]).to_pylist():
        number = row[SEGMENT_COLUMN]
        at = seen[number]
        seen[number] += 1
        place = next(
            (
                (partition, base + at - first)
                for first, rows, partition, base in parts.get(number, ())
                if first <= at < first + rows
            ),
            None,
        )
        if place is None:
            raise ValueError(f"the table of segments does not know row {at} of segment {number}")
        if place in result:
            raise ValueError(f"two rows have the offset {place}")
        result[place] = row["label"], row["part"]
    return result


def lost_and_torn(
    contents: Mapping[str, Mapping[str, int]],
    committed: Iterable[str],
    refused: Iterable[str],
    rows: Mapping[str, pa.Table],
) -> Iterator[str]:
    """What was acknowledged is there, whole; what was refused is not; nothing is there in part.

    ``contents`` has by label the rows by topic of what was ever intended; ``rows`` the newest tables.
    """
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for topic, table in rows.items():
        for label, part in zip(*(table.column(name).to_pylist() for name in ("label", "part")), strict=True):
            found[label].setdefault(topic, []).append(part)
    for label in sorted(found.keys() - contents.keys()):
        yield f"{label} is published, and nobody intended it"
    for label, topics in contents.items():
        wanted = {topic: list(range(count)) for topic, count in topics.items() if topic in rows}
        there = {topic: sorted(parts) for topic, parts in found.get(label, {}).items()}
        if there and there != wanted:
            yield f"{label} is published torn or doubled: {there}, not {wanted}"
    for label in committed:
        if label not in found and not rows.keys().isdisjoint(contents[label]):
            yield f"{label} was acknowledged, and is not published"
    yield from (f"{label} was refused, and is published" for label in refused if label in found)


_PUBLISHING = re.compile(r"txnlog\.(publisher|upkeep) ")
_WITHOUT_ANSWER = re.compile(r"\(planted\)|the store did not say")


def told_in(log: str, name: str) -> Iterator[str]:
    """What a process says in its log of publishing in the background, unless it is that the store did not answer.

    No committer hears of that: neither of a bug there, nor that something was found damaged.
    """
    for line in log.splitlines():
        if _PUBLISHING.search(line) and not _WITHOUT_ANSWER.search(line):
            yield f"{name} says: {line}"
