"""Attacks on mailboxes and what is made of them. The docstring of each names its kind."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import xxhash

from tests.memory_log import WRITER, Log
from txnlog.data.row_buffer import RowBuffer
from txnlog.data.wire_rows import WireRows
from txnlog.format import schema
from txnlog.format.actions import AlterTopic, Topic
from txnlog.log.commands import Command, Piece
from txnlog.log.proposals.proposal_codec import (
    Mailbox,
    MalformedProposal,
    ProposedCommit,
    ProposedNumbers,
    ProposedPiece,
    ProposedRows,
    commands_of,
    decode,
    encode,
)
from txnlog.log.transaction_commands import CommitCommand, Opening

NUMBER = 1_000


def topic_of(log: Log, columns: pa.Schema) -> int:
    log.entry(Topic("wide", schema.from_arrow(columns), 1))
    return max(log.state.topics)


def piece(log: Log, topic: int, rows: Any) -> Piece:
    buffer = RowBuffer(schema.to_arrow(log.state.topics[topic].schema), "wide")
    buffer.append(rows)
    return Piece(topic, 0, buffer.rows, buffer.size_bytes, buffer, buffer.fingerprint(), None)


def commit(log: Log, *pieces: Piece, txn: int = 7) -> CommitCommand:
    return CommitCommand(Opening(log.state.txn_id(txn), lambda: 0), "0" * 32, pieces)


def mailbox(log: Log, *commands: Command[Any]) -> bytes:
    data = encode(WRITER, NUMBER, commands, log.state)
    assert data is not None
    return data


def packed(made: Mailbox) -> bytes:
    content = msgspec.msgpack.encode(made)
    return xxhash.xxh3_128_digest(content) + content


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        pytest.param(pa.decimal128(10, 2), pa.decimal128(12, 4), [Decimal("12.34"), Decimal("1.00")], id="decimals"),
        pytest.param(pa.int32(), pa.int64(), [5, 6], id="whole numbers"),
        pytest.param(pa.float32(), pa.float64(), [5.0, 6.0], id="floats"),
    ],
)
@pytest.mark.parametrize("knows_it", ["who collects", "who proposes"])
def test_rows_of_another_schema_are_refused(
    narrow: pa.DataType, wide: pa.DataType, values: list[Any], knows_it: str
) -> None:
    """TEAR: amounts of a column that was widened are taken through a hundred, or times a hundred.

    Proposer and collector need not know the same schema: either may not have read the entry that widens the column. The
    buffers of a decimal have 16 bytes a value whatever its scale, and nothing in a mailbox says which one it was. Where
    the proposer is ahead, bytes of an ``int64`` pass for an ``int32`` as well, and those of a ``double`` for a
    ``float``: buffers may be longer than need be.
    """
    older, newer = Log(), Log()
    topic = -1
    for log in (older, newer):
        topic = topic_of(log, pa.schema([("amount", narrow)]))
    newer.entry(AlterTopic(topic, schema=schema.from_arrow(pa.schema([("amount", wide)]))))
    sender, receiver = (older, newer) if knows_it == "who collects" else (newer, older)
    data = mailbox(sender, commit(sender, piece(sender, topic, [{"amount": value} for value in values])))
    try:
        (found,) = commands_of(decode(data, WRITER), receiver.state)
    except MalformedProposal:
        return
    content = found.pieces[0].content
    assert content is not None
    assert content.to_table().column("amount").to_pylist() == values


def test_a_commit_of_many_calls_is_not_proposed() -> None:
    """STALL, COST: one commit of somebody else stopped a whole process for 13 seconds.

    A transaction with a call of ``produce`` for each row (4,000 rows of a topic with 100 columns, 3 MB) is nothing to
    its owner: 0.08 s. Who collects has a table for each of them. Nothing in it is hostile.
    """
    log = Log()
    topic = topic_of(log, pa.schema([(f"c{number}", pa.int64()) for number in range(100)]))
    many = commit(log, *[piece(log, topic, [{"c1": number}]) for number in range(300)])
    assert encode(WRITER, NUMBER, [many], log.state) is None


def test_a_mailbox_has_no_more_commands_than_an_entry_has_lines() -> None:
    """COST: somebody who may write below ``_proposals/`` fills logs, and stops who collects, with 4 MB.

    Shares are counted, ``reserve`` and ``abort`` are not. 160,000 reservations in one mailbox are 160,000 blocks of
    numbers; each is decided with a tuple of all open blocks made anew, and half of them at a time fall out of an entry
    that is too long.
    """
    log = Log()
    wishes = packed(Mailbox(1, WRITER, None, 1, 1, tuple([ProposedNumbers(256)] * 160_000)))
    with pytest.raises(MalformedProposal):
        commands_of(decode(wishes, WRITER), log.state)


def test_pieces_without_rows_are_refused() -> None:
    """COST: 300 kB in a mailbox stop a process for four seconds, and there may be 55 of them in one cycle.

    No call of ``produce`` without rows makes a piece; an entry cannot hold a share of 0 rows.
    """
    log = Log()
    topic = topic_of(log, pa.schema([("amount", pa.int64())]))
    for empty in ((ProposedPiece(topic, 0, 0, 0),), tuple([ProposedPiece(topic, 0, 1, 0)] * 5_000)):
        made = Mailbox(1, WRITER, NUMBER, 1, 1, (ProposedCommit(7, "0" * 32, empty),))
        with pytest.raises(MalformedProposal):
            commands_of(decode(packed(made), WRITER), log.state)


# --- buffers that end the process -------------------------------------------------------------------------------------

OFFSETS = bytes(12)
CASES: dict[str, tuple[pa.DataType, int, tuple[bytes | None, ...]]] = {
    "no values, no rows": (pa.int64(), 0, (None, None)),
    "no values of no element": (pa.list_(pa.int64()), 2, (None, OFFSETS, None, None)),
    "no offsets of no element": (pa.list_(pa.list_(pa.int64())), 2, (None, OFFSETS, None, None, None, b"")),
    "offsets of no element that are none": (
        pa.list_(pa.list_(pa.binary())), 2, (None, OFFSETS, None, b"x" * 64, None, bytes(4), b""),
    ),
    "no values of no entry": (
        pa.map_(pa.string(), pa.int64()), 2, (None, OFFSETS, None, None, bytes(4), b"", None, None),
    ),
}  # fmt: skip


def look_into(name: str) -> None:
    """What who collects does with such a mailbox."""
    kind, rows, buffers = CASES[name]
    log = Log()
    topic = topic_of(log, pa.schema([("x", kind)]))
    pieces = (ProposedPiece(topic, 0, rows or 1, 0),)
    wire = {topic: ProposedRows(log.state.topics[topic].schemas[-1].version, WireRows(rows, buffers))}
    made = Mailbox(1, WRITER, NUMBER, 1, 1, (ProposedCommit(7, "0" * 32, pieces),), wire)
    with suppress(MalformedProposal):  # it is passed over
        commands_of(decode(packed(made), WRITER), log.state)


@pytest.mark.clause("P-247")
@pytest.mark.parametrize("name", CASES)
def test_no_buffers_end_the_process(name: str) -> None:
    """CRASH: one small mailbox ends each process that collects, one after the other, with a segmentation fault.

    Arrow's full validation does not look at buffers of arrays without rows: they may be missing, and offsets in them
    may be anything. Whoever asks for ``nbytes`` reads them (``RowBuffer._take_tables``). Any topic will do, by a piece
    without rows; one with a list or a map, by rows whose lists are empty.
    """
    code = f"from tests.unit.log.test_proposals_attacked import look_into; look_into({name!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr[-300:]}"


def test_more_rows_than_a_proposal_may_have_are_refused() -> None:
    """COST: 4 MiB in a mailbox become 680 MB in the process that collects; one cycle takes five of them.

    Bytes are bounded, rows are not: of a boolean column a mailbox holds 33,000,000, to each of which who collects adds
    its transaction and its partition, 12 bytes, and more while the file is made.
    """
    log = Log()
    topic = topic_of(log, pa.schema([("yes", pa.bool_())]))
    rows = 100_000
    pieces = (ProposedPiece(topic, 0, rows, 0),)
    wire = {topic: ProposedRows(log.state.topics[topic].schemas[-1].version, WireRows(rows, (None, bytes(rows // 8))))}
    data = packed(Mailbox(1, WRITER, NUMBER, 1, 1, (ProposedCommit(7, "0" * 32, pieces),), wire))
    with pytest.raises(MalformedProposal):
        commands_of(decode(data, WRITER), log.state)


def test_why_a_proposal_is_passed_over_shows_no_value() -> None:
    """LEAK: an amount of somebody else's row stands in the log file of who collects, as a warning.

    "Messages name topic, column and types, never a value: rows may hold what no log file should" (``row_buffer``). A
    proposer that knows a wider decimal than who collects is enough; what Arrow's validation says goes into the warning.
    """
    older, newer = Log(), Log()
    topic = -1
    for log in (older, newer):
        topic = topic_of(log, pa.schema([("amount", pa.decimal128(5, 2))]))
    newer.entry(AlterTopic(topic, schema=schema.from_arrow(pa.schema([("amount", pa.decimal128(12, 2))]))))
    data = mailbox(newer, commit(newer, piece(newer, topic, [{"amount": Decimal("98765432.10")}])))
    with pytest.raises(MalformedProposal) as refused:
        commands_of(decode(data, WRITER), older.state)
    assert "98765432" not in str(refused.value)
