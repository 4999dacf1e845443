"""Golden roots with forged entries, continued: what somebody who had PROTOCOL.md alone once had to guess."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from txnlog.format.keys import entry_key
from txnlog.testing.conformance.roots_of_entries import (
    FIRST,
    NUMBER,
    OTHER,
    Change,
    commit,
    first_segment,
    forged,
    line,
    segment,
    subscription,
    topic,
)
from txnlog.testing.conformance.workshop import Workshop

_MOST: Final = 2**63 - 1
_LATER: Final = line("protocol", reader_version=2, writer_version=2)
_FIRST_MESSAGE: Final[dict[str, Any]] = {"ranges": [[0, [[0, 1]]]]}
"""What acknowledges the first message of partition 0."""

_HALF: Final = r"\ud83d"
"""The first half of a surrogate pair, as JSON escapes it."""


def _of(kind: str, *lines: Callable[[int], str], start: tuple[int, int] = (0, 0)) -> Change:
    """Create a subscription of ``orders``, then append an entry for each line; each line gets the subscription's id."""

    def change(shop: Workshop) -> None:
        number = shop.forge(subscription(kind, *start))
        for text in lines:
            shop.forge(text(number))

    return change


def _lease(*ranges: Any, action: str = "lease", consumer: str = "a") -> Callable[[int], str]:
    return lambda number: line(action, subscription=number, consumer=consumer, ranges=ranges)


def _acknowledged(txn: int, **wanted: Any) -> Callable[[int], str]:
    return lambda number: commit(txn, acknowledgements=[{"subscription": number, "epoch": number} | wanted])


def _claimed(txn: int, **wanted: Any) -> Callable[[int], str]:
    """A line by which an open transaction acknowledges."""
    return lambda number: line(
        "acknowledge", txn=txn, acknowledgement={"subscription": number, "epoch": number} | wanted
    )


def _begun(txn: int) -> Callable[[int], str]:
    return lambda _: line("begin", txn=txn)


def _second_by_itself(*lines: Callable[[int], str]) -> Change:
    """The second message of partition 0 is acknowledged by itself, then follow these lines."""
    return _of("exclusive", _acknowledged(NUMBER, ranges=[[0, [[1, 2]]]]), *lines)


def _one_by_itself(partition: int) -> Change:
    """One message of partition 0 is acknowledged by itself, then all, with the cursor expected of a partition."""
    return _second_by_itself(_acknowledged(OTHER, cumulative=[[0, 2]], expected=[[partition, 0]]))


def _against_another(kind: str, first: dict[str, Any], *lines: Callable[[int], str]) -> Change:
    """What an open transaction acknowledged, and lines of others."""
    return _of(kind, _begun(NUMBER), _claimed(NUMBER, **first), *lines)


def _sought_twice(number: int) -> str:
    """A line that seeks in one partition twice."""
    return line("seek", subscription=number, positions=[[0, 2], [0, 1]])


def _stream(identity: str) -> dict[str, Any]:
    return {"identity": identity, "query": "carriers", "batch": 1, "offsets_digest": ""}


def _gap(shop: Workshop) -> None:
    """An entry that only a later reader understands, and behind it one that is missing."""
    version = shop.forge(_LATER)
    shop.forge()
    shop.forge()
    (shop.home / entry_key(version + 1)).unlink()


def _long(*rows: int) -> Change:
    """A topic of one partition that gets so many rows, whose files are of no interest."""

    def change(shop: Workshop) -> None:
        topic_id = shop.forge(topic("long"))
        for place, count in enumerate(rows):
            number = NUMBER + 2 * place
            fields = {"topic": topic_id, "file": f"{place:032x}.parquet", "rows": count, "slices": [[0, count]]}
            fields |= {"size_bytes": 1, "checksum": "crc32:00000000"}
            shop.forge(line("segment", segment=number, **fields), commit(number + 1, [number, 0, count]))

    return change


def _replaced_twice_at_once(shop: Workshop) -> None:
    """A ``replace`` that removes one segment twice."""
    removed = first_segment(shop)
    shop.forge(
        line("begin", txn=OTHER),
        segment(2, "compacted", txn=OTHER, compacted=True),
        line("replace", topic=1, txn=OTHER, removed=[removed, removed], offsets=[0]),
    )


def _replaced_and_claimed(shop: Workshop) -> None:
    """A ``replace`` by a transaction that claimed a message of a subscription which was dropped since."""
    number = shop.forge(subscription("shared", 0, 0))
    claim = {"subscription": number, "epoch": number, "ranges": [[0, [[0, 1]]]]}
    shop.forge(
        line("begin", txn=OTHER),
        line("acknowledge", txn=OTHER, acknowledgement=claim),
        line("drop_subscription", subscription=number),
        segment(2, "compacted", txn=OTHER, compacted=True),
        line("replace", topic=1, txn=OTHER, removed=[first_segment(shop)], offsets=[0]),
    )


def _fenced(shop: Workshop) -> None:
    """A producer that an administrator fenced, and a transaction with the epoch that nobody owns."""
    epoch = shop.forge(line("producer", name="loader", fenced_by="ada"))
    shop.forge(line("begin", txn=OTHER, producer="loader", epoch=epoch))


def _dead_letters(**types: str) -> Change:
    """A topic with some columns of dead letters, none of them nullable."""
    fields = [{"name": name, "type": kind, "nullable": False} for name, kind in types.items()]
    return forged(line("topic", name="new", partitions=1, schema={"type": "struct", "fields": fields}))


REFUSED_GUESSES: Final[dict[str, Change]] = {
    "first_line_of_an_unknown_action": forged(action="merge"),
    "half_of_a_surrogate_pair": forged(f'{{"action":"abort","txn":{NUMBER},"why":"{_HALF}"}}'),
    "half_of_a_surrogate_pair_in_a_key": forged(
        f'{{"action":"alter_topic","topic":1,"properties":{{"user.{_HALF}":"x"}}}}'
    ),
    "half_of_a_surrogate_pair_in_statistics": forged(
        segment(statistics={"name": ["HALF", None, 0]}).replace("HALF", _HALF),
        commit(OTHER, [NUMBER, 0, 1], [NUMBER, 1, 1]),
    ),
    "gap_above_an_unsupported_entry": _gap,
    "back_to_version_0_of_a_later_reader": forged(line("protocol", reader_version=2, writer_version=0)),
    "ranges_out_of_order_in_front_of_an_unknown_action": forged(
        line("lease", subscription=1, consumer="a", ranges=[[0, [[2, 1]]]]), line("merge")
    ),
    "slice_without_rows_in_front_of_an_unknown_action": forged(segment(slices=[[0, 2], [1, 0]]), line("merge")),
    "segment_without_slices": forged(segment(rows=0, slices=[])),
    "prepared_with_a_digest_that_is_no_label": forged(line("prepare", txn=FIRST, digest="\n")),
    "committed_with_a_digest_that_is_no_label": forged(commit(FIRST, digest="\n")),
    "application_that_is_no_label_is_forgotten": forged(line("forget_app", app_id="")),
    "subscription_that_is_not_there_is_dropped": forged(line("drop_subscription", subscription=1_000)),
    "dead_letter_topic_of_a_forbidden_name": forged(subscription("shared", 0, 0, dead_letter_topic="a/b")),
    "lease_of_no_ranges": _of("shared", _lease([0, []])),
    "lease_of_ranges_that_touch": _of("shared", _lease([0, [[0, 1], [1, 2]]])),
    "lease_behind_the_end": _of("shared", _lease([0, [[1, 3]]])),
    "lease_of_no_partition": _of("shared", _lease([2, [[0, 1]]])),
    "lease_to_no_label": _of("shared", _lease([0, [[0, 1]]], consumer="")),
    "release_behind_the_end": _of("shared", _lease([0, [[1, 3]]], action="release")),
    "acknowledgement_of_no_ranges": _of("shared", _acknowledged(OTHER, ranges=[[0, []]])),
    "acknowledgement_behind_the_end": _of("shared", _acknowledged(OTHER, ranges=[[0, [[1, 3]]]])),
    "cursor_is_expected_elsewhere": _of("exclusive", _acknowledged(OTHER, cumulative=[[0, 2]], expected=[[0, 1]])),
    "cursor_is_expected_below_a_message_that_was_acknowledged_by_itself": _one_by_itself(0),
    "acknowledgement_of_no_partition": _of("shared", _acknowledged(OTHER, ranges=[[2, [[0, 1]]]])),
    "cumulative_end_of_no_partition": _of("exclusive", _acknowledged(OTHER, cumulative=[[2, 1]])),
    "cumulative_end_behind_the_end": _of("exclusive", _acknowledged(OTHER, cumulative=[[0, 3]])),
    "cursor_is_expected_of_no_partition": _of("exclusive", _acknowledged(OTHER, **_FIRST_MESSAGE, expected=[[2, 0]])),
    "cursor_is_expected_at_two_places": _of(
        "exclusive", _acknowledged(OTHER, **_FIRST_MESSAGE, expected=[[0, 0], [0, 1]])
    ),
    "cursor_is_expected_below_the_second_of_two_ends": _second_by_itself(
        _acknowledged(OTHER, cumulative=[[0, 1], [0, 2]], expected=[[0, 0]])
    ),
    "cursor_is_expected_and_the_rest_is_acknowledged_by_itself": _second_by_itself(
        _acknowledged(OTHER, **_FIRST_MESSAGE, cumulative=[[0, 2]], expected=[[0, 0]])
    ),
    "message_twice_in_one_list": _of("exclusive", _acknowledged(OTHER, ranges=[[0, [[0, 1]]], [0, [[0, 2]]]])),
    "message_that_was_acknowledged": _second_by_itself(_acknowledged(OTHER, ranges=[[0, [[0, 2]]]])),
    "message_that_another_transaction_claims": _against_another(
        "shared", _FIRST_MESSAGE, _acknowledged(OTHER, ranges=[[0, [[0, 2]]]])
    ),
    "message_below_a_claimed_end": _against_another(
        "exclusive", {"cumulative": [[0, 1]]}, _acknowledged(OTHER, **_FIRST_MESSAGE)
    ),
    "cumulative_ends_that_go_back": _of("exclusive", _acknowledged(OTHER, cumulative=[[0, 2], [0, 1]])),
    "cumulative_end_above_what_another_claims": _against_another(
        "exclusive", _FIRST_MESSAGE, _acknowledged(OTHER, cumulative=[[0, 2]])
    ),
    "cumulative_end_above_that_of_another": _against_another(
        "exclusive", {"cumulative": [[0, 1]]}, _acknowledged(OTHER, cumulative=[[0, 2]])
    ),
    "cumulative_end_of_a_shared_subscription": _of("shared", _acknowledged(OTHER, cumulative=[[0, 2]])),
    "seek_of_what_is_claimed": _against_another(
        "exclusive", _FIRST_MESSAGE, lambda number: line("seek", subscription=number, positions=[[0, 0]])
    ),
    "earliest_offsets_that_go_back_in_one_line": forged(line("delete_records", topic=1, before=[[0, 2], [0, 1]])),
    "stream_that_is_no_label": forged(commit(OTHER, stream=_stream(""))),
    "stream_that_is_no_label_in_front_of_an_unknown_action": forged(commit(OTHER, stream=_stream("")), line("merge")),
    "share_without_rows_in_front_of_an_unknown_action": forged(commit(OTHER, [NUMBER, 0, 0]), line("merge")),
    "application_that_is_no_label_begins": forged(line("begin", txn=OTHER, app_id="", app_version=1)),
    "application_that_is_no_label_commits": forged(commit(OTHER, app_id="", app_version=1)),
    "end_of_64_bits": _long(_MOST, 1),
    "replace_that_removes_a_segment_twice": _replaced_twice_at_once,
    "replace_by_a_transaction_that_claimed_of_a_dropped_subscription": _replaced_and_claimed,
    "namespace_of_a_forbidden_name_is_registered": forged(line("register", name="_catalog", coordinator=0, log="")),
    "segment_of_no_topic": forged(segment(1, topic=3), commit(OTHER, [NUMBER, 0, 1])),
    "coordinator_of_17_bits_is_registered": forged(line("register", name="new", coordinator=2**16, log="0" * 32)),
    "dead_letter_column_of_another_type": _dead_letters(_source_offset="integer"),
}
"""Of each variant what is done to the root; a reader that takes it answers with rows."""

EITHER: Final[dict[str, tuple[str, ...]]] = {"gap_above_an_unsupported_entry": ("damaged",)}
"""Of these variants the answers that are right besides this project's own."""

ACCEPTED_GUESSES: Final[dict[str, Change]] = {
    "writers_that_are_no_hexadecimal_digits": forged(
        line("reserve", writer="", first=FIRST + 256, count=256), writer="a writer"
    ),
    "application_that_is_unknown_is_forgotten": forged(line("forget_app", app_id="nightly")),
    "dead_letter_topic_that_is_not_there": forged(subscription("shared", 0, 0, dead_letter_topic="nowhere")),
    "lease_and_release_below_the_position": _of(
        "shared", _lease([0, [[0, 2]]]), _lease([0, [[0, 1]]], action="release"), _lease(), start=(1, 0)
    ),
    "cursor_is_expected_of_another_partition": _one_by_itself(1),
    "partition_twice_in_one_list": _of(
        "exclusive",
        _acknowledged(OTHER, ranges=[[0, [[1, 2]]], [0, [[0, 1]]]]),
        _acknowledged(NUMBER, expected=[[0, 2], [0, 2]]),
    ),
    "cumulative_ends_that_go_on": _of(
        "exclusive", _acknowledged(OTHER, cumulative=[[0, 1], [0, 2]]), _acknowledged(NUMBER, expected=[[0, 2]])
    ),
    "earliest_offsets_that_go_on_in_one_line": forged(line("delete_records", topic=1, before=[[0, 1], [0, 2]])),
    "seek_to_two_places": _of(
        "exclusive",
        _sought_twice,
        lambda number: _acknowledged(OTHER, epoch=number + 1, expected=[[0, 1]])(number),
    ),
    "leases_of_a_partition_twice": _of(
        "shared",
        _lease([0, [[1, 2]]], [0, [[0, 2]]]),
        _lease([0, [[0, 2]]], [0, [[0, 1]]], action="release"),
    ),
    "cursor_passes_over_what_its_transaction_claims": _of(
        "exclusive",
        _begun(OTHER),
        _claimed(OTHER, ranges=[[0, [[1, 2]]]]),
        lambda number: commit(
            OTHER,
            acknowledgements=[{"subscription": number, "epoch": number, "cumulative": [[0, 2]], "expected": [[0, 0]]}],
        ),
    ),
    "cursor_passes_over_its_own_ranges": _of(
        "exclusive", _acknowledged(OTHER, **_FIRST_MESSAGE, cumulative=[[0, 2]], expected=[[0, 0]])
    ),
    "cursor_is_expected_below_a_message_that_nothing_passes": _second_by_itself(
        _acknowledged(OTHER, **_FIRST_MESSAGE, expected=[[0, 0]]),
        _acknowledged(OTHER + 1, expected=[[0, 2]]),
    ),
    "end_of_63_bits": _long(_MOST - 1, 1),
    "coordinator_of_16_bits_is_registered": forged(line("register", name="new", coordinator=2**16 - 1, log="0" * 32)),
    "fenced_producer_that_goes_on": _fenced,
    "columns_of_dead_letters": _dead_letters(_source_offset="long", _dead_reason="string"),
}
"""Entries that look unusual and are fine."""


__all__ = ["ACCEPTED_GUESSES", "EITHER", "REFUSED_GUESSES"]
