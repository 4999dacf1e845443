"""A mailbox gives back the commands that its writer put there, and nothing but exactly those."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
import xxhash

from tests.memory_log import SCHEMA, WRITER, Log
from txnlog.common.format_limits import MAX_PROPOSAL_BYTES
from txnlog.data import wire_rows
from txnlog.data.row_buffer import RowBuffer
from txnlog.data.wire_rows import WireRows
from txnlog.errors import TransactionTimedOut
from txnlog.format import schema
from txnlog.format.actions import (
    Acknowledgement,
    AlterTopic,
    DropTopic,
    PartitionRanges,
    Reserve,
    Segment,
    SliceRows,
    StreamBatch,
)
from txnlog.log.commands import Command, Piece, effect
from txnlog.log.dropped import SubscriptionPlace
from txnlog.log.number_pool import NumberPool, NumbersWanted
from txnlog.log.proposals.proposal_codec import (
    Mailbox,
    MalformedProposal,
    Proposed,
    ProposedCommit,
    ProposedNumbers,
    ProposedPiece,
    ProposedRows,
    can_be_proposed,
    commands_of,
    decode,
    encode,
)
from txnlog.log.transaction_commands import AbortCommand, CommitCommand, CompleteCommand, Opening, PrepareCommand

NUMBER = 1_000


def opening(log: Log, txn: int, **fields: Any) -> Opening:
    return Opening(log.state.txn_id(txn), lambda: 5_000, **fields)


def rows_of(log: Log, topic: int, *values: int) -> RowBuffer:
    buffer = RowBuffer(schema.to_arrow(log.state.topics[topic].schema), log.state.topics[topic].name)
    buffer.append([{"amount": value} for value in values])
    return buffer


def piece(log: Log, topic: int, partition: int, *values: int, sequence: int | None = None) -> Piece:
    buffer = rows_of(log, topic, *values)
    return Piece(topic, partition, buffer.rows, buffer.size_bytes, buffer, buffer.fingerprint(), sequence)


def sent(mailbox: Mailbox) -> bytes:
    content = msgspec.msgpack.encode(mailbox)
    return xxhash.xxh3_128_digest(content) + content


def read(log: Log, data: bytes | None) -> list[Command[Any]]:
    assert data is not None
    return commands_of(decode(data, WRITER), log.state)


def test_commits_with_all_that_they_may_hold_come_back(log: Log) -> None:
    orders, audit = log.topic("orders", 3), log.topic("audit")
    commit = CommitCommand(
        opening(
            log,
            7,
            producer="loader",
            epoch=4,
            app_id="job",
            app_version=-3,
            deadline_ms=65_000,
            timeout_ms=90_000,
            subscriptions={9: SubscriptionPlace(orders, "billing")},
        ),
        "0" * 32,
        (piece(log, orders, 2, 1, 2, sequence=40), piece(log, audit, 0, 3), piece(log, orders, 0, 4)),
        (),
        (Acknowledgement(9, 2, ranges=(PartitionRanges(0, ((1, 4),)),), cumulative=((1, 8),), expected=((1, 3),)),),
        StreamBatch("i", "q", 3, "d"),
        assign_sequences=True,
    )
    data = encode(WRITER, NUMBER, [commit], log.state)
    (found,) = read(log, data)
    assert isinstance(found, CommitCommand)
    for name in ("digest", "acknowledgements", "stream", "plain", "assign_sequences", "txn_ids"):
        assert getattr(found, name) == getattr(commit, name), name
    for name in ("producer", "epoch", "app_id", "app_version", "subscriptions", "id"):
        assert getattr(found.opening, name) == getattr(commit.opening, name), name
    assert data is not None
    (plain,) = decode(data, WRITER).commands
    assert isinstance(plain, ProposedCommit)
    assert plain.left_ms == 60_000, "what was left of it"
    for mine, its in zip(commit.pieces, found.pieces, strict=True):
        assert mine.content is not None
        assert its.content is not None
        assert its.content.to_table().equals(mine.content.to_table())
        assert (its.topic, its.partition, its.rows, its.digest, its.sequence) == (
            mine.topic, mine.partition, mine.rows, mine.digest, mine.sequence,
        )  # fmt: skip


def test_the_wish_for_numbers_comes_back(log: Log) -> None:
    pool = NumberPool(WRITER, lambda _number: False)
    (wish,) = read(log, encode(WRITER, None, [NumbersWanted(pool)], log.state))
    assert wish.decide(log.state.draft(), log.header(), {}) == [Reserve(WRITER, 1024, pool.wanted)]


def test_a_mailbox_says_when_it_was_put(log: Log) -> None:
    head = log.state.head
    for now_ms, wanted in ((0, head.timestamp_ms), (head.timestamp_ms + 7, head.timestamp_ms + 7)):
        data = encode(WRITER, NUMBER, [CommitCommand(opening(log, 7), "0" * 32)], log.state, now_ms)
        assert data is not None
        found = decode(data, WRITER)
        assert (found.version, found.time_ms) == (head.version, wanted)
        assert not found.is_over(head.version + 64, wanted + 60_000)
        assert found.is_over(head.version + 65, wanted)
        assert found.is_over(head.version + 1, wanted + 60_001)


def test_rows_of_an_older_schema_travel_in_the_newest_one(log: Log) -> None:
    topic = log.topic("orders")
    old = piece(log, topic, 0, 5)
    changed = msgspec.structs.replace(
        log.state.topics[topic].schema,
        fields=(*SCHEMA.fields, msgspec.structs.replace(SCHEMA.fields[-1], name="more", nullable=True)),
    )
    log.entry(AlterTopic(topic, schema=changed))
    commit = CommitCommand(opening(log, 7), "0" * 32, (old,))
    (found,) = read(log, encode(WRITER, NUMBER, [commit], log.state))
    assert isinstance(found, CommitCommand)
    content = found.pieces[0].content
    assert content is not None
    assert content.to_table().column_names[-1] == "more"


def test_rows_of_a_topic_that_was_dropped_do_not_travel(log: Log) -> None:
    topic = log.topic("orders")
    commit = CommitCommand(opening(log, 7), "0" * 32, (piece(log, topic, 0, 5),))
    log.entry(DropTopic(topic))
    (found,) = read(log, encode(WRITER, NUMBER, [commit], log.state))
    assert isinstance(found, CommitCommand)
    assert found.pieces[0].content is None


def test_what_can_be_proposed(log: Log) -> None:
    pool = NumberPool(WRITER, lambda _number: False)
    assert can_be_proposed(CommitCommand(opening(log, 1), "0" * 32))
    assert not can_be_proposed(AbortCommand(1))
    segment = Segment(11, 1, f"{1:032x}.parquet", 3, 99, "crc32:00000000", (SliceRows(0, 3),), 7)
    assert not can_be_proposed(CommitCommand(opening(log, 1), "0" * 32, (), (segment,)))
    assert can_be_proposed(NumbersWanted(pool))
    assert not can_be_proposed(PrepareCommand(opening(log, 1), "0" * 32))
    assert not can_be_proposed(CompleteCommand(1, commit=True))
    assert not can_be_proposed(effect(lambda _draft, _at: []))
    pool.demand(1 << 30)
    assert not can_be_proposed(NumbersWanted(pool))


def test_a_commit_past_its_deadline_is_not_proposed(log: Log) -> None:
    late = CommitCommand(opening(log, 7, deadline_ms=4_000, timeout_ms=1_000), "0" * 32)
    with pytest.raises(TransactionTimedOut):
        encode(WRITER, NUMBER, [late], log.state)


def test_too_many_bytes_are_not_proposed(log: Log) -> None:
    topic = log.topic("orders")
    small = piece(log, topic, 0, 1)
    big = Piece(topic, 0, 1, MAX_PROPOSAL_BYTES + 1, small.content, 0, None)
    assert encode(WRITER, NUMBER, [CommitCommand(opening(log, 7), "0" * 32, (big,))], log.state) is None
    many = Piece(topic, 0, 10_001, 1, small.content, 0, None)
    assert encode(WRITER, NUMBER, [CommitCommand(opening(log, 7), "0" * 32, (many,))], log.state) is None
    pieces = tuple([small] * 256)
    assert encode(WRITER, NUMBER, [CommitCommand(opening(log, 7), "0" * 32, pieces)], log.state) is None
    long = CommitCommand(opening(log, 7, app_id="x" * MAX_PROPOSAL_BYTES), "0" * 32)
    assert encode(WRITER, NUMBER, [long], log.state) is None


# --- refused ----------------------------------------------------------------------------------------------------------


def commit(**fields: Any) -> ProposedCommit:
    return ProposedCommit(7, "0" * 32, **fields)


def mailbox(*commands: Proposed, rows: dict[int, ProposedRows] | None = None) -> Mailbox:
    return Mailbox(1, WRITER, NUMBER, 1, 1, commands, rows or {})


def wire(log: Log, topic: int, *values: int) -> ProposedRows:
    rows = wire_rows.encode(rows_of(log, topic, *values).to_table())
    return ProposedRows(log.state.topics[topic].schemas[-1].version, rows)


def refused(log: Log, found: Mailbox, match: str) -> None:
    with pytest.raises(MalformedProposal, match=match):
        read(log, sent(found))


def test_bytes_that_changed_on_their_way_are_refused(log: Log) -> None:
    data = sent(mailbox(commit()))
    assert len(read(log, data)) == 1
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << random.Random(place).randrange(8)
        with pytest.raises(MalformedProposal, match="damaged"):
            decode(bytes(changed), WRITER)
    for size in range(len(data)):
        with pytest.raises(MalformedProposal, match="damaged"):
            decode(data[:size], WRITER)
    with pytest.raises(MalformedProposal, match="bytes"):
        decode(bytes(MAX_PROPOSAL_BYTES + 1), WRITER)


HEAD = {"format": 1, "writer": WRITER, "number": 1, "version": 1, "time_ms": 1}


@pytest.mark.parametrize(
    "content",
    [
        {"format": 2, "writer": WRITER, "number": 1, "version": 1, "time_ms": 1, "commands": []},
        {**HEAD, "commands": [], "more": 1},
        {"format": 1, "writer": WRITER, "number": -1, "version": 1, "time_ms": 1, "commands": []},
        {"format": 1, "writer": WRITER, "number": 1 << 63, "version": 1, "time_ms": 1, "commands": []},
        {"format": 1, "writer": WRITER, "number": 1},
        {"format": 1, "writer": WRITER, "commands": []},
        {
            "format": 1,
            "writer": WRITER,
            "number": 1,
            "version": 1,
            "time_ms": 1,
            "commands": [{"command": "drop", "topic": 1}],
        },
        {
            "format": 1,
            "writer": WRITER,
            "number": 1,
            "version": 1,
            "time_ms": 1,
            "commands": [{"command": "abort", "txn": 1}],
        },
        {**HEAD, "commands": [{"command": "commit"}]},
        {"format": 1, "writer": WRITER, "number": 1, "version": 1, "commands": []},
        {"format": 1, "writer": WRITER, "number": 1, "time_ms": 1, "commands": []},
        {
            "format": 1,
            "writer": WRITER,
            "number": 1,
            "version": 1,
            "time_ms": 1,
            "commands": [{"command": "reserve", "count": 255}],
        },
        {
            "format": 1,
            "writer": WRITER,
            "number": 1,
            "version": 1,
            "time_ms": 1,
            "commands": [{"command": "reserve", "count": 1 << 30}],
        },
        {
            "format": 1,
            "writer": WRITER,
            "number": 1,
            "version": 1,
            "time_ms": 1,
            "commands": [{"command": "reserve", "count": 0}],
        },
        [1, WRITER, 1, []],
        None,
    ],
)
def test_what_is_not_in_the_format_is_refused(content: Any) -> None:
    data = msgspec.msgpack.encode(content)
    with pytest.raises(MalformedProposal):
        decode(xxhash.xxh3_128_digest(data) + data, WRITER)


def test_a_mailbox_is_its_writers_and_has_a_number_where_it_does_something(log: Log) -> None:
    refused(log, msgspec.structs.replace(mailbox(), writer="f" * 32), "another writer")
    refused(log, msgspec.structs.replace(mailbox(ProposedNumbers(256), commit()), number=None), "number")
    refused(log, mailbox(ProposedNumbers(256), ProposedNumbers(256)), "more than once")
    assert len(read(log, sent(msgspec.structs.replace(mailbox(ProposedNumbers(256)), number=None)))) == 1


def test_rows_and_pieces_agree(log: Log) -> None:
    topic = log.topic("orders", 2)
    rows = {topic: wire(log, topic, 1, 2)}
    whole = mailbox(commit(pieces=(ProposedPiece(topic, 1, 2, 0),)), rows=rows)
    assert len(read(log, sent(whole))) == 1

    def with_pieces(*pieces: ProposedPiece) -> Mailbox:
        return msgspec.structs.replace(whole, commands=(commit(pieces=pieces),))

    refused(log, with_pieces(ProposedPiece(topic, 1, 1, 0)), "nothing names")
    refused(log, with_pieces(ProposedPiece(topic, 1, 3, 0)), "fewer rows")
    refused(log, with_pieces(ProposedPiece(topic, 1, 2, 0), ProposedPiece(topic, 1, 1, 0)), "fewer rows")
    refused(log, with_pieces(ProposedPiece(topic, 2, 2, 0)), "place")
    refused(log, with_pieces(ProposedPiece(topic + 1, 0, 2, 0)), "place")
    refused(log, msgspec.structs.replace(whole, rows={}), "no rows")
    refused(log, msgspec.structs.replace(whole, rows={topic: rows[topic], topic + 1: rows[topic]}), "no topic")


def test_rows_that_the_topic_would_not_take_are_refused(log: Log) -> None:
    topic = log.topic("orders")
    one = commit(pieces=(ProposedPiece(topic, 0, 2, 0),))
    version = log.state.topics[topic].schemas[-1].version
    refused(log, mailbox(one, rows={topic: ProposedRows(version, WireRows(2, (None, b"\x00" * 3)))}), "rows")
    known = wire(log, topic, 1, 2)
    refused(log, mailbox(one, rows={topic: msgspec.structs.replace(known, schema=version - 1)}), "schema")
    refused(log, mailbox(one, rows={topic: msgspec.structs.replace(known, schema=version + 1)}), "schema")


def test_more_than_a_proposal_may_ask_for_is_refused(log: Log) -> None:
    topic = log.topic("orders")
    refused(log, mailbox(*[commit()] * 257), "more than one proposal")
    refused(log, mailbox(commit(pieces=(ProposedPiece(topic, 0, 1, 0),) * 257)), "more than one proposal")
    refused(log, mailbox(commit(pieces=(ProposedPiece(topic, 0, 6_000, 0),) * 2)), "more than one proposal")
    refused(log, mailbox(commit(pieces=(ProposedPiece(topic, 0, 0, 0),))), "form")
