"""Bytes of a mailbox and back, strictly: commands of one writer as plain data, with their rows.

See PROTOCOL.md, "Proposals". Nothing depends on a mailbox: whoever cannot read one passes it over, so this
may change any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa
import xxhash
from msgspec import Meta, Struct

from txnlog.common.format_limits import (
    MAX_LABEL_CHARACTERS,
    MAX_PROPOSAL_BYTES,
    MAX_PROPOSAL_PIECES,
    MAX_PROPOSAL_ROWS,
    MAX_PROPOSED_NUMBERS,
    PROPOSAL_ENTRIES,
    PROPOSAL_LIFE_MS,
)
from txnlog.data import row_buffer, wire_rows
from txnlog.data.row_buffer import RowBuffer
from txnlog.data.wire_rows import MalformedRows, WireRows
from txnlog.errors import TxnLogError
from txnlog.fold.number_blocks import CHUNK
from txnlog.fold.state import State, TopicRecord
from txnlog.format import schema
from txnlog.format.actions import Acknowledgement, Count, Reserve, Signed, StreamBatch, Time
from txnlog.log.commands import Command, Piece, effect
from txnlog.log.dropped import SubscriptionPlace
from txnlog.log.number_pool import NumbersWanted
from txnlog.log.transaction_commands import AcknowledgeCommand, CommitCommand, Opening

_FORMAT: Final = 1
_DIGEST_BYTES: Final = 16
"""XXH3 of what follows: rows that were damaged on their way must not become anybody's."""

Digest = Annotated[int, Meta(ge=0)]


class MalformedProposal(Exception):
    """A mailbox that is not what PROTOCOL.md describes, or that names what this client does not know (yet)."""


class ProposedPiece(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rows of one call: ``[topic, partition, rows, digest]`` or ``[topic, partition, rows, digest, sequence]``."""

    topic: Count
    partition: Count
    rows: Annotated[int, Meta(ge=1, le=MAX_PROPOSAL_ROWS)]
    digest: Digest
    sequence: Count | None = None


class ProposedSubscription(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A subscription by its name: ``[subscription, topic, name]``."""

    subscription: Count
    topic: Count
    name: str


class ProposedRows(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Rows of one topic, and the version of the entry that gave the topic the schema that they have."""

    schema: Count
    rows: WireRows


class ProposedCommand(Struct, frozen=True, tag_field="command", omit_defaults=True, forbid_unknown_fields=True):
    """Base of what a mailbox may ask for."""


class ProposedNumbers(ProposedCommand, frozen=True, tag="reserve"):
    """Reserve a block of so many numbers for the writer."""

    count: Annotated[int, Meta(ge=CHUNK, le=MAX_PROPOSED_NUMBERS, multiple_of=CHUNK)]


class ProposedCommit(ProposedCommand, frozen=True, tag="commit"):
    """Commit a transaction that the log does not show yet. ``left_ms``, from the mailbox's time on, is its deadline."""

    txn: Count
    digest: str
    pieces: tuple[ProposedPiece, ...] = ()
    acknowledgements: tuple[Acknowledgement, ...] = ()
    stream: StreamBatch | None = None
    plain: bool = False
    assign_sequences: bool = False
    producer: str | None = None
    epoch: Count | None = None
    app_id: str | None = None
    app_version: Signed | None = None
    left_ms: Count | None = None
    subscriptions: tuple[ProposedSubscription, ...] = ()


class ProposedAcknowledge(ProposedCommand, frozen=True, tag="acknowledge"):
    """Acknowledge messages outside of any transaction."""

    txn: Count
    acknowledgements: tuple[Acknowledgement, ...]


Proposed = ProposedCommit | ProposedAcknowledge | ProposedNumbers


class Mailbox(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a writer proposes.

    Attributes:
        format: of this struct.
        writer: whose it is.
        number: of the writer's own block, used for nothing else: as soon as the log shows it used, this is void. None
            where nothing but numbers is asked for: they do no harm, however often they come.
        version: of the newest entry that the writer knew.
        time_ms: when it was put, in the time of the log.
        commands: what is to be done, in order.
        rows: by topic those of all pieces, in the order of the commands.
    """

    format: Literal[1]
    writer: str
    number: Count | None
    version: Count
    time_ms: Time
    commands: tuple[Proposed, ...]
    rows: dict[Count, ProposedRows] = {}

    def is_over(self, version: int, timestamp_ms: int) -> bool:
        """Whether nothing of it may come true in the entry of a version and a time."""
        return is_over(self.version, self.time_ms, version, timestamp_ms)

    def is_late(self, place: int, timestamp_ms: int) -> bool:
        """Whether the deadline of a command's transaction is over in an entry of a time."""
        command = self.commands[place]
        left_ms = command.left_ms if isinstance(command, ProposedCommit) else None
        return left_ms is not None and timestamp_ms > self.time_ms + left_ms


def is_over(version: int, time_ms: int, at_version: int, timestamp_ms: int) -> bool:
    """Whether nothing of a proposal of one version and time may come true in an entry of another."""
    return at_version > version + PROPOSAL_ENTRIES or timestamp_ms > time_ms + PROPOSAL_LIFE_MS


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Mailbox]] = msgspec.msgpack.Decoder(Mailbox)


# --- of commands ------------------------------------------------------------------------------------------------------


def can_be_proposed(command: Command[Any]) -> bool:
    """Whether a command may be proposed; ``encode`` sees whether it is small.

    Not a commit with segments of its own: whoever brings it would have to believe that these are on the store.
    """
    if isinstance(command, NumbersWanted):
        return command.pool.wanted <= MAX_PROPOSED_NUMBERS
    return command.travels and not (isinstance(command, CommitCommand) and command.segments)


def encode(
    writer: str, number: int | None, commands: Sequence[Command[Any]], state: State, now_ms: int = 0
) -> bytes | None:
    """The bytes of a mailbox; None where they would be too many, or stand for too much.

    Raises TransactionTimedOut for a commit that is past its deadline.
    """
    pieces = [piece for command in commands for piece in command.pieces]
    if sum(piece.size_bytes for piece in pieces) > MAX_PROPOSAL_BYTES:
        return None
    plain = tuple([_plain(command) for command in commands])
    if _is_too_much(plain):
        return None
    by_topic: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_topic.setdefault(piece.topic, []).append(piece)
    rows: dict[int, ProposedRows] = {}
    for number_of_topic, found in by_topic.items():
        topic = state.topics.get(number_of_topic)
        if topic is not None and not topic.dropped:
            rows[number_of_topic] = ProposedRows(topic.schemas[-1].version, _encode_rows(topic, found))
    head = state.head
    time_ms = head.log_time_ms(now_ms)
    content = _encoder.encode(Mailbox(_FORMAT, writer, number, head.version, time_ms, plain, rows))
    data = xxhash.xxh3_128_digest(content) + content
    return data if len(data) <= MAX_PROPOSAL_BYTES else None


def _encode_rows(topic: TopicRecord, pieces: Sequence[Piece]) -> WireRows:
    wanted = schema.to_arrow(topic.schema)
    contents: list[RowBuffer] = [piece.content for piece in pieces]
    if all(content.schema is wanted or content.schema.equals(wanted) for content in contents):
        table = row_buffer.concat(contents)
    else:
        table = pa.concat_tables([row_buffer.conform(item.to_table(), wanted, topic=topic.name) for item in contents])
    return wire_rows.encode(table)


def _plain(command: Command[Any]) -> Proposed:
    if isinstance(command, NumbersWanted):
        return ProposedNumbers(command.pool.wanted)
    if isinstance(command, AcknowledgeCommand):
        return ProposedAcknowledge(command.txn, command.acknowledgements)
    assert isinstance(command, CommitCommand), "can_be_proposed was asked"
    opening = command.opening
    return ProposedCommit(
        opening.txn,
        command.digest,
        tuple([ProposedPiece(p.topic, p.partition, p.rows, p.digest, p.sequence) for p in command.pieces]),
        command.acknowledgements,
        command.stream,
        command.plain,
        command.assign_sequences,
        opening.producer,
        opening.epoch,
        opening.app_id,
        opening.app_version,
        opening.left_ms(),
        tuple([ProposedSubscription(number, *name) for number, name in opening.subscriptions.items()]),
    )


# --- and back ---------------------------------------------------------------------------------------------------------


def decode(data: bytes, writer: str) -> Mailbox:
    """The mailbox of a writer. Raises MalformedProposal for anything but exactly what PROTOCOL.md describes."""
    if len(data) > MAX_PROPOSAL_BYTES:
        raise MalformedProposal(f"it has more than {MAX_PROPOSAL_BYTES:,} bytes")
    content = data[_DIGEST_BYTES:]
    if xxhash.xxh3_128_digest(content) != data[:_DIGEST_BYTES]:
        raise MalformedProposal("it is damaged")
    try:
        found = _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise MalformedProposal("it is not in the form of PROTOCOL.md") from None
    if found.writer != writer:
        raise MalformedProposal("it is another writer's")
    numbers = [item for item in found.commands if isinstance(item, ProposedNumbers)]
    if found.number is None and len(numbers) < len(found.commands):
        raise MalformedProposal("it has no number")
    if len(numbers) > 1:
        raise MalformedProposal("it asks for numbers more than once")
    streams = [item.stream for item in found.commands if isinstance(item, ProposedCommit) and item.stream]
    if any(len(text) > MAX_LABEL_CHARACTERS for item in streams for text in (item.query, item.offsets_digest)):
        raise MalformedProposal("the query of a stream, or the digest of its offsets, is too long")
    if _is_too_much(found.commands) or len(found.rows) > MAX_PROPOSAL_PIECES:
        raise MalformedProposal("it asks for more than one proposal may")
    return found


def _is_too_much(commands: Sequence[Proposed]) -> bool:
    """Whether commands have more rows, or parts, than who collects takes: a step for each of them holds up all."""
    parts = len(commands)
    rows = 0
    for item in commands:
        if isinstance(item, ProposedCommit):
            parts += len(item.pieces) + len(item.subscriptions)
            rows += sum([piece.rows for piece in item.pieces])
        if not isinstance(item, ProposedNumbers):
            parts += sum([_parts_of(found) for found in item.acknowledgements])
    return parts > MAX_PROPOSAL_PIECES or rows > MAX_PROPOSAL_ROWS


def _parts_of(acknowledgement: Acknowledgement) -> int:
    ends = len(acknowledgement.cumulative) + len(acknowledgement.expected)
    return 1 + ends + sum([1 + len(found.ranges) for found in acknowledgement.ranges])


def commands_of(mailbox: Mailbox, state: State) -> list[Command[Any]]:
    """The commands of a mailbox, with rows of the topics' newest schemas. Raises MalformedProposal."""
    contents = {number: _Rows(number, found, state) for number, found in mailbox.rows.items()}
    commands = [_command(item, mailbox.writer, contents, state) for item in mailbox.commands]
    if any(not rows.is_at_end for rows in contents.values()):
        raise MalformedProposal("it has rows that nothing names")
    return commands


def rows_in(data: bytes, writer: str, topic: TopicRecord) -> pa.Table | None:
    """The rows of a topic in a mailbox, in the schema that they have; None where there are none.

    Raises MalformedProposal.
    """
    found = decode(data, writer).rows.get(topic.id)
    if found is None:
        return None
    if found.schema not in {item.version for item in topic.schemas}:
        raise MalformedProposal("its rows have a schema that this client does not know")
    try:
        return wire_rows.decode(found.rows, schema.to_arrow(topic.schema_at(found.schema)))
    except MalformedRows as error:
        raise MalformedProposal(f"its rows: {error}") from None


class _Rows:
    """The rows of one topic, handed out piece by piece."""

    def __init__(self, number: int, found: ProposedRows, state: State) -> None:
        topic = state.topics.get(number)
        if topic is None:
            raise MalformedProposal(f"this client knows no topic {number}")
        if found.schema != topic.schemas[-1].version:
            raise MalformedProposal(f"rows of the topic {number} have another schema than this client knows")
        if found.rows.rows > MAX_PROPOSAL_ROWS:
            raise MalformedProposal("it has more rows than its pieces")
        self._schema = schema.to_arrow(topic.schema)
        self._topic = topic.name
        self._next = 0
        try:
            table = wire_rows.decode(found.rows, self._schema)
            self._table = row_buffer.conform(table, self._schema, topic=topic.name)
        except MalformedRows as error:
            raise MalformedProposal(f"its rows: {error}") from None
        except TxnLogError:  # null where the schema has none
            raise MalformedProposal("its rows do not fit the schema") from None

    @property
    def is_at_end(self) -> bool:
        return self._next == self._table.num_rows

    def take(self, rows: int) -> RowBuffer:
        part = self._table.slice(self._next, rows)
        if part.num_rows != rows:
            raise MalformedProposal("it has fewer rows than its pieces")
        self._next += rows
        buffer = RowBuffer(self._schema, self._topic)
        buffer.adopt(part)
        return buffer


def _command(item: Proposed, writer: str, contents: dict[int, _Rows], state: State) -> Command[Any]:
    if isinstance(item, ProposedNumbers):
        count = item.count
        return effect(lambda draft, _at: [Reserve(writer, draft.head.next_number, count)], is_upkeep=True)
    if isinstance(item, ProposedAcknowledge):
        return AcknowledgeCommand(item.txn, item.acknowledgements)
    pieces: list[Piece] = []
    for piece in item.pieces:
        rows = contents.get(piece.topic)
        topic = state.topics.get(piece.topic)
        if topic is None or piece.partition >= topic.partitions or (rows is None and not topic.dropped):
            raise MalformedProposal("it has no rows of a piece, or this client does not know the place")
        content = None if rows is None else rows.take(piece.rows)
        size = 0 if content is None else content.size_bytes
        pieces.append(Piece(piece.topic, piece.partition, piece.rows, size, content, piece.digest, piece.sequence))
    opening = Opening(
        state.txn_id(item.txn),
        lambda: 0,  # without a deadline nothing asks for the time: who decides a proposal sees to both
        item.producer,
        item.epoch,
        item.app_id,
        item.app_version,
        subscriptions={named.subscription: SubscriptionPlace(named.topic, named.name) for named in item.subscriptions},
    )
    return CommitCommand(
        opening,
        item.digest,
        tuple(pieces),
        (),
        item.acknowledgements,
        item.stream,
        item.plain,
        item.assign_sequences,
    )


__all__ = [
    "Mailbox",
    "MalformedProposal",
    "Proposed",
    "ProposedAcknowledge",
    "ProposedCommit",
    "ProposedNumbers",
    "ProposedPiece",
    "ProposedRows",
    "ProposedSubscription",
    "can_be_proposed",
    "commands_of",
    "decode",
    "encode",
    "is_over",
    "rows_in",
]
