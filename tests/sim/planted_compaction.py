"""Known bugs of key compaction, planted as those of ``planted.py`` are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec.structs import replace

from tests.sim.planted import Mutant
from tests.sim.planted_holes import holes_are_nobodys
from txnlog.client.connection import Connection
from txnlog.fold.state import SegmentRecord, TopicRecord
from txnlog.maintenance import compaction, merging, rewriting
from txnlog.maintenance.compaction import Compaction, _Decision
from txnlog.maintenance.merge_plan import Output
from txnlog.maintenance.merging import Rows
from txnlog.maintenance.rewriting import Mask, segments_at


class _Always:
    """A setting that says the same of every topic."""

    def __init__(self, value: object) -> None:
        self._value = value

    def of(self, _properties: object) -> object:
        return self._value


def newest_goes_as_well(patch: pytest.MonkeyPatch) -> None:
    """The newest message of a key is one of those that have a newer one."""
    newest = compaction._newest

    def behind(several: Sequence[Any]) -> tuple[Any, Any]:
        codes, found = newest(several)
        return codes, found._replace(offsets=found.offsets + 1)

    patch.setattr(compaction, "_newest", behind)


def oldest_stays(patch: pytest.MonkeyPatch) -> None:
    """Of each key among the new messages the first one stays, and not the last one."""
    newest = compaction._newest
    note = _Decision._note

    def first(several: Sequence[Any]) -> tuple[Any, Any]:
        codes, found = newest(several)
        offsets = np.concatenate([item.offsets for item in several])
        has_key = codes >= 0
        np.minimum.at(found.offsets, codes[has_key], offsets[has_key])
        return codes, found

    def others(self: _Decision, partition: int, several: Sequence[Any], codes: Any) -> None:
        if codes is None or partition not in self._newest:
            return note(self, partition, several, codes)
        place = 0
        for item in several:
            places = codes[place : place + len(item.offsets)]
            kept = np.where(places < 0, item.offsets, self._newest[partition].offsets[places])
            self.going.note(item.part, (item.offsets > kept) & item.may)
            place += len(item.offsets)
        return None

    patch.setattr(compaction, "_newest", first)
    patch.setattr(_Decision, "_note", others)


def keys_of_all_partitions(patch: pytest.MonkeyPatch) -> None:
    """A newer message of the key counts in whatever partition it is."""
    begin = _Decision.begin

    def everywhere(self: _Decision, new: Iterable[Rows]) -> None:
        begin(self, new)
        for partition in self._found.starts if self._newest else ():
            self._newest[partition] = max(self._newest.values(), key=lambda item: len(item.keys))

    patch.setattr(_Decision, "begin", everywhere)


def unfinished_transactions_count(patch: pytest.MonkeyPatch) -> None:
    """What a transaction has logged counts as if it were committed, behind all others."""

    def more(connection: Connection, topic: TopicRecord, known: int) -> tuple[list[SegmentRecord], Any]:
        shown, others = segments_at(connection, topic, known)
        ends = {item.partition: record.end_of(item) for record in shown for item in record.slices}
        for record, replaced in others:
            if replaced is None and not record.compacted:
                moved = tuple(replace(item, offset=ends.get(item.partition, 0)) for item in record.slices)
                shown.append(replace(record, slices=moved, ended_version=known, timestamp_ms=0))
        return shown, others

    patch.setattr(compaction, "segments_at", more)


def keys_end_at_once(patch: pytest.MonkeyPatch) -> None:
    """No reader has time to see that a key is gone."""
    patch.setattr(Compaction, "_kept_ms", lambda _self: 0)


def any_message_ends_its_key(patch: pytest.MonkeyPatch) -> None:
    """A message goes when the time of those without a value is over, whether it has one or not."""
    patch.setattr(_Decision, "_ended", lambda _self, _rows, key: np.asarray(pc.is_valid(key)))


def ends_of_keys_go_first(patch: pytest.MonkeyPatch) -> None:
    """What is written again begins at the end of the topic."""
    groups = rewriting._groups
    patch.setattr(rewriting, "_groups", lambda records: groups(records)[::-1])


def subscriptions_need_nothing(patch: pytest.MonkeyPatch) -> None:
    """What a subscription has not acknowledged goes like everything else."""
    patch.setattr(compaction, "COMPACT_UNACKNOWLEDGED", _Always(True))


def nothing_is_too_new(patch: pytest.MonkeyPatch) -> None:
    """Messages go, however young they are."""
    patch.setattr(compaction, "MIN_COMPACTION_LAG_MS", _Always(0))


def one_more_is_old_enough(patch: pytest.MonkeyPatch) -> None:
    """With what is old enough the first message that is not."""
    limits = Compaction._limits

    def more(self: Compaction, topic: TopicRecord) -> dict[int, int]:
        return {partition: limit + 1 for partition, limit in limits(self, topic).items()}

    patch.setattr(Compaction, "_limits", more)


def never_decided_again(patch: pytest.MonkeyPatch) -> None:
    """What was decided goes, whatever the topic and its subscriptions ask for by now."""
    patch.setattr(Compaction, "_decides_alike", lambda *_: True)


def messages_without_a_key_are_one(patch: pytest.MonkeyPatch) -> None:
    """Of the messages that have no key the newest one stays."""
    keys_of = compaction._keys_of

    def filled(several: Sequence[Any]) -> pa.ChunkedArray:
        return pc.fill_null(keys_of(several), b"")

    patch.setattr(compaction, "_keys_of", filled)


def what_stays_moves_up(patch: pytest.MonkeyPatch) -> None:
    """Behind a message that went the others get new offsets."""
    of_output = merging._of_output

    def dense(rows: Rows, output: Output) -> Rows:
        found = of_output(rows, output)
        if output.has_holes:
            return found._replace(offsets=np.arange(rows.part.offset, rows.part.offset + len(found.offsets)))
        return found

    patch.setattr(merging, "_of_output", dense)


def the_next_row_goes(patch: pytest.MonkeyPatch) -> None:
    """What was decided of the rows of a segment is carried out a row later."""
    of = rewriting.Going.of

    def later(self: rewriting.Going, rows: Rows) -> Mask:
        return np.roll(of(self, rows), 1)

    patch.setattr(rewriting.Going, "of", later)


def _mutant(name: str, plant: Any, *kinds: str) -> Mutant:
    return Mutant(name, plant, ("writer", *kinds), workload="compacted")


COMPACTION_MUTANTS: Final = (
    _mutant("the newest message of a key goes as well", newest_goes_as_well),
    _mutant("the oldest message of a key stays", oldest_stays),
    _mutant("keys of all partitions are one", keys_of_all_partitions),
    _mutant("unfinished transactions count for compaction", unfinished_transactions_count),
    _mutant("keys end at once", keys_end_at_once),
    _mutant("any message ends its key", any_message_ends_its_key),
    _mutant("ends of keys go first", ends_of_keys_go_first),
    _mutant("compaction passes cursors", subscriptions_need_nothing, "pipeline"),
    _mutant("nothing is too new to be compacted", nothing_is_too_new),
    _mutant("one message more is compacted", one_more_is_old_enough, "pipeline"),
    _mutant("a compaction is never decided again", never_decided_again, "pipeline"),
    _mutant("messages without a key have one", messages_without_a_key_are_one),
    _mutant("what a compaction leaves moves up", what_stays_moves_up, "reader"),
    _mutant("compaction takes the next row", the_next_row_goes),
    _mutant("holes of compactions are nobody's", holes_are_nobodys, "pipeline"),
)
