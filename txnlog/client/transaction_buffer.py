"""What a transaction did and has not logged yet: rows, acknowledgements, and the way of rows into its own segments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from txnlog.client.ledger import joined
from txnlog.client.unended import Unended, report
from txnlog.common.limits import BUFFER_BYTES, SMALL_PRODUCE_BYTES
from txnlog.format.actions import Acknowledgement, Segment, StreamBatch
from txnlog.log.commands import Piece
from txnlog.log.segment_builder import BuiltSegment, build_owned
from txnlog.log.slots import put_unnamed

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.log.transaction_commands import LeftOut


class Mark(NamedTuple):
    """Acknowledgements up to some moment, and the digest of all that was done until then."""

    acknowledged: tuple[Acknowledgement, ...]
    sealed: int
    digest: xxhash.xxh3_64


class Work:
    """The work of one transaction, in the order it was done. Not thread-safe: the transaction has the lock.

    Ctrl-C comes where something is called. So each change is made in one go, by statements that call nothing until the
    last: rows that are both buffered and staged would be there twice, half of a call's rows would be committed.

    Attributes:
        pieces: rows that wait for the entry, which they may share with other transactions.
        staged: segments that are on the store and that no entry names yet, or ever will: their topic was dropped.
        acknowledged: acknowledgements that no entry names yet, likewise.
        logged: those that a flush brought into the log.
        stream: the micro-batch that the commit is bound to.
        since_ms: when the transaction began.
    """

    _unended: Unended | None = None  # of an object that was never made: it has nothing to lose

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._identity = connection.identity
        self._number = number
        self._digest = xxhash.xxh3_64()
        self._topics: set[int] = set()
        self._owned_topics: set[int] = set()
        self._adopted: set[tuple[int, str]] = set()
        self._buffered_bytes = 0
        self._sealed = 0
        self.pieces: list[Piece] = []
        self.staged: list[Segment] = []
        self.acknowledged: list[Acknowledgement] = []
        self.logged: list[Acknowledgement] = []
        self.stream: StreamBatch | None = None
        self.since_ms = connection.runtime.now_ms()
        self._numbers = connection.appender.numbers
        self._numbers.keep_for(number, self)
        self._unended = connection.session.unended

    def __del__(self) -> None:
        """Report work that nobody can commit any more. It runs wherever the garbage collector does: without locks."""
        # In a forked child the parent's process has it.
        if self._unended is not None and self._identity is self._connection.identity:
            topics = self._unended.settle(self._number)
            if topics is not None:
                lost = self._connection.described_work({self._number: topics})
                report("The last reference was deleted before these", lost, source=self)

    def _note(self, topics: Collection[int]) -> None:
        """Note that it has work for these topics: somebody must ask for its end."""
        if self._unended is not None:
            self._unended.note(self._number, self._topics)
        self._topics.update(topics)

    @property
    def digest(self) -> str:
        """What distinguishes this work from another's: the same after any number of retries, flushes and re-writes."""
        return self._digest.hexdigest()

    @property
    def acknowledgements(self) -> list[Acknowledgement]:
        """All of them, logged or not."""
        return self.logged + self.acknowledged

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be logged."""
        return not (self.pieces or self.staged or self.acknowledged or self.stream)

    def add_rows(self, pieces: Sequence[Piece]) -> None:
        """Take the rows of one call. A store that fails where the buffer is full fails the call: it adds nothing."""
        if self._buffered_bytes >= BUFFER_BYTES:
            self.stage(everything=True)
        size = sum(piece.size_bytes for piece in pieces)
        text = "".join(f"p{piece.digest_text()};" for piece in pieces).encode()
        self._note({piece.topic for piece in pieces})
        self.pieces += pieces
        self._buffered_bytes += size
        self._digest.update(text)

    def add_segments(self, segments: Iterable[Segment]) -> None:
        """Take segments that were written elsewhere, but for those that an earlier call added.

        Another one under a number of these is added, too: the log refuses it.
        """
        added = [item for item in segments if (item.segment, item.checksum) not in self._adopted]
        adopted = {(item.segment, item.checksum) for item in added}
        owned = {item.topic for item in added}
        text = "".join(f"s{item.topic},{item.segment},{item.checksum};" for item in added).encode()
        self._note(owned)
        self.staged += added
        self._adopted |= adopted
        self._owned_topics |= owned
        self._digest.update(text)

    def add_acknowledgements(self, wanted: Iterable[Acknowledgement]) -> None:
        """Take acknowledgements. Many small ones become one, but for what a flush may have brought into the log."""
        added = list(wanted)
        text = "".join(repr(item) for item in added).encode()
        fresh = self.acknowledged[self._sealed :] + added
        if not any(item.expected for item in fresh):
            fresh = list(joined(fresh).values())
        known = self._connection.follower.state.subscriptions
        self._note({record.topic for item in added if (record := known.get(item.subscription)) is not None})
        self.acknowledged[self._sealed :] = fresh
        self._digest.update(text)

    def mark(self) -> Mark:
        """This moment, to which ``rollback`` leads back."""
        return Mark(tuple(self.acknowledged), self._sealed, self._digest.copy())

    def rollback(self, mark: Mark) -> None:
        """Forget the acknowledgements since a mark: nothing else was done, and nothing of them was logged."""
        self.acknowledged, self._sealed, self._digest = list(mark.acknowledged), mark.sealed, mark.digest

    def seal(self) -> None:
        """A flush is under way: what it may bring into the log must be found there again as it is."""
        self._sealed = len(self.acknowledged)

    def note_logged(self, left: LeftOut) -> None:
        """A flush brought what was staged and acknowledged into the log, but for what was dropped before."""
        segments, acknowledgements = list(left.segments), list(left.acknowledgements)
        logged = [item for item in self.acknowledged if item not in acknowledgements]
        sealed = len(acknowledgements)
        self.logged += logged
        self.staged, self.acknowledged, self._sealed = segments, acknowledgements, sealed

    def settle(self) -> None:
        """Somebody asks for its end, whatever comes of that: it was not forgotten."""
        if self._unended is not None:
            self._unended.settle(self._number)

    def clear(self) -> None:
        """The transaction ended: let go of everything."""
        self._numbers.release(self._number)
        self.settle()
        self.pieces, self.staged, self.acknowledged, self.logged = [], [], [], []

    def unlogged_numbers(self) -> list[int]:
        """See :class:`txnlog.log.id_allocator.UnloggedWork`."""
        return [self._number, *(item.segment for item in tuple(self.staged))]

    # --- segments ---------------------------------------------------------------------------------------------------

    def stage(self, *, everything: bool) -> None:
        """Write buffered rows as segments of this transaction: all, or where they are too many to share a file.

        Of a topic that has such a segment all rows go this way: shared rows come first in an entry, so mixing would
        turn the order of production around. A topic's rows leave the buffer when all of its segments are on the store:
        staging that failed half-way is done again from the beginning, and what it left behind is garbage that no entry
        names.
        """
        sizes: dict[int, int] = {}
        for piece in self.pieces:
            sizes[piece.topic] = sizes.get(piece.topic, 0) + piece.size_bytes
        for topic, size in sorted(sizes.items()):
            if everything or size >= SMALL_PRODUCE_BYTES or topic in self._owned_topics:
                written = self._write(topic, [piece for piece in self.pieces if piece.topic == topic])
                left = [piece for piece in self.pieces if piece.topic != topic]
                self.staged += written
                self.pieces = left
                self._buffered_bytes -= size
                self._owned_topics |= {topic}

    def _write(self, topic: int, pieces: list[Piece]) -> list[Segment]:
        record = self._connection.topic_record_by_id(topic)
        staged: list[Segment] = []
        wave: list[BuiltSegment] = []
        waiting = 0
        for built in build_owned(record, pieces, self._number, self._take_number, self._connection.runtime.unique):
            wave.append(built)
            staged.append(built.action)
            waiting += len(built.data)
            if waiting >= BUFFER_BYTES:
                self._put(wave)
                wave, waiting = [], 0
        self._put(wave)
        return staged

    def _put(self, wave: list[BuiltSegment]) -> None:
        put_unnamed(self._connection.store, self._connection.runtime, [(built.key, built.data) for built in wave])

    def _take_number(self) -> int:
        return self._connection.appender.take_numbers(1)[0]


__all__ = ["Mark", "Work"]
