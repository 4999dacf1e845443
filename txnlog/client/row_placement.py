"""Which partition each row of a call goes to: a given one, by the hash of its key, or in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from txnlog.client.arrow_start import start_arrow
from txnlog.client.partition_numbers import check_partition
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.validation import whole_number
from txnlog.data import partitioner
from txnlog.data.row_buffer import RowBuffer
from txnlog.errors import InvalidInputError, RetriableError, StoreError
from txnlog.log.commands import Piece
from txnlog.sentences import Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection, TopicHandle

_STICKY_ROWS = 10_000
"""Rows that go to one partition before the next has its turn, in a topic without a key."""


_READ_AGAIN: Final = frozenset({"pyarrow", "pandas", "polars"})
"""Whose tables and frames, which have a length, give the same rows whenever somebody looks."""


def is_read_once(data: Any) -> bool:
    """Whether data may be gone as soon as somebody looked at it, as far as its type does not exclude that.

    A length says nothing: a progress bar has that of the iterator it goes through, and a list may hold streams.
    """
    kinds = set(map(type, data)) if type(data) in {list, tuple} else {type(data)}
    return not all(kind is dict or _is_table(kind) for kind in kinds)


def _is_table(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _READ_AGAIN and hasattr(kind, "__len__")


def place(
    connection: Connection, topic: str, data: Any, partition: int | None, sequence: int | None, *, named: bool
) -> Sequence[Piece]:
    """The rows of one call as pieces, each of one partition; the rows of a partition keep their order.

    What this client knows of the topic is looked at again before it says no, and before data that is read once. Of
    arguments that no topic could take it says so at once; and where the log cannot be read, what it knows.
    """
    if partition is not None:
        partition = whole_number("partition", partition, 0)
    if sequence is not None:
        if partition is None or not named:
            raise InvalidInputError(
                "a sequence needs a named producer and a partition",
                advice=Words("pass partition=, use ", Call("producer", "name")),
            )
        sequence = whole_number("sequence", sequence, 0, MAX_NUMBER)
    start_arrow()
    once = is_read_once(data)
    if once:
        connection.follower.refresh()
    handle = connection.topic_handle(topic)
    try:
        return _placed(connection, handle, data, partition, sequence)
    except InvalidInputError as error:
        if once:
            raise
        try:
            connection.follower.refresh()
        except (RetriableError, StoreError):
            raise error from None
        newest = connection.topic_handle(topic)
        if newest is handle:
            raise
    return _placed(connection, newest, data, partition, sequence)


def _placed(
    connection: Connection, handle: TopicHandle, data: Any, partition: int | None, sequence: int | None
) -> Sequence[Piece]:
    if partition is not None:
        check_partition(handle.name, partition, handle.partitions)
    buffer = RowBuffer(handle.schema, handle.name)
    if not buffer.append(data):
        return ()
    if partition is None and handle.partitions == 1:
        partition = 0
    if partition is not None:
        return (_piece(handle, partition, buffer, sequence),)
    if handle.key is not None:
        return _by_key(handle, buffer)
    if buffer.rows <= _STICKY_ROWS:
        return (_piece(handle, connection.next_partition(handle), buffer, None),)
    table = buffer.to_table()
    step = max(_STICKY_ROWS, -(-table.num_rows // handle.partitions))
    return [
        _table_piece(handle, connection.next_partition(handle), table.slice(first, step))
        for first in range(0, table.num_rows, step)
    ]


def _by_key(handle: TopicHandle, buffer: RowBuffer) -> Sequence[Piece]:
    table = buffer.to_table()
    if table.num_rows == 1:
        key = table.column(handle.key)[0].as_py()
        kind = table.schema.field(handle.key).type
        return (_piece(handle, partitioner.partition_of_key(key, kind, handle.partitions), buffer, None),)
    chosen = partitioner.partition_of_keys(table.column(handle.key), handle.partitions)
    table, slices = partitioner.split(table, chosen)
    pieces: list[Piece] = []
    first = 0
    for partition, count in slices:
        pieces.append(_table_piece(handle, partition, table.slice(first, count)))
        first += count
    return pieces


def _table_piece(handle: TopicHandle, partition: int, table: Any) -> Piece:
    buffer = RowBuffer(handle.schema, handle.name)
    buffer.adopt(table)
    return _piece(handle, partition, buffer, None)


def _piece(handle: TopicHandle, partition: int, buffer: RowBuffer, sequence: int | None) -> Piece:
    return Piece(handle.id, partition, buffer.rows, buffer.size_bytes, buffer, buffer.fingerprint(), sequence)


__all__ = ["is_read_once", "place"]
