"""Exactly once into a Delta table of somebody else's: what a second run of the same work meets there. Without a JVM."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import txnlog
from spark_ext.delta.commit_arbiter import DeltaDecision
from spark_ext.delta.idempotence import Versioned, of_app, of_stream
from spark_ext.processing.batch_plan import Batch, End
from spark_ext.processing.delta_batches import BatchIdentity, RepeatBatchError, RunIdentity, of_run
from spark_ext.processing.earlier_batches import PartitionNotThereError
from spark_ext.processing.ownership import Ownership
from txnlog.api.namespace import Namespace
from txnlog.common.ids import TxnId
from txnlog.errors import (
    ConsumerFenced,
    CorruptionError,
    Durable,
    InvalidInputError,
    OutcomeUnknown,
    StoreError,
    TransactionAborted,
    TransactionConflict,
)


def nothing() -> None:
    """What happens while an append is under way, if nobody says otherwise."""


class Table:
    """A Delta table in memory, with what ``DeltaTable`` makes of Delta's rule for applications.

    An append under a version that is not above the last one is skipped, and one that another commit of its application
    overtakes, after it has looked and before it is committed, is refused: both are conflicts.
    """

    def __init__(self) -> None:
        self.id, self.name = "3f2a", "/data/bills"
        self.rows: list[str] = []
        self.meanwhile: Callable[[], object] = nothing
        self._last: dict[str, int] = {}
        self._notes: list[str] = []

    def last(self, app: str) -> int | None:
        return self._last.get(app)

    def apps(self, prefix: str) -> list[str]:
        return [app for app in self._last if app.startswith(prefix)]

    def newest_records(self, app: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for version in reversed(range(len(self._notes))):
            record = json.loads(self._notes[version])
            if record["app"] == app:
                yield version, record

    def append(self, df: Any, app: str, version: int, record: Mapping[str, Any], options: Mapping[str, str]) -> None:
        assert not options
        seen = self.last(app)
        if seen is not None and seen >= version:
            raise TransactionConflict(f"has version {seen}, and skipped this one")
        meanwhile, self.meanwhile = self.meanwhile, nothing
        meanwhile()
        if self.last(app) != seen:
            raise TransactionConflict("another batch meanwhile")
        self._last[app] = version
        self._notes.append(json.dumps({"app": app, "version": version, **record}))
        self.rows += df

    def take(self, app: str, version: int, record: Mapping[str, Any]) -> None:
        self.append([], app, version, record, {})


class Silent(Table):
    """A table that takes an append, and does not answer from then on: perhaps to that append neither."""

    def __init__(self, *, answers: bool) -> None:
        super().__init__()
        self.about_to, self.is_silent, self._answers = False, False, answers

    def last(self, app: str) -> int | None:
        if self.is_silent:
            raise StoreError("the log of the Delta table cannot be read")
        return super().last(app)

    def append(self, df: Any, *given: Any) -> None:
        super().append(df, *given)
        self.is_silent = self.is_silent or self.about_to
        if self.is_silent and not self._answers:
            raise OutcomeUnknown("the Delta table does not tell whether it took the rows")


class Place:
    """A Delta table, a log, and which of its transactions were committed."""

    def __init__(self, ns: Namespace) -> None:
        self.ns = ns
        self.table = Table()
        self.committed: set[str] = set()
        self.left: dict[str, Any] = {}
        self._numbers = iter(range(1, 1_000))

    def write(self, identity: Versioned | BatchIdentity, *rows: Any) -> TxnId:
        """Bring rows to the table, as a transaction does before it is committed here."""
        txn = TxnId(0, next(self._numbers))
        identity.append(self.table, rows, txn, {})  # type: ignore[arg-type]  # they are no DataFrame
        return txn

    def nightly(self, version: int) -> Versioned:
        """A transaction of an application."""
        return of_app(self.ns._connection, "nightly", version)

    def stream(self, batch: int, content: str) -> Versioned:
        """A micro-batch of a query, with a digest of its source offsets."""
        return of_stream(self.ns._connection, "query", batch, content)

    def run(self, epoch: int, *subscriptions: int) -> RunIdentity:
        """A run of ``process``."""
        owned = tuple(Ownership(f"topic{number}", number, epoch) for number in subscriptions or (7,))
        return of_run(self.ns._connection, owned)

    def bring(self, run: RunIdentity, batch: Batch, *rows: str) -> str:
        """Bring a batch of a run to the table; the transaction that is to commit it."""
        return str(self.write(run.of(batch, self.ns._connection, self.what_is_left), *rows))

    def what_is_left(self, txn: str, read: Any, _after: int) -> Any:
        """By which transactions the log has, and what was given up of the others."""
        return None if txn in self.committed else self.left.get(txn, read)


@pytest.fixture
def place() -> Iterator[Place]:
    """An empty table, and a log in memory."""
    with txnlog.open(f"memory://{uuid4().hex}", "sales", create=True) as ns:
        yield Place(ns)


def batch(start: int, end: int) -> Batch:
    """The messages of one partition between two offsets."""
    return Batch(End(end + 10, {"orders": {0: end}}), {"orders": {0: (start, end)}}, (), end - start, 0)


# --- work that has a version by itself --------------------------------------------------------------------------------


def test_a_batch_that_is_there_is_not_appended_again(place: Place) -> None:
    place.write(place.nightly(8), "a")
    place.write(place.nightly(8), "a")
    place.write(place.nightly(9), "b")
    assert place.table.rows == ["a", "b"]


def test_a_later_version_in_the_table_is_a_conflict(place: Place) -> None:
    place.write(place.nightly(8), "a")
    with pytest.raises(
        TransactionConflict,
        match=r"has version 8 of txnlog/\w{16}/app/nightly, so Delta would skip the rows of version 7",
    ):
        place.write(place.nightly(7), "b")
    assert place.table.rows == ["a"]


def test_another_content_under_the_same_version_is_a_conflict(place: Place) -> None:
    place.write(place.stream(3, "offsets"), "a")
    place.write(place.stream(3, "offsets"), "a")
    with pytest.raises(TransactionConflict, match=r"has another batch under version 3 of .*, since its version 0"):
        place.write(place.stream(3, "others"), "b")
    assert place.table.rows == ["a"]


def test_an_append_that_the_same_work_overtook_is_no_error(place: Place) -> None:
    place.table.meanwhile = lambda: place.write(place.stream(3, "offsets"), "a")
    place.write(place.stream(3, "offsets"), "a")
    assert place.table.rows == ["a"]


@pytest.mark.parametrize(("version", "content"), [(2, "before"), (3, "others"), (4, "behind")])
def test_an_append_that_other_work_overtook_is_a_conflict(place: Place, version: int, content: str) -> None:
    place.table.meanwhile = lambda: place.write(place.stream(version, content), content)
    with pytest.raises(TransactionConflict):
        place.write(place.stream(3, "offsets"), "a")
    assert place.table.rows == [content]


# --- a table that decides ---------------------------------------------------------------------------------------------


@pytest.fixture
def bills(place: Place) -> Namespace:
    """A log with a topic whose transactions a table decides about."""
    place.ns.create_topic("bills", pa.schema([("id", pa.int64())]))
    return place.ns


def begun(ns: Namespace, decision: DeltaDecision) -> Any:
    inner = ns.producer(decision.producer).begin()
    inner.produce("bills", [{"id": 1}])
    return inner


@pytest.mark.parametrize("answers", [True, False])
def test_a_deciding_table_that_may_have_the_rows_is_not_said_to_have_nothing(bills: Namespace, answers: bool) -> None:
    table = Silent(answers=answers)
    decision = DeltaDecision(bills, table, "nightly")
    inner = begun(bills, decision)
    append = table.append

    def lost(*given: Any) -> None:
        append(*given)
        raise OSError("the answer did not come")

    table.about_to = True
    if answers:
        table.append = lost  # type: ignore[assignment,method-assign]
    for _ in range(2):  # asked again it knows no more
        with pytest.raises(OutcomeUnknown, match="it is unknown how the Delta table") as raised:
            decision._finish(["a"], {}, inner)  # type: ignore[arg-type]  # they are no DataFrame
        assert raised.value.durable is Durable.MAYBE
    table.is_silent = table.about_to = False
    assert decision._finish(["a"], {}, inner).version == bills.snapshot().version  # type: ignore[arg-type]
    assert table.rows == ["a"]


def test_how_a_silent_table_decided_is_unknown_to_whoever_settles(
    bills: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:

    def silent(*_given: Any) -> Any:
        raise StoreError("the log of the Delta table cannot be read")

    table = Table()
    decision = DeltaDecision(bills, table, "nightly")
    prepared = bills.transaction(begun(bills, decision).prepare())
    assert prepared.version is not None
    for name in ("last", "take"):
        with monkeypatch.context() as patched:
            patched.setattr(table, name, silent)
            with pytest.raises(OutcomeUnknown, match="it is unknown how the Delta table"):
                decision.settle()
    table.append(["a"], decision._app, 2 * prepared.version, {"txn": str(prepared.txn_id)}, {})
    for asked, name in ((table, "newest_records"), (bills, "transaction"), (decision, "_decided")):
        with monkeypatch.context() as patched:
            patched.setattr(asked, name, silent)
            with pytest.raises(OutcomeUnknown, match="it is unknown how the Delta table"):
                decision.settle()
    assert bills.transaction(prepared.txn_id).state == "PREPARED"


def test_what_a_deciding_table_decided_against_is_not_unknown(bills: Namespace) -> None:
    table = Table()
    decision = DeltaDecision(bills, table, "nightly")
    inner = begun(bills, decision)
    append = table.append

    def lost(df: Any, *given: Any) -> None:
        if df:
            raise OutcomeUnknown("the Delta table does not tell whether it took the rows")
        append(df, *given)

    table.append = lost  # type: ignore[assignment,method-assign]
    with pytest.raises(TransactionAborted, match="decided against it: the Delta table does not tell") as raised:
        decision._finish(["a"], {}, inner)  # type: ignore[arg-type]
    assert raised.value.durable is Durable.NOTHING
    assert table.rows == []
    assert bills.transaction(inner.id).state == "ABORTED"


def test_rows_that_a_deciding_table_has_are_not_denied_where_the_log_cannot_be_written(
    bills: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_given: Any, **_named: Any) -> Any:
        raise StoreError("no space")

    table = Table()
    decision = DeltaDecision(bills, table, "nightly")
    inner = begun(bills, decision)
    for call in (partial(decision._finish, ["a"], {}, inner), decision.settle):  # type: ignore[arg-type]
        with monkeypatch.context() as patched:
            patched.setattr(Namespace, "complete", refused)
            with pytest.raises(StoreError, match="no space") as raised:
                call()
        assert raised.value.durable is Durable.MAYBE
    decision.settle()
    assert bills.transaction(inner.id).state == "COMMITTED"
    assert table.rows == ["a"]


@pytest.mark.parametrize(
    ("entry", "state"), [({}, "COMMITTED"), ({"entry": ""}, "COMMITTED"), ({"entry": "0" * 16}, "ABORTED")]
)
def test_a_decision_that_an_older_version_of_the_library_noted_is_settled(
    bills: Namespace, entry: dict[str, str], state: str
) -> None:
    """It noted no entry; one that is noted must be this log's."""
    table = Table()
    decision = DeltaDecision(bills, table, "nightly")
    prepared = bills.transaction(begun(bills, decision).prepare())
    assert prepared.version is not None
    table.append(["a"], decision._app, 2 * prepared.version, {"txn": str(prepared.txn_id), **entry}, {})
    with contextlib.nullcontext() if state == "COMMITTED" else pytest.raises(TransactionConflict):
        decision.settle()
    assert bills.transaction(prepared.txn_id).state == state


# --- runs of process --------------------------------------------------------------------------------------------------


def test_what_an_older_run_appends_once_a_newer_one_took_the_table_over_is_refused(place: Place) -> None:
    older, newer = place.run(5), place.run(6)
    place.committed.add(place.bring(older, batch(0, 2), "a"))
    place.committed.add(place.bring(newer, batch(2, 4), "b"))
    with pytest.raises(ConsumerFenced, match=r"another run of .* took the Delta table"):
        place.bring(older, batch(2, 4), "b")
    assert place.table.rows == ["a", "b"]


def test_an_older_run_does_not_take_the_table_from_a_newer_one(place: Place) -> None:
    place.committed.add(place.bring(place.run(6), batch(0, 2), "a"))
    with pytest.raises(ConsumerFenced, match=r"another run of .* took the Delta table"):
        place.bring(place.run(5), batch(0, 2), "a")
    assert place.table.rows == ["a"]


def test_a_run_takes_the_table_over_from_one_that_is_quicker_at_that_moment(place: Place) -> None:
    older, newer = place.run(5), place.run(6)
    place.committed.add(place.bring(older, batch(0, 2), "a"))
    place.table.meanwhile = lambda: place.committed.add(place.bring(older, batch(2, 4), "b"))
    place.bring(newer, batch(4, 6), "c")
    assert place.table.rows == ["a", "b", "c"]


def test_a_batch_that_no_entry_commits_must_come_first(place: Place) -> None:
    left = batch(0, 2)
    place.bring(place.run(5), left, "a")
    with pytest.raises(RepeatBatchError) as caught:
        place.bring(place.run(6), batch(0, 4), "a", "b")
    assert (caught.value.record.offsets, caught.value.end) == (left.offsets, left.end)
    assert str(caught.value) == (
        "the Delta table '/data/bills' has a batch that was never committed, since its version 1"
    ), "behind the taking over"
    assert place.table.rows == ["a"]


def test_a_batch_that_comes_again_is_noted_and_not_appended(place: Place) -> None:
    place.bring(place.run(5), batch(0, 2), "a")
    newer = place.run(6)
    again = place.bring(newer, batch(0, 2), "a")
    assert place.table.rows == ["a"]
    _, record = next(place.table.newest_records(newer.app))
    assert (record["txn"], record["offsets"]) == (again, {"orders": {"0": [0, 2]}}), "who is to commit it now"
    with pytest.raises(RepeatBatchError):
        place.bring(newer, batch(2, 4), "b")
    place.committed.add(again)
    place.bring(newer, batch(2, 4), "b")
    assert place.table.rows == ["a", "b"]


def test_a_batch_that_another_subscription_of_these_left_is_not_forgotten(place: Place) -> None:
    left = place.bring(place.run(5, 7), batch(0, 2), "a")
    place.bring(place.run(1, 8), batch(0, 2), "elsewhere")
    with pytest.raises(InvalidInputError, match="of a run over other topics that was never committed: orders"):
        place.bring(place.run(6, 7, 9), batch(0, 4), "a", "b")
    assert place.table.rows == ["a", "elsewhere"]
    place.committed.add(left)
    place.bring(place.run(7, 7, 9), batch(2, 4), "b")
    assert place.table.rows == ["a", "elsewhere", "b"]


@pytest.mark.parametrize(
    "damage",
    [
        {"txn": "7"},
        {"txn": None},
        {"offsets": 5},
        {"offsets": {"orders": {"zero": [0, 2]}}},
        {"offsets": {"orders": {"9" * 5_000: [0, 2]}}},
        {"offsets": {"orders": {"0": [0, 1 << 70]}}},
        {"offsets": {"orders": {"0": [2, 2]}}},
        {"offsets": {"orders": {"0": [True, 2]}}},
        {"offsets": {"returns": {"0": [0, 2]}}},
        {"end": {"version": 1}},
        {"entry": ["x"]},
        {"entry": [["x"], "x"]},
    ],
)
def test_a_note_that_is_damaged_is_reported_with_a_type(place: Place, damage: dict[str, Any]) -> None:
    """Whatever else it raised would count as the handler's failure, and bring messages to the dead letters."""
    older = place.run(5)
    place.bring(older, batch(0, 2), "a")
    _, record = next(place.table.newest_records(older.app))
    place.table.take(older.app, older.next_version(), {**record, **damage, "version": 0})
    with pytest.raises(CorruptionError, match=r"note about a batch of .* in version 2 of .* is damaged"):
        place.bring(place.run(6), batch(0, 2), "a")
    assert place.table.rows == ["a"]


def test_a_note_with_a_partition_that_the_topic_never_had_is_damaged(place: Place) -> None:
    def what_is_left(*_read: Any) -> Any:
        raise PartitionNotThereError("orders 7")

    place.bring(place.run(5), batch(0, 2), "a")
    identity = place.run(6).of(batch(0, 2), place.ns._connection, what_is_left)
    with pytest.raises(CorruptionError, match=r"note about a batch of .* in version 1 of .* is damaged"):
        place.write(identity, "a")
    assert place.table.rows == ["a"]


@pytest.mark.parametrize("committed", [True, False])
def test_a_batch_of_the_log_before_it_was_put_back_is_taken_for_none_of_this_one(place: Place, committed: bool) -> None:
    """It has other messages at these offsets, and gives other transactions the same ids."""
    older = place.run(5)
    place.bring(older, batch(0, 2), "a")
    _, record = next(place.table.newest_records(older.app))
    assert place.ns._connection.has_entry(*record["entry"]), "the newest that there was"
    if committed:
        place.committed.add(record["txn"])
    for epoch, entry in enumerate([[record["entry"][0] + 1, "0" * 32], [record["entry"][0], "0" * 32]], 6):
        noted = {**record, "entry": entry}
        del noted["version"]
        run = place.run(epoch)
        place.table.take(run.app, run.next_version(), noted)
        with pytest.raises(CorruptionError, match=r"from a log with another version \d+ .* restored to an older state"):
            place.bring(run, batch(0, 2), "b")
    assert place.table.rows == ["a"]


def test_a_batch_that_an_older_version_of_the_library_noted_comes_again(place: Place) -> None:
    older = place.run(5)
    place.bring(older, batch(0, 2), "a")
    _, record = next(place.table.newest_records(older.app))
    unknown = {name: record[name] for name in ("txn", "offsets", "end")}
    place.table.take(older.app, older.next_version(), unknown)
    with pytest.raises(RepeatBatchError):
        place.bring(place.run(6), batch(0, 4), "a", "b")
    place.bring(place.run(7), batch(0, 2), "a")
    assert place.table.rows == ["a"]


def test_a_table_that_took_a_batch_and_does_not_answer_then_is_not_said_to_have_nothing(place: Place) -> None:
    place.table = table = Silent(answers=True)
    run = place.run(5)
    place.committed.add(place.bring(run, batch(0, 2), "a"))
    table.about_to = True
    with pytest.raises(OutcomeUnknown, match="it is unknown whether another run took the table over") as raised:
        place.bring(run, batch(2, 4), "b")
    assert raised.value.durable is Durable.MAYBE
    table.about_to = table.is_silent = False
    place.bring(run, batch(2, 4), "b")
    assert table.rows == ["a", "b"], "the same work again appends nothing"


# --- given up ---------------------------------------------------------------------------------------------------------


def test_a_run_knows_the_table_that_has_the_batch_at_hand(place: Place) -> None:
    run = place.run(5)
    assert run.left(place.what_is_left) is None
    txn = place.bring(run, batch(0, 2), "a")
    assert run.left(place.what_is_left) == ("/data/bills", 1)
    place.committed.add(txn)
    assert run.left(place.what_is_left) is None


def test_a_table_that_did_not_say_whether_it_took_a_batch_is_asked_before_that_becomes_dead_letters(
    place: Place,
) -> None:
    run = place.run(5)
    append = place.table.append

    def lost(*given: Any) -> None:
        append(*given)
        raise OSError("the answer did not come")

    place.committed.add(place.bring(run, batch(0, 2), "a"))
    place.table.append = lost  # type: ignore[assignment,method-assign]
    with pytest.raises(OSError, match="did not come"):
        place.bring(run, batch(2, 4), "b")
    place.table.append = append  # type: ignore[method-assign]
    assert run.left(place.what_is_left) == ("/data/bills", 2)
    assert place.table.rows == ["a", "b"]


def test_a_table_is_known_from_the_moment_on_when_work_is_attached(place: Place) -> None:
    place.bring(place.run(5), batch(0, 2), "a")
    run = place.run(6)
    identity = run.of(batch(0, 2), place.ns._connection, place.what_is_left)
    identity.attach(Attached(), place.table, [], {})  # type: ignore[arg-type]
    assert run.left(place.what_is_left) == ("/data/bills", 1)


class Attached:
    """A transaction whose handler fails before its commit."""

    id = TxnId(0, 999)

    def _before_commit(self, *_given: Any) -> None:
        """Nothing comes of it."""


def test_what_became_dead_letters_came_behind_the_moment_when_the_table_took_it(place: Place) -> None:
    """A batch of few rows ends long before the newest version: dead letters of an earlier try would count for it."""
    for number in range(20):
        place.ns.create_topic(f"topic{number}", pa.schema([("id", pa.int64())]))
    version, _ = place.ns._connection.newest_entry
    taken = batch(0, 2)
    assert taken.end.version < version
    place.bring(place.run(5), taken, "a")
    told: list[int] = []

    def what_is_left(_txn: str, read: Any, after: int) -> Any:
        told.append(after)
        return read

    run = place.run(6)
    run.still_open(place.table, run.app, run.known(place.table, what_is_left), what_is_left)
    assert told == [version]


def test_a_batch_that_became_dead_letters_holds_up_no_later_one_and_is_reported_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.left[place.bring(place.run(5), batch(0, 2), "a")] = {}
    run = place.run(6)
    assert run.left(place.what_is_left) is None
    place.committed.add(place.bring(run, batch(2, 4), "b"))
    place.committed.add(place.bring(run, batch(4, 6), "c"))
    assert run.left(place.what_is_left) is None
    assert place.table.rows == ["a", "b", "c"]
    (told,) = [item for item in caplog.records if "dead letters by now" in item.message]
    assert told.levelname == "ERROR"
    assert told.message == (
        "the Delta table '/data/bills' has a batch that was never committed, since its version 1 (orders 0: 0 to 2): "
        "its messages are dead letters by now, and its rows are in the table as well"
    )


def test_a_batch_that_became_dead_letters_does_not_hold_up_a_run_over_more_topics(place: Place) -> None:
    place.left[place.bring(place.run(5, 7), batch(0, 2), "a")] = {}
    place.bring(place.run(6, 7, 8), batch(2, 4), "b")
    assert place.table.rows == ["a", "b"]


def test_of_a_batch_that_became_dead_letters_in_part_the_rest_must_come_first(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.left[place.bring(place.run(5), batch(0, 4), "a")] = {"orders": {0: (2, 4)}}
    run = place.run(6)
    for another in (batch(0, 4), batch(2, 6)):
        with pytest.raises(RepeatBatchError) as wanted:
            place.bring(run, another, "b")
        assert wanted.value.record.offsets == {"orders": {0: (2, 4)}}
    (told,) = [text for text in caplog.messages if "dead letters by now" in text]
    assert "(orders 0: 0 to 4): its messages are dead letters by now, but for orders 0: 2 to 4, and its rows" in told
    place.committed.add(place.bring(run, batch(2, 4), "b"))
    assert place.table.rows == ["a"]
    place.bring(run, batch(4, 6), "c")
    assert place.table.rows == ["a", "c"]
