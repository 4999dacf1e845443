"""Attacks on what writers propose to each other: mailboxes that strangers put. Each names its kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.crowds import (
    Workers,
    _known_writers,
    commits,
    entries,
    mailbox,
    proposing,
    put_mailbox,
    read_all,
    workers,
    world,
    writer_of,
)
from txnlog.api.internals import connection_of
from txnlog.api.namespace import Namespace
from txnlog.data.wire_rows import WireRows
from txnlog.format.actions import Abort, Commit, Reserve, Segment, SliceRows, Topic
from txnlog.log.proposals.proposal_codec import ProposedNumbers
from txnlog.testing.far_store import FarWorld

__all__ = ["_known_writers", "commits", "proposing", "workers", "world"]

pytestmark = pytest.mark.some(one_in=3)

_MANY = 3_000


# --- hostile mailboxes ------------------------------------------------------------------------------------------------

STRANGER = "a" * 32
"""A writer that somebody made up who may write below ``_proposals/``."""


def strangers_block(world: FarWorld) -> int:
    """The first number of a block that the stranger has somebody reserve."""
    put_mailbox(world, STRANGER, None, ProposedNumbers(256))
    while True:
        world.run(world.now_ms + 100)
        for entry in entries(world):
            for action in entry.actions:
                if isinstance(action, Reserve) and action.writer == STRANGER:
                    return action.first


def subscribed(world: FarWorld, workers: Workers, rows: int, kind: str) -> dict[str, int]:
    """A subscription of its own to a topic with so many rows, and four writers at work."""
    found: dict[str, int] = {}

    def fill(ns: Namespace) -> None:
        ns.create_subscription("orders", "mine", type=kind)
        with ns.begin() as txn:
            txn.produce("orders", [{"value": number} for number in range(rows)], partition=0)
        state = connection_of(ns).follower.state
        topic = next(t for t in state.topics.values() if t.name == "orders")
        record = next(s for s in state.subscriptions.values() if s.topic == topic.id and s.name == "mine")
        found.update(subscription=record.id, epoch=record.epoch)
        ns.close()

    world.start("filler", fill)
    world.run(3_000)
    workers.start("w0", "w1", "w2", "w3")
    world.run(6_000)
    return found


def with_segments(txn: int, *segments: Segment) -> dict[str, Any]:
    """A commit with segments of its own, which no proposal may have."""
    return {"command": "commit", "txn": txn, "digest": "0" * 32, "segments": segments}


def without_rows(topic: int, txn: int) -> dict[str, Any]:
    return {"command": "commit", "txn": txn, "digest": "0" * 32, "pieces": [[topic, 0, 0, 0]]}


def hostile(topic: int, first: int, name: str) -> tuple[list[Any], Any]:
    """What a stranger proposes: commands, and rows."""
    match name:
        case "a segment that nobody claims":
            segment = Segment(first + 2, topic, f"{7:032x}.parquet", 3, 99, "crc32:00000000", (SliceRows(0, 3),))
            return [with_segments(first + 1, segment)], None
        case "a piece without rows":
            return [without_rows(topic, first + 1)], {topic: [topic, WireRows(0, (None, b""))]}
        case "a piece without rows, twice":
            commands = [without_rows(topic, first + number) for number in (1, 2)]
            return commands, {topic: [topic, WireRows(0, (None, b""))]}
        case _:
            raise AssertionError(name)


HOSTILE = ["a segment that nobody claims", "a piece without rows", "a piece without rows, twice"]


@pytest.mark.clause("P-247", "P-249")
@pytest.mark.parametrize("name", HOSTILE)
def test_nobodys_call_fails_for_what_a_stranger_proposes(world, workers, name):
    """LIE: calls of who collects fail, and name what somebody else proposed.

    What is wrong with a proposal is found where the whole entry is made, not where one command is decided, and so it is
    the error of everybody in it: ``InvalidInputError`` for a commit in which nothing is wrong.
    """
    workers.start("w0", "w1", "w2", "w3")
    world.run(3_000)
    first = strangers_block(world)
    topics = {a.name: e.header.version for e in entries(world) for a in e.actions if isinstance(a, Topic)}
    commands, rows = hostile(topics["orders"], first, name)
    put_mailbox(world, STRANGER, first, *commands, rows=rows)
    world.run(world.now_ms + 6_000)
    assert min(workers.gained(world.now_ms - 3_000).values()) > 0


@pytest.mark.clause("P-247", "P-44")
@pytest.mark.parametrize("what", ["its transaction", "its number"])
def test_segments_of_a_stranger_are_under_its_own_numbers_and_of_its_own_transaction(world, workers, what):
    """LEAK of rights: a stranger acts for somebody else, by the segments of a commit of its own.

    ``number`` and ``txn`` of a command have to be of the mailbox's writer; of ``segments`` neither the number nor the
    transaction is looked at. So rows get into the open transaction of a victim, which commits them; or a number of its
    block is used up, and its commit under that number is refused.
    """
    ids: list[int] = []
    ended: list[str] = []

    def victim(ns: Namespace) -> None:
        txn = ns.begin(timeout_ms=60_000)
        txn.produce("audit", [{"value": 77}])
        if what == "its transaction":
            txn.flush()
        ids.append(txn.id.number)
        while not ended:
            world.scheduler.sleep(100)
        txn.commit()

    workers.start("w0", "w1", "w2", "w3")
    world.start("victim", victim)
    world.run(3_000)
    first = strangers_block(world)
    topics = {a.name: e.header.version for e in entries(world) for a in e.actions if isinstance(a, Topic)}
    number, txn = (first + 2, ids[0]) if what == "its transaction" else (ids[0], first + 1)
    segment = Segment(number, topics["audit"], f"{7:032x}.parquet", 3, 99, "crc32:00000000", (SliceRows(0, 3),), txn)
    put_mailbox(world, STRANGER, first, with_segments(first + 1, segment))
    world.run(world.now_ms + 2_000)
    found = [a for e in entries(world) for a in e.actions if isinstance(a, Segment) and a.segment == number]
    ended.append("now")
    workers.closing |= {"w0", "w1", "w2", "w3"}
    world.run(world.now_ms + 4_000)
    assert not found


@pytest.mark.clause("P-247", "P-249")
def test_a_file_that_is_not_there_is_not_named_for_a_stranger(world, workers):
    """LOSS: a topic that nobody can read any more, by somebody who may write below ``_proposals/`` and nowhere else.

    Who may write there may have *rows* written to any topic. But a proposed commit may name segments, "whose files are
    on the store", and nobody looks: the log names a file for ever that there never was.
    """
    workers.start("w0", "w1", "w2", "w3")
    world.run(3_000)
    first = strangers_block(world)
    topics = {a.name: e.header.version for e in entries(world) for a in e.actions if isinstance(a, Topic)}
    file, checksum = f"{7:032x}.parquet", "crc32:00000000"
    segment = Segment(first + 2, topics["audit"], file, 3, 99, checksum, (SliceRows(0, 3),), first + 1)
    put_mailbox(world, STRANGER, first, with_segments(first + 1, segment))
    world.run(world.now_ms + 2_000)
    workers.closing |= {"w0", "w1", "w2", "w3"}
    assert read_all(world, "audit").num_rows >= sum(map(len, workers.done.values()))


@pytest.mark.parametrize("what", ["half of a transaction is committed", "a prepared one is aborted"])
def test_who_may_write_mailboxes_ends_no_transactions_of_others(world, workers, what):
    """TEAR, and rights: who may write below ``_proposals/`` decides about transactions of others.

    What is said of that right is that rows may be written to any topic (PROTOCOL.md 14, docs/operations/access.md). But
    a mailbox is anybody's who writes it under the victim's key: an open transaction is committed with what it flushed
    so far, or a prepared one is aborted by force, where another system has committed.
    """
    ids: list[int] = []
    ended: list[int] = []

    def victim(ns: Namespace) -> None:
        txn = ns.begin(timeout_ms=60_000)
        txn.produce("audit", [{"value": 77}])
        if what.startswith("half"):
            txn.flush()
        else:
            txn.prepare()
        ids.append(txn.id.number)
        while not ended:
            world.scheduler.sleep(100)

    workers.start("w0", "w1", "w2", "w3")
    world.run(3_000)
    world.start("victim", victim)
    world.run(9_000)
    assert workers.collector() != "victim"
    writer = writer_of(world, "victim") or ""
    blocks = [a for e in entries(world) for a in e.actions if isinstance(a, Reserve) and a.writer == writer]
    number = blocks[-1].first + blocks[-1].count - 1
    ending = {"command": "commit", "txn": ids[0], "digest": "0" * 32}
    aborting = {"command": "abort", "txn": ids[0], "force": True}
    put_mailbox(world, writer, number, ending if what.startswith("half") else aborting)
    world.run(world.now_ms + 2_000)
    ended.append(1)
    found = [a for e in entries(world) for a in e.actions if isinstance(a, Commit | Abort) and a.txn == ids[0]]
    assert not found


@pytest.mark.clause("P-247")
def test_a_mailbox_of_a_few_kilobytes_does_not_stop_the_process_that_collects(world, workers):
    """STOPPED: 30 KB in a mailbox kept whoever collects busy for three seconds, and each client that applied the entry.

    Pieces, rows and commands of a mailbox were bounded, and its acknowledgements were not. Each range of one is
    compared with all that the transaction holds already.
    """
    found = subscribed(world, workers, _MANY, "shared")
    first = strangers_block(world)

    parts: list[Any] = [[0, [[number, number + 1]]] for number in range(_MANY)]
    command = {"command": "commit", "txn": first + 1, "digest": "0" * 32}
    command["acknowledgements"] = [{**found, "ranges": parts}]
    put_mailbox(world, STRANGER, first, command)
    assert len(world.objects.get(mailbox(world, STRANGER))) < 40_000
    world.run(world.now_ms + 2_000)
    landed = [a for e in entries(world) for a in e.actions if isinstance(a, Commit) and a.txn == first + 1]
    assert not landed, "it asks for more than one proposal may"


def test_a_mailbox_with_very_many_expected_cursors_asks_for_too_much(world, workers):
    """COST: a mailbox of one MiB is an entry of two, which keeps each client that applies it busy for a while.

    All parts of an acknowledgement count but those of ``expected``: 349,000 of them, each looked up at each decision,
    and all of them stand in the entry, which has two MiB.
    """
    found = subscribed(world, workers, 1, "exclusive")
    first = strangers_block(world)
    command = {"command": "commit", "txn": first + 1, "digest": "0" * 32}
    command["acknowledgements"] = [{**found, "ranges": [[0, [[0, 1]]]], "expected": [[0, 0]] * 349_000}]
    put_mailbox(world, STRANGER, first, command)
    assert len(world.objects.get(mailbox(world, STRANGER))) <= 1 << 20
    world.run(world.now_ms + 2_000)
    commits = [action for entry in entries(world) for action in entry.actions if isinstance(action, Commit)]
    assert all(action.txn != first + 1 for action in commits), "it asks for more than one proposal may"


def test_a_mailbox_makes_nobody_remember_a_mib_for_ever(world, workers):
    """LEAK: each mailbox may add one MiB to what every client keeps in memory, and every checkpoint holds, for ever.

    A stream is remembered for ever (MAX_STREAMS: 100,000), with its query and the digest of its offsets. Its identity
    is a label, of 256 characters; of the other two nobody looks at the length. (All texts of a commit but these do
    have a limit. Eight strangers in a cycle: 8 MiB with each entry.)
    """
    workers.start("w0", "w1", "w2", "w3")
    world.run(3_000)
    first = strangers_block(world)
    stream = {"identity": "mine", "query": "q" * 1_000_000, "batch": 1, "offsets_digest": "0"}
    put_mailbox(world, STRANGER, first, {"command": "commit", "txn": first + 1, "digest": "0" * 32, "stream": stream})
    world.run(world.now_ms + 2_000)
    kept: list[int] = []

    def look(ns):
        kept.extend(len(item.query) for item in connection_of(ns).follower.state.streams.values())

    world.start("reader", look)
    world.run(world.now_ms + 2_000)
    assert sum(kept) <= 1_000
