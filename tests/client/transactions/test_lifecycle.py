"""The table of a transaction's life against the client: each call in each stage, with each fate."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, begun, ids, read, take
from txnlog.client.transaction_lifecycle import ENDED, TABLE, UNANSWERED, Fate, Life, OwnerCall, Stage
from txnlog.errors import (
    ConsumerFenced,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    StoreError,
    TxnLogError,
)


@dataclass
class Scene:
    """A transaction that produced one row and acknowledged one message, on a store that can misbehave."""

    place: Place
    ns: Any
    store: FaultyStore
    txn: Any
    messages: Any

    @property
    def stage(self) -> Stage:
        stage: Stage = self.txn._machine.life.stage
        return stage

    def call(self, request: OwnerCall) -> object:
        match request:
            case OwnerCall.WORK:
                return self.txn.acknowledge(self.messages[1:2])
            case OwnerCall.FLUSH:
                return self.txn.flush()
            case OwnerCall.PREPARE:
                return self.txn.prepare()
            case OwnerCall.COMMIT:
                return self.txn.commit()
            case OwnerCall.ABORT:
                return self.txn.abort()

    def unanswered(self, *, arrives: bool) -> None:
        """The next call that sends something gets no answer, whether its entry arrives or not."""
        self.store.script.extend(["lost" if arrives else "dropped", "dropped"])
        self.store.reads.extend(["broken", "broken"])

    def fence(self) -> None:
        """Another process takes the subscription over, and this one hears of it."""
        self.place.open().consumer("orders", "billing")
        self.ns._connection.follower.refresh()


@pytest.fixture
def scene(memory: Place) -> Iterator[Scene]:
    ns, store = memory.faulty_orders(7, 8)
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    assert ids(messages.table) == [7, 8]
    ns._connection.appender.create_attempts = 2
    txn = begun(ns, 1)
    txn.acknowledge(messages[:1])
    yield Scene(memory, ns, store, txn, messages)
    store.heal()
    ns.close()


def failed(scene: Scene) -> None:
    scene.fence()
    with pytest.raises(ConsumerFenced):
        scene.call(OwnerCall.WORK)


def unknown(request: OwnerCall) -> Callable[[Scene], None]:
    def reach(scene: Scene) -> None:
        scene.unanswered(arrives=False)
        with pytest.raises(OutcomeUnknown):
            scene.call(request)
        scene.store.heal()

    return reach


def done(request: OwnerCall) -> Callable[[Scene], object]:
    return lambda scene: scene.call(request)


REACH: dict[Stage, Callable[[Scene], object]] = {
    Stage.OPEN: lambda _scene: None,
    Stage.FAILED: failed,
    Stage.PREPARE_UNKNOWN: unknown(OwnerCall.PREPARE),
    Stage.PREPARED: done(OwnerCall.PREPARE),
    Stage.COMMIT_UNKNOWN: unknown(OwnerCall.COMMIT),
    Stage.COMMITTED: done(OwnerCall.COMMIT),
    Stage.ABORTED: done(OwnerCall.ABORT),
}
"""How each stage is reached; COMMITTING has a test of its own, since it takes a thread."""

NEEDS_NO_ENTRY = {(Stage.OPEN, OwnerCall.WORK), (Stage.OPEN, OwnerCall.ABORT), (Stage.FAILED, OwnerCall.ABORT)}
"""Calls that send nothing: of them the store cannot lose anything."""


def arrange(scene: Scene, request: OwnerCall, fate: Fate, *, arrives: bool) -> None:
    """Let the next call have this fate."""
    # What was sent and not answered is sent again by whatever comes next, unless somebody else has its slot.
    if scene.stage in UNANSWERED and (fate is Fate.NOTHING or (request, fate) == (OwnerCall.ABORT, Fate.DONE)):
        scene.place.open().create_topic("audit", SCHEMA)
    match fate:
        case Fate.NOTHING if request is OwnerCall.WORK:
            scene.messages = []
        case Fate.NOTHING:
            scene.store.forever = "refused"
        case Fate.REFUSED if scene.stage is Stage.PREPARED:
            token = str(scene.txn.id)
            scene.place.open().complete(token, commit=request is OwnerCall.ABORT)
        case Fate.REFUSED if request is not OwnerCall.ABORT and scene.stage is not Stage.FAILED:
            scene.fence()
        case Fate.UNKNOWN:
            scene.unanswered(arrives=arrives)
        case Fate.DONE if scene.stage is Stage.PREPARED and request is not OwnerCall.PREPARE:
            scene.place.open().complete(str(scene.txn.id), commit=request is OwnerCall.COMMIT)


CELLS = [
    pytest.param(stage, request, fate, arrives, id=f"{stage}-{request}-{fate}{'-arrives' if arrives else ''}")
    for stage, row in TABLE.items()
    for request, cell in row.items()
    for fate in cell
    for arrives in ([False, True] if fate is Fate.UNKNOWN else [False])
    if stage in REACH and fate is not Fate.SENT
    if not (
        fate in {Fate.NOTHING, Fate.UNKNOWN} and (stage, request) in NEEDS_NO_ENTRY - {(Stage.OPEN, OwnerCall.WORK)}
    )
]


@pytest.mark.clause("P-24", "P-118")
@pytest.mark.parametrize(("stage", "request_", "fate", "arrives"), CELLS)
def test_each_fate_of_each_call_leads_where_the_table_says(
    scene: Scene, stage: Stage, request_: OwnerCall, fate: Fate, arrives: bool
) -> None:
    REACH[stage](scene)
    assert scene.stage is stage
    before = scene.txn._machine.life
    arrange(scene, request_, fate, arrives=arrives)
    error: BaseException | None = None
    try:
        scene.call(request_)
    except TxnLogError as raised:
        error = raised
    assert scene.txn._machine.life == before.after(request_, fate), error
    match fate:
        case Fate.DONE:
            assert error is None
        case Fate.UNKNOWN:
            assert isinstance(error, OutcomeUnknown)
            assert error.durable is Durable.MAYBE
        case Fate.NOTHING:
            assert isinstance(error, StoreError | InvalidInputError)
            assert error.durable is (Durable.MAYBE if stage in UNANSWERED else Durable.NOTHING)
        case Fate.REFUSED:
            assert isinstance(error, TxnLogError)
    end(scene)


def end(scene: Scene) -> None:
    """Once the store is well again, the end is definite, and the rows are there exactly if it is a commit."""
    scene.store.heal()
    if scene.stage is Stage.PREPARED:
        scene.place.open().complete(str(scene.txn.id), commit=True)
    with contextlib.suppress(TxnLogError):
        scene.txn.abort()
    assert scene.txn.state in {"COMMITTED", "ABORTED"}
    found = read(scene.place.open())
    assert found == ([7, 8, 1] if scene.txn.state == "COMMITTED" else [7, 8])


BLANKS = [(stage, request) for stage in REACH for request in OwnerCall if request not in TABLE[stage]]


@pytest.mark.parametrize(("stage", "request_"), BLANKS, ids=str)
def test_a_call_without_a_cell_is_refused_and_sends_nothing(scene: Scene, stage: Stage, request_: OwnerCall) -> None:
    REACH[stage](scene)
    before, sent = scene.txn._machine.life, len(scene.store.calls)
    with pytest.raises(TxnLogError) as caught:
        scene.call(request_)
    assert caught.value.advice
    assert scene.txn._machine.life == before
    assert not [name for name, _ in scene.store.calls[sent:] if name != "get"]
    end(scene)


@pytest.mark.parametrize("fate", [Fate.DONE, Fate.NOTHING, Fate.REFUSED, Fate.UNKNOWN])
def test_while_a_commit_is_under_way_the_fate_counts_from_where_it_began(scene: Scene, fate: Fate) -> None:
    before = scene.txn._machine.life
    gate, reached = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        assert gate.wait(30)

    scene.store.script.append(wait)
    if fate is Fate.REFUSED:
        scene.place.open().consumer("orders", "billing")
    future = scene.txn.commit_async()
    assert reached.wait(30)
    assert scene.txn._machine.life == before.after(OwnerCall.COMMIT, Fate.SENT)
    assert scene.txn.commit_async() is future, "two could be answered differently"
    assert not future.cancel()
    for request in OwnerCall:
        if request not in TABLE[Stage.COMMITTING]:  # the others wait for it
            with pytest.raises(InvalidTransactionState, match="under way"):
                scene.call(request)
    arrange(scene, OwnerCall.COMMIT, Fate.DONE if fate is Fate.REFUSED else fate, arrives=True)
    gate.set()
    assert (future.exception(30) is None) == (fate is Fate.DONE)
    assert scene.txn._machine.life == before.after(OwnerCall.COMMIT, fate)
    end(scene)


def test_nothing_leads_out_of_an_end_and_each_stage_is_reached() -> None:
    reached = {Stage.OPEN} | {to for row in TABLE.values() for cell in row.values() for to in cell.values()}
    assert reached == set(Stage)
    for stage in ENDED:
        assert {to for cell in TABLE[stage].values() for to in cell.values()} == {stage}
    assert all(OwnerCall.ABORT in row for stage, row in TABLE.items() if stage is not Stage.COMMITTED)


def test_what_a_flush_may_have_logged_is_never_taken_for_unlogged() -> None:
    assert Life().after(OwnerCall.FLUSH, Fate.UNKNOWN).logged
    assert Life().after(OwnerCall.PREPARE, Fate.UNKNOWN).logged
    assert not Life().after(OwnerCall.FLUSH, Fate.NOTHING).logged
    assert Life(logged=True).after(OwnerCall.FLUSH, Fate.NOTHING).logged
