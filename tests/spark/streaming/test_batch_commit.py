"""What a batch's commit makes of a query's checkpoint: the epoch, the cursor, and who is fenced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_ext.streaming import batch_commit
from spark_ext.streaming.batch_commit import (
    BatchRange,
    QueryIdentity,
    acknowledgements,
    identity_of,
    ranges_of_batch,
    stream_batch,
)
from spark_ext.write import write_jobs
from tests.spark.support import Query
from txnlog.api.internals import acknowledge_ranges, set_stream
from txnlog.errors import ConsumerFenced, Durable, InvalidInputError, TransactionConflict, UnsupportedFeature
from txnlog.format.actions import StreamBatch

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
from tests.spark.queries import SCHEMA, ns, offset, query

__all__ = ["ns", "query"]  # fixtures


class Run:
    """One run of a query, as a sink carries it out."""

    def __init__(self, ns: Namespace, query: Query, name: str) -> None:
        self.ns, self.query, self.name = ns, query, name

    def commit(self, batch: int) -> bool:
        """Commit a batch; returns whether it was skipped."""
        offsets = self.query.checkpoint.offsets(batch)
        identity = identity_of(self.query.checkpoint, None)
        wanted = stream_batch(identity, batch, offsets)
        if batch_commit.committed_before(self.ns, wanted, self.query.checkpoint):
            return True
        taken = ranges_of_batch(self.ns, self.query.checkpoint, offsets, "billing")
        acknowledged = acknowledgements(self.ns, taken, identity, self.name)
        txn = write_jobs.begin(self.ns, write_jobs.reserve_job(self.ns))
        set_stream(txn, wanted)
        acknowledge_ranges(txn, acknowledged)
        txn.commit()
        return False


def cursors(ns: Namespace) -> list[int]:
    return [item.cursor for item in ns.subscription("orders", "billing").cursors]


@pytest.fixture
def batches(ns: Namespace, query: Query) -> Query:
    query.write(0, offset(ns, (0, 0), (4, 0)))
    query.write(1, offset(ns, (4, 0), (6, 10)))
    query.write(2, offset(ns, (6, 10), (10, 10)))
    return query


def epoch_of(ns: Namespace) -> int:
    return ns.subscription("orders", "billing").epoch


def test_a_run_takes_the_epoch_once_and_the_cursor_follows(ns: Namespace, batches: Query) -> None:
    run = Run(ns, batches, "run-1")
    before = epoch_of(ns)
    run.commit(0)
    taken = epoch_of(ns)
    assert taken > before
    assert cursors(ns) == [4, 0]
    run.commit(1)
    run.commit(2)
    assert cursors(ns) == [10, 10]
    assert epoch_of(ns) == taken
    assert ns.subscription("orders", "billing").consumer == "run-1"


def test_a_process_that_knows_nothing_finds_its_runs_epoch_in_the_log(
    ns: Namespace, batches: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    Run(ns, batches, "run-1").commit(0)
    taken = epoch_of(ns)
    monkeypatch.setattr(batch_commit, "_epochs", {})
    Run(ns, batches, "run-1").commit(1)
    assert epoch_of(ns) == taken
    assert cursors(ns) == [6, 10]


@pytest.mark.clause("P-79")
@pytest.mark.parametrize("forgets", [False, True])
def test_a_newer_run_fences_the_older_one_for_good(
    ns: Namespace, batches: Query, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    older, newer = Run(ns, batches, "run-1"), Run(ns, batches, "run-2")
    older.commit(0)
    taken = batch_commit._take_epoch(ns, *_taking(ns, batches), "run-2")
    if forgets:
        monkeypatch.setattr(batch_commit, "_epochs", {})
    for _ in range(2):
        with pytest.raises(ConsumerFenced, match="newer run"):
            older.commit(1)
    assert epoch_of(ns) == taken, "the older run did not take it back"
    assert not newer.commit(1)
    assert older.commit(1), "the same batch again is done"
    assert cursors(ns) == [6, 10]


def test_a_run_that_lost_one_of_its_topics_never_takes_it_back(
    ns: Namespace, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch in a process of its own, and none but the first takes anything of ``orders`` before it is lost."""
    ns.create_topic("returns", SCHEMA)
    ns.produce("returns", [{"x": i} for i in range(10)])
    ns.create_subscription("returns", "billing")
    subscriptions = {topic: ns.subscription(topic, "billing").id for topic in ("orders", "returns")}

    def commit(batch: int, run: str, **taken: tuple[int, int]) -> None:
        monkeypatch.setattr(batch_commit, "_epochs", {})
        ranges = [BatchRange(topic, subscriptions[topic], {0: low}, {0: high}) for topic, (low, high) in taken.items()]
        identity = QueryIdentity("query", "query")
        wanted = acknowledgements(ns, ranges, identity, run)
        with ns.begin() as txn:
            set_stream(txn, stream_batch(identity, batch, None))
            acknowledge_ranges(txn, wanted)

    commit(0, "run-1", orders=(0, 2), returns=(0, 2))
    commit(1, "run-1", orders=(2, 2), returns=(2, 4))
    commit(2, "run-1", orders=(2, 2), returns=(4, 4))
    consumers = [ns.consumer(topic, "billing", takeover=True) for topic in subscriptions]
    for taken in ({"orders": (2, 4), "returns": (4, 6)}, {"orders": (2, 2), "returns": (4, 4)}):
        with pytest.raises(ConsumerFenced, match="newer run"):
            commit(3, "run-1", **taken)
    assert all(consumer.receive(timeout_ms=0) for consumer in consumers), "nobody took it from them"
    commit(3, "run-2", orders=(2, 2), returns=(4, 6))
    assert ns.subscription("orders", "billing").consumer != "run-2", "it has taken nothing of it yet"
    commit(4, "run-2", orders=(2, 4), returns=(6, 6))
    assert [ns.subscription(topic, "billing").cursors[0].cursor for topic in subscriptions] == [4, 6]


def _taking(ns: Namespace, query: Query) -> tuple[batch_commit.BatchRange, QueryIdentity]:
    (taken,) = ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(1), "billing")
    return taken, identity_of(query.checkpoint, None)


def test_a_consumer_that_opens_fences_the_stream_and_a_restart_takes_over(ns: Namespace, batches: Query) -> None:
    Run(ns, batches, "run-1").commit(0)
    ns.consumer("orders", subscription="billing", takeover=True)
    with pytest.raises(ConsumerFenced):
        Run(ns, batches, "run-1").commit(1)
    assert not Run(ns, batches, "run-2").commit(1)


def test_a_cursor_elsewhere_is_refused_with_both_places_and_the_ways_out(ns: Namespace, batches: Query) -> None:
    Run(ns, batches, "run-1").commit(0)
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: 5})
    with pytest.raises(
        InvalidInputError,
        match=r"continues at offset 4, .* at 5 \(restore .*"
        r"; if a consumer .* acknowledged messages beyond the checkpoint, this query has not processed offsets 4 to 4: "
        r".*; otherwise a new .* skips what lies between, and has no state .*; seek back only .* once more",
    ):
        Run(ns, batches, "run-2").commit(1)
    assert cursors(ns) == [5, 0]
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: 4})
    Run(ns, batches, "run-3").commit(1)
    assert cursors(ns) == [6, 10]


@pytest.mark.clause("P-84")
def test_a_race_for_the_cursor_is_decided_by_the_log(ns: Namespace, batches: Query) -> None:
    taken, identity = (
        ranges_of_batch(ns, batches.checkpoint, batches.checkpoint.offsets(0), "billing"),
        QueryIdentity("q", "q"),
    )
    wanted = acknowledgements(ns, taken, identity, "run-1")
    txn = write_jobs.begin(ns, write_jobs.reserve_job(ns))
    other = write_jobs.begin(ns, write_jobs.reserve_job(ns))
    acknowledge_ranges(other, wanted)
    other.commit()
    with pytest.raises(TransactionConflict, match="the cursor of 'billing' in partition 0 is at 4, not at 0"):
        acknowledge_ranges(txn, wanted)


def test_messages_taken_one_by_one_before_the_stream_are_not_taken_twice(ns: Namespace, batches: Query) -> None:
    consumer = ns.consumer("orders", subscription="billing", takeover=True)
    received = [consumer.receive(10), consumer.receive(10)]
    (first,) = [messages for messages in received if messages.positions[0][1] == 0]
    consumer.acknowledge(first[[2, 3]])
    with pytest.raises(InvalidInputError, match="offsets 2 to 4, which were acknowledged"):
        Run(ns, batches, "run-1").commit(0)


def test_a_shared_subscription_is_no_streams(ns: Namespace, batches: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec

    (taken,) = ranges_of_batch(ns, batches.checkpoint, batches.checkpoint.offsets(0), "billing")
    records = ns._connection.follower.state.subscriptions
    monkeypatch.setitem(
        records, taken.subscription, msgspec.structs.replace(records[taken.subscription], type="shared")
    )
    with pytest.raises(UnsupportedFeature, match="is shared"):
        acknowledgements(ns, [taken], QueryIdentity("q", "q"), "run")


@pytest.mark.clause("P-70", "P-71")
def test_the_same_batch_again_is_skipped_and_another_one_under_its_id_refused(ns: Namespace, batches: Query) -> None:
    run = Run(ns, batches, "run-1")
    run.commit(0)
    version = ns._connection.follower.refresh()
    assert run.commit(0)
    assert Run(ns, batches, "run-2").commit(0)
    assert ns._connection.follower.refresh() == version
    batches.write(0, offset(ns, (0, 0), (4, 3)))
    with pytest.raises(InvalidInputError, match="with other source offsets"):
        run.commit(0)
    assert cursors(ns) == [4, 0]


@pytest.mark.clause("P-71")
def test_a_new_checkpoint_under_the_same_app_id_is_refused_naming_both(
    ns: Namespace, batches: Query, tmp_path: Path
) -> None:
    another = Query(tmp_path / "another")
    (another.folder / "metadata").write_text('{"id":"another-query"}')
    another.write(0, offset(ns, (0, 0), (4, 0)))

    def wanted(query: Query) -> StreamBatch:
        return stream_batch(identity_of(query.checkpoint, "app"), 0, query.checkpoint.offsets(0))

    with ns.begin() as txn:
        set_stream(txn, wanted(batches))
    assert batch_commit.committed_before(ns, wanted(batches), batches.checkpoint) is not None
    with pytest.raises(InvalidInputError, match=r"query '8aba74d1-[^']*'; the query 'another-query' begins again"):
        batch_commit.committed_before(ns, wanted(another), another.checkpoint)


@pytest.mark.clause("P-71")
def test_an_older_checkpoint_is_refused_and_its_rows_are_not_taken_for_committed(ns: Namespace, batches: Query) -> None:
    """As restored from a backup: its next batch has the number of an old one, and rows that were in none."""
    run = Run(ns, batches, "run-1")
    for batch in range(3):
        run.commit(batch)
    assert run.commit(2), "the last one again is done"
    (batches.folder / "offsets" / "2").unlink()
    batches.write(1, offset(ns, (4, 0), (10, 10)))
    with pytest.raises(InvalidInputError, match=r"continues at batch 1, but the log has batch 2 .*new checkpointLoc"):
        run.commit(1)
    batches.write(2, offset(ns, (10, 10), (10, 10)))
    with pytest.raises(InvalidInputError, match="the log has batch 2"):
        run.commit(1)  # what the copy planned itself is no sign of another run


def test_a_run_that_another_one_with_its_checkpoint_overtook_is_fenced(ns: Namespace, batches: Query) -> None:
    """The folder has the later batch that the log has, so it is no older copy: a supervisor must not start it again."""
    slow, other = Run(ns, batches, "run-1"), Run(ns, batches, "run-2")
    slow.commit(0)
    for batch in (1, 2):
        other.commit(batch)
    for _ in range(2):
        with pytest.raises(
            ConsumerFenced, match=r"another run .* committed batch 2.*once the other run has ended"
        ) as refused:
            slow.commit(1)
        assert refused.value.durable is Durable.NOTHING
    assert slow.commit(2), "the last one again is done"
    assert cursors(ns) == [10, 10]
