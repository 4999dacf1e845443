"""What must hold of the rows of published tables, and of what processes log. Pure: rows in, findings out.

What every published Delta log must be is in ``tests.catalog.replaying``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pyarrow as pa

from txnlog.format.keys import SEGMENT_COLUMN


def with_offsets(found: pa.Table, segments: pa.Table) -> dict[tuple[int, int], int]:
    """By partition and offset the value of each row, by the table of segments. Raises ValueError.

    The rows of a segment must be in the order of its file.
    """
    parts: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for row in segments.to_pylist():
        parts[row["segment"]].append((row["first_row"], row["rows"], row["partition"], row["base_offset"]))
    seen: Counter[int] = Counter()
    result: dict[tuple[int, int], int] = {}
    for row in found.select([SEGMENT_COLUMN, "value"]).to_pylist():
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
        result[place] = row["value"]
    return result


_PUBLISHING = re.compile(r"txnlog\.(publisher|maintain) ")
_WITHOUT_ANSWER = re.compile(r"\(planted\)|the store did not say")


def told_in(log: str, name: str) -> Iterator[str]:
    """What a process says in its log of publishing in the background, unless it is that the store did not answer.

    No committer hears of that: neither of a bug there, nor that something was found damaged.
    """
    for line in log.splitlines():
        if _PUBLISHING.search(line) and not _WITHOUT_ANSWER.search(line):
            yield f"{name} says: {line}"
