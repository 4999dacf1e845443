"""What a transaction did and has not logged yet: rows, acknowledgements, and the way of rows into its own segments.

Rows come from any thread, into an inbox. All else happens in the engine, by one command of the transaction at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import xxhash

from txnlog.client.ledger import joined
from txnlog.client.truncation import Truncation, Wanted, planned
from txnlog.client.unended import Unended, report
from txnlog.common.limits import BUFFER_BYTES, SMALL_PRODUCE_BYTES
from txnlog.format.actions import Acknowledgement, Segment, StreamBatch
from txnlog.log.commands import Piece
from txnlog.log.segment_builder import BuiltSegment, build_owned
from txnlog.log.slots import put_unnamed

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.session import Session
    from txnlog.log.transaction_commands import LeftOut


_NONE: Final[frozenset[Any]] = frozenset()


class Mark(NamedTuple):
    """Acknowledgements up to some moment, and the digest of all that was done until then."""

    acknowledged: tuple[Acknowledgement, ...]
    sealed: int
    digest: xxhash.xxh3_64


class Rows:
    """The rows of one call of ``produce()``.

    Attributes:
        text: what they add to the digest of the work.
    """

    __slots__ = ("pieces", "size_bytes", "text")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.size_bytes = sum([piece.size_bytes for piece in pieces])
        self.text = "".join([f"p{piece.digest_text()};" for piece in pieces]).encode()

    def let_go(self) -> None:
        """Forget them, and stay where they are: whoever put them there looks whether they became part of the work."""
        self.pieces, self.text = (), b""


class TransactionWork:
    """The work of one transaction, in the order it was done.

    Attributes:
        takes_rows: whether what is put into the inbox from now on will be part of it. Who ends the transaction says no
            before it looks into the inbox for the last time.
        pieces: rows that wait for the entry, which they may share with other transactions.
        staged: segments that are on the store and that no entry names yet, or ever will: their topic was dropped.
        acknowledged: acknowledgements that no entry names yet, likewise.
        logged: those that a flush brought into the log.
        owned_topics: topics that have segments of this transaction, in the log or not.
        stream: the micro-batch that the commit is bound to.
        truncated: the topics whose earlier messages go with the commit.
        truncations: what that needs, on the store, since the last time that it was planned.
        since_ms: when the transaction began.
    """

    _unended: Unended | None = None  # of an object that was never made: it has nothing to lose
    _is_over = False

    def __init__(self, connection: Connection, session: Session, number: int) -> None:
        self._connection = connection
        self._session = session
        self._appender = session.appender
        self._identity = connection.identity
        self._number = number
        self._digest = xxhash.xxh3_64()
        self._topics: set[int] = set()
        self.owned_topics: frozenset[int] = _NONE
        self._adopted: frozenset[tuple[int, str]] = _NONE
        self._sealed = 0
        self._inbox: deque[Rows] = deque()
        self._inbox_bytes = self._collected_bytes = 0
        self.takes_rows = True
        # A list only where there is something: of many transactions under way each is work for the garbage collector.
        self.pieces: Sequence[Piece] = ()
        self.staged: Sequence[Segment] = ()
        self.acknowledged: Sequence[Acknowledgement] = ()
        self.logged: Sequence[Acknowledgement] = ()
        self.stream: StreamBatch | None = None
        self.truncated: dict[int, Wanted] = {}
        self.truncations: Sequence[Truncation] = ()
        self.since_ms = session.runtime.now_ms()
        self._numbers = self._appender.numbers
        self._numbers.keep_for(number, self)
        self._unended = self._session.unended

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
        return [*self.logged, *self.acknowledged]

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be logged."""
        return not (self.pieces or self.staged or self.acknowledged or self.stream or self.truncated)

    # --- from any thread --------------------------------------------------------------------------------------------

    @property
    def has_many_rows(self) -> bool:
        """Whether some of the rows may be too many to share a file."""
        return self._buffered_bytes >= SMALL_PRODUCE_BYTES

    @property
    def needs_files(self) -> bool:
        """Whether some of the rows may have to be in files of their own before a commit can wait for an entry."""
        return self.has_many_rows or (bool(self.owned_topics) and bool(self._inbox or self.pieces))

    @property
    def is_full(self) -> bool:
        """Whether rows should be written before more of them come."""
        return self._buffered_bytes >= BUFFER_BYTES

    @property
    def _buffered_bytes(self) -> int:
        """About the size of the rows that no segment has yet. Threads that produce side by side may make it less."""
        return self._inbox_bytes + self._collected_bytes

    def put(self, rows: Rows) -> None:
        """Put the rows of one call into the inbox, in one step. They are part of the work while it takes rows."""
        self._note({piece.topic for piece in rows.pieces})
        self._inbox_bytes += rows.size_bytes
        self._inbox.append(rows)

    def take_back(self, rows: Rows) -> bool:
        """Take rows out of the inbox, and whether they were there yet: otherwise they are part of the work."""
        try:
            self._inbox.remove(rows)
        except ValueError:
            return False
        if self._is_over:  # they were noted behind its end
            self.settle()
        return True

    # --- in the engine ----------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Take what is in the inbox."""
        inbox = self._inbox
        self._inbox_bytes = 0
        if not inbox:
            return
        pieces: list[Piece] = self.pieces if isinstance(self.pieces, list) else [*self.pieces]
        self.pieces = pieces
        while inbox:
            rows = inbox.popleft()
            pieces += rows.pieces
            self._collected_bytes += rows.size_bytes
            self._digest.update(rows.text)

    def add_segments(self, segments: Iterable[Segment]) -> None:
        """Take segments that were written elsewhere, but for those that an earlier call added.

        Another one under a number of these is added, too: the log refuses it.
        """
        added = [item for item in segments if (item.segment, item.checksum) not in self._adopted]
        adopted = {(item.segment, item.checksum) for item in added}
        owned = {item.topic for item in added}
        text = "".join(f"s{item.topic},{item.segment},{item.checksum};" for item in added).encode()
        self._note(owned)
        self.staged = [*self.staged, *added]
        self._adopted |= adopted
        self.owned_topics |= owned
        self._digest.update(text)

    def add_acknowledgements(self, wanted: Iterable[Acknowledgement]) -> None:
        """Take acknowledgements. Many small ones become one, but for what a flush may have brought into the log."""
        added = list(wanted)
        text = "".join(repr(item) for item in added).encode()
        fresh = [*self.acknowledged[self._sealed :], *added]
        if not any(item.expected for item in fresh):
            fresh = list(joined(fresh).values())
        known = self._session.follower.state.subscriptions
        self._note({record.topic for item in added if (record := known.get(item.subscription)) is not None})
        self.acknowledged = [*self.acknowledged[: self._sealed], *fresh]
        self._digest.update(text)

    def truncate(self, topic: int, wanted: Wanted) -> None:
        """Have the earlier messages of a topic go with the commit."""
        self._note({topic})
        self.truncated[topic] = wanted
        self.truncations = ()
        self._digest.update(f"t{topic};".encode())

    def mark(self) -> Mark:
        """This moment, to which ``rollback`` leads back."""
        return Mark(tuple(self.acknowledged), self._sealed, self._digest.copy())

    def rollback(self, mark: Mark) -> None:
        """Forget the acknowledgements since a mark: nothing else was done, and nothing of them was logged."""
        self.acknowledged, self._sealed, self._digest = mark.acknowledged, mark.sealed, mark.digest

    def seal(self) -> None:
        """A flush is under way: what it may bring into the log must be found there again as it is."""
        self._sealed = len(self.acknowledged)

    def note_logged(self, left: LeftOut) -> None:
        """A flush brought what was staged and acknowledged into the log, but for what was dropped before."""
        segments, acknowledgements = list(left.segments), list(left.acknowledgements)
        logged = [item for item in self.acknowledged if item not in acknowledgements]
        sealed = len(acknowledgements)
        self.logged = [*self.logged, *logged]
        self.staged, self.acknowledged, self._sealed = segments, acknowledgements, sealed

    def settle(self) -> None:
        """Somebody asks for its end, whatever comes of that: it was not forgotten."""
        if self._unended is not None:
            self._unended.settle(self._number)

    def clear(self) -> None:
        """The transaction ended: let go of everything."""
        self._is_over = True
        self._numbers.release(self._number)
        self.settle()
        if self._inbox:
            for rows in self._inbox.copy():
                rows.let_go()
        self.pieces, self.staged, self.acknowledged, self.logged = (), (), (), ()
        self.truncated, self.truncations = {}, ()

    def unlogged_numbers(self) -> list[int]:
        """See :class:`txnlog.log.number_pool.UnloggedWork`."""
        truncating = [number for item in tuple(self.truncations) for number in item.numbers]
        return [self._number, *(item.segment for item in tuple(self.staged)), *truncating]

    # --- segments ---------------------------------------------------------------------------------------------------

    async def stage(self, *, everything: bool) -> None:
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
            if everything or size >= SMALL_PRODUCE_BYTES or topic in self.owned_topics:
                chosen = [piece for piece in self.pieces if piece.topic == topic]
                written = await self._session.runtime.job(partial(self._write, topic, chosen))
                self.staged = [*self.staged, *written]
                self.pieces = [piece for piece in self.pieces if piece.topic != topic]
                self._collected_bytes -= size
                self.owned_topics |= {topic}

    async def plan_truncations(self, *, again: bool = False, only_missing: bool = False) -> None:
        """Look at the topics to be truncated, and put what that needs, unless that was done.

        What is out of date is done again, unless ``only_missing`` is asked for.
        """
        is_old = not only_missing and any(item.is_out_of_date for item in self.truncations)
        if again or is_old or len(self.truncations) < len(self.truncated):
            # What there is stays where this fails: the next commit must not be without it.
            self.truncations = await self._session.runtime.job(self._plan_truncations)

    def _plan_truncations(self) -> list[Truncation]:
        topics = self._session.follower.state.topics
        return [planned(self._session, topics[number], wanted) for number, wanted in self.truncated.items()]

    def _write(self, topic: int, pieces: list[Piece]) -> list[Segment]:
        record = self._session.follower.state.topics[topic]  # topics are never forgotten
        staged: list[Segment] = []
        wave: list[BuiltSegment] = []
        waiting = 0
        for built in build_owned(record, pieces, self._number, self._take_number, self._session.runtime.unique):
            wave.append(built)
            staged.append(built.action)
            waiting += len(built.data)
            if waiting >= BUFFER_BYTES:
                self._put(wave)
                wave, waiting = [], 0
        self._put(wave)
        return staged

    def _put(self, wave: list[BuiltSegment]) -> None:
        put_unnamed(self._session.store, self._session.runtime, [(built.key, built.data) for built in wave])

    def _take_number(self) -> int:
        return self._appender.take_numbers(1)[0]


__all__ = ["Mark", "Rows", "TransactionWork"]
