"""Messages as a consumer received them: rows, positions, and what acknowledging them means."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txnlog.client.delivery import DeliveryReceipt, TopicDelivery
from txnlog.client.holes import Holes, offsets_in, with_holes
from txnlog.client.ledger import Delivery
from txnlog.common import ranges
from txnlog.common.ranges import Ranges
from txnlog.common.unpicklable import ProcessBound
from txnlog.common.validation import printable, truth, whole_number
from txnlog.data.python_rows import python_rows
from txnlog.data.redelivery_counts import redeliveries_of
from txnlog.errors import InvalidInputError
from txnlog.fold.acknowledgements import not_cumulative
from txnlog.fold.state import Redelivery
from txnlog.format.actions import Acknowledgement, PartitionRanges

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.consumer_machine import ConsumerMachine


class Messages(ProcessBound):
    """Some messages of one topic, in offset order of each partition. Slices and index lists give parts of them.

    Attributes:
        topic: the topic that they are of.
        table: their rows as an Arrow table: the topic's columns, then ``_partition``, ``_offset``, ``_timestamp``,
            ``_txn_id`` and ``_version``.
    """

    def __init__(
        self,
        machine: ConsumerMachine,
        by: TopicDelivery,
        delivery: Delivery,
        table: pa.Table,
        redeliveries: Mapping[int, tuple[Redelivery, ...]],
        holes: Holes,
    ) -> None:
        self._machine = machine
        self.topic = by.topic.name
        self._by = by
        self._delivery = delivery
        self.table = table
        self._redeliveries = redeliveries
        self._holes = holes

    def __len__(self) -> int:
        rows: int = self.table.num_rows
        return rows

    def __iter__(self) -> Iterator[Messages]:
        """Each message as a part of its own; its row is ``part.table.to_pylist()[0]``."""
        return (self[position] for position in range(len(self)))

    def __repr__(self) -> str:
        return f"Messages({self.topic!r}, {len(self)} messages, end_offsets={self.end_offsets})"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(printable(name))}</th>" for name in self.table.column_names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(printable(str(value)[:40]))}</td>" for value in row.values()) + "</tr>"
            for row in python_rows(self.table.slice(0, 20))
        )
        return f"<table><caption>{len(self)} messages of {self.topic}</caption><tr>{head}</tr>{body}</table>"

    def __getitem__(self, chosen: int | slice | Sequence[int]) -> Messages:
        """``messages[2:5]``, ``messages[[0, 7]]``, ``messages[3]``: a part, which can be acknowledged by itself."""
        if isinstance(chosen, slice):
            start, stop, step = chosen.indices(len(self))
            table = (
                self.table.slice(start, max(0, stop - start))
                if step == 1
                else self.table.take(list(range(start, stop, step)))
            )
        else:
            table = self.table.take(pa.array(self._positions(chosen), pa.int64()))
        return Messages(self._machine, self._by, self._delivery, table, self._redeliveries, self._holes)

    def _positions(self, chosen: object) -> list[int]:
        wanted = list(chosen) if isinstance(chosen, Iterable) and not isinstance(chosen, str) else [chosen]
        count = len(self)
        if wanted and not count:
            raise InvalidInputError("there are no messages to choose from", advice="look at len(messages) first")
        if any(isinstance(item, bool | np.bool_) for item in wanted):
            raise InvalidInputError(
                "messages are chosen by positions, not by truth values",
                advice="turn a mask into positions: messages[numpy.flatnonzero(mask)]",
            )
        return [whole_number("a position", item, -count, count - 1) % count for item in wanted]

    def _column(self, name: str) -> npt.NDArray[np.int64]:
        return np.asarray(self.table.column(name)).astype(np.int64)

    @property
    def _connection(self) -> Connection:
        """The connection to the namespace that they were received through."""
        return self._by.connection

    @property
    def positions(self) -> list[tuple[str, int, int]]:
        """The topic, partition and offset of each message."""
        partitions, offsets = self._column("_partition"), self._column("_offset")
        return [(self.topic, int(p), int(o)) for p, o in zip(partitions, offsets, strict=True)]

    @property
    def end_offsets(self) -> dict[int, int]:
        """The offset behind the last of these messages, by partition."""
        return {partition: found[-1][1] for partition, found in offsets_in(self.table).items()}

    @property
    def redelivery_counts(self) -> list[int]:
        """How often each message was delivered before, as of its receipt (Shared subscriptions count)."""
        result: list[int] = redeliveries_of(self.table, self._redeliveries).tolist()
        return result

    def _ranges(self) -> dict[int, Ranges]:
        """The offsets as ranges, by partition, with the holes that go with these messages."""
        return with_holes(offsets_in(self.table), self._holes)

    def _acknowledgements(self, connection: Connection, *, cumulative: bool) -> list[Acknowledgement]:
        """What to log for these messages in a namespace, which must be the one they came from."""
        self._machine.check_usable(connection)
        cumulative = truth("cumulative", cumulative)
        if not len(self):
            return []
        if cumulative:
            shared = self._connection.shared_subscription(self._subscription)
            if shared is not None:
                raise not_cumulative(shared.name)
            ends = tuple((partition, found[-1][1]) for partition, found in sorted(self._ranges().items()))
            return [Acknowledgement(self._subscription, self._epoch, (), ends)]
        named = tuple(PartitionRanges(partition, found) for partition, found in sorted(self._ranges().items()))
        return [Acknowledgement(self._subscription, self._epoch, named)]

    @property
    def _subscription(self) -> int:
        return self._delivery.ledger.subscription

    @property
    def _epoch(self) -> int:
        return self._delivery.ledger.epoch

    def _release(self) -> None:
        """Have them delivered again, by the consumer that received them: after its end they are already."""
        if not self._machine.is_closed:
            self._machine.check_usable()
            self._machine.run(partial(self._machine.negative_acknowledge, self._delivery, self._ranges()))

    def _receipt(self, *, cumulative: bool) -> DeliveryReceipt:
        """How they were received, for their acknowledgement."""
        unnamed: dict[int, Ranges] = {}
        if cumulative:
            unnamed = {p: ranges.subtract(((0, mine[-1][1]),), mine) for p, mine in self._ranges().items()}
        return DeliveryReceipt(self._by, self._delivery.ledger, unnamed)


def checked(messages: object) -> Messages:
    """What a caller calls messages, if it is; InvalidInputError otherwise."""
    if not isinstance(messages, Messages):
        advice = "pass what consumer.receive() gave, or a part of it: messages[2:5]"
        if isinstance(messages, list | tuple) and any(isinstance(item, Messages) for item in messages):
            advice = "choose them by their positions in what consumer.receive() gave: messages[[0, 7]]"
        raise InvalidInputError(f"messages are what a consumer received, not {type(messages).__name__}", advice=advice)
    return messages


__all__ = ["Messages", "checked"]
