"""Which transaction made the messages of an offset visible, and when: what merged files store of their rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from txnlog.fold.state import Outcome

Numbers = npt.NDArray[Any]


class Origin(NamedTuple):
    """Of consecutive messages the numbers of their transactions, the versions that show them, and their times."""

    txns: Numbers
    versions: Numbers
    timestamps_ms: Numbers


class Origins:
    """The ranges of offsets that transactions were given, by topic and partition."""

    def __init__(self) -> None:
        self._spans: dict[tuple[int, int], list[tuple[int, int, int, int, int]]] = {}
        self._arrays: dict[tuple[int, int], Numbers] = {}

    def note(self, outcomes: Iterable[Outcome | None]) -> None:
        """Note what the transactions were given that an entry ended."""
        for outcome in outcomes:
            if outcome is None or not outcome.offsets:
                continue
            for span in outcome.offsets:
                self._spans.setdefault((span.topic, span.partition), []).append(
                    (span.start, span.end, outcome.number, outcome.version, outcome.timestamp_ms)
                )

    def of(self, topic: int, partition: int, offset: int, rows: int) -> Origin | None:
        """The origin of so many messages from an offset on; None where no transaction was given some of them."""
        place = (topic, partition)
        spans = self._arrays.get(place)
        if spans is None:
            # In the order of offsets: the transactions of one entry need not have it.
            spans = np.array(sorted(self._spans.get(place, ())), np.int64).reshape(-1, 5)
            self._arrays[place] = spans
        wanted = np.arange(offset, offset + rows)
        found = np.searchsorted(spans[:, 0], wanted, side="right") - 1
        if not len(spans) or (found < 0).any() or (wanted >= spans[found, 1]).any():
            return None
        return Origin(*(spans[found, column] for column in (2, 3, 4)))


__all__ = ["Origin", "Origins"]
