"""What a query's checkpoint says, and what a batch's commit makes of it; without a Spark around it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

import txnlog
from spark_ext.streaming import batch_commit
from spark_ext.streaming.batch_commit import (
    BatchRange,
    QueryIdentity,
    acknowledgements,
    check_sources,
    identity_of,
    ranges_of_batch,
    stream_batch,
)
from spark_ext.streaming.format_sink import StreamTaskWritten, TopicStreamWriter
from spark_ext.streaming.offsets import StreamOffset
from spark_ext.streaming.query_checkpoint import BatchOffsets, Checkpoint, parse_offsets
from spark_ext.streaming.source_plan import StreamPlan
from spark_ext.support import namespace_cache
from spark_ext.support.options import read_options, write_options
from spark_ext.support.paths import normal
from spark_ext.write import write_jobs
from tests.spark.support import Query, path_of
from txnlog.api.adoption import adopt_namespace
from txnlog.errors import (
    ConsumerFenced,
    InvalidInputError,
    SubscriptionNotFound,
    TransactionConflict,
    UnsupportedFeature,
)
from txnlog.format.actions import StreamBatch

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("x", pa.int64())])


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint")


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    for partition in (0, 1):
        namespace.produce("orders", [{"x": i} for i in range(10)], partition=partition)
    namespace.create_subscription("orders", "billing")
    return namespace


def offset(ns: Namespace, start: tuple[int, int], end: tuple[int, int], **changes: Any) -> StreamOffset:
    values = {
        "namespace": ns.name,
        "coordinator": ns._connection.coordinator,
        "version": ns._connection.follower.version,
        "subscription": "billing",
        "topic_ids": {"orders": ns.topic("orders").id},
        "offsets": {"orders": dict(enumerate(end))},
        "start": {"orders": dict(enumerate(start))},
    }
    return StreamOffset(**{**values, **changes})


# --- files ------------------------------------------------------------------------------------------------------------


def test_both_formats_of_the_offset_log_are_read(query: Query) -> None:
    query.write(3, '{"a":1}', "-", "17")
    found = query.checkpoint.offsets(3)
    assert dict(found.sources) == {"0": '{"a":1}', "1": None, "2": "17"}
    query.write(4, "second:-", 'first:{"b":{"c":2}}', version="v2")
    assert dict(query.checkpoint.offsets(4).sources) == {"first": '{"b":{"c":2}}', "second": None}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"v3\n{}\n1",
        b"v1",
        b"v1\n{}",
        b"v2\n{}\nno colon",
        b"v2\n{}\na:1\na:2",
        b"\xff\xfe",
        b'{"a": 1}',
    ],
)
def test_other_formats_are_refused_and_never_guessed(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"batch 5.*knows the formats v1 and v2"):
        parse_offsets(5, data)


def test_a_batch_that_the_log_does_not_hold_is_none(query: Query) -> None:
    assert query.checkpoint.offsets(0) is None


def test_the_digest_is_of_the_sources_offsets_alone(query: Query) -> None:
    query.write(1, '{"a":1}', "2")
    first = query.checkpoint.offsets(1).digest()
    (query.folder / "offsets" / "1").write_text('v1\n{"batchTimestampMs":9}\n{"a":1}\n2')
    assert query.checkpoint.offsets(1).digest() == first
    for other in (['{"a":1}', "3"], ["2", '{"a":1}'], ['{"a":1}', "-"], ['{"a":1}']):
        query.write(1, *other)
        assert query.checkpoint.offsets(1).digest() != first
    query.write(1, "a:1", "b:2", version="v2")
    named = query.checkpoint.offsets(1).digest()
    query.write(1, "b:2", "a:1", version="v2")
    assert query.checkpoint.offsets(1).digest() == named


def test_of_a_source_that_counts_its_batches_the_digest_is_of_when_it_was_planned_as_well(query: Query) -> None:
    """Its offset says the same of other files, where an older copy of the checkpoint took the checkpoint's place."""
    for texts in (['{"logOffset":1}'], ['{"a":1}', '{"logOffset":1}']):
        query.write(1, *texts)
        first = query.checkpoint.offsets(1).digest()
        assert query.checkpoint.offsets(1).digest() == first
        (query.folder / "offsets" / "1").write_text("\n".join(["v1", '{"batchTimestampMs":9}', *texts]))
        assert query.checkpoint.offsets(1).digest() != first


def test_a_query_is_known_by_its_checkpoint_or_its_app_id(query: Query, tmp_path: Path) -> None:
    own = "8aba74d1-2b49-4518-8ea2-51b06a0e81ac"
    assert identity_of(query.checkpoint, None) == QueryIdentity(own, own)
    assert identity_of(query.checkpoint, "app") == QueryIdentity("app", own)
    assert identity_of(None, "app") == QueryIdentity("app", "")
    for nothing in (None, Checkpoint(str(tmp_path / "elsewhere"))):
        with pytest.raises(InvalidInputError, match="pass checkpointLocation as an option, or txnAppId"):
            identity_of(nothing, None)


@pytest.mark.parametrize("text", ["", "{}", '{"id":7}', '{"id":""}', "[]", "null"])
def test_a_metadata_file_without_an_id_is_no_checkpoint(query: Query, text: str) -> None:
    (query.folder / "metadata").write_text(text)
    with pytest.raises(InvalidInputError, match="no query id"):
        query.checkpoint.query_id()


@pytest.mark.parametrize("location", ["file:{}", "file://{}", "{}"])
def test_locations_are_written_as_spark_writes_them(query: Query, location: str) -> None:
    assert Checkpoint(location.format(query.folder)).query_id()


# --- what a batch took ------------------------------------------------------------------------------------------------


def test_a_batch_took_what_its_own_offset_says(ns: Namespace, query: Query) -> None:
    query.write(0, offset(ns, (0, 0), (4, 0)), '{"rate":1}')
    (first,) = ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(0), "billing")
    assert (first.start, first.end) == ({0: 0, 1: 0}, {0: 4, 1: 0})
    query.write(1, offset(ns, (4, 0), (6, 10)), '{"rate":2}')
    (second,) = ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(1), "billing")
    assert (second.start, second.end) == ({0: 4, 1: 0}, {0: 6, 1: 10})


def test_a_source_without_anything_new_took_nothing(ns: Namespace, query: Query) -> None:
    same = offset(ns, (0, 0), (4, 4))
    query.write(0, same, '{"rate":1}')
    query.write(1, same, '{"rate":2}')
    taken = ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(1), "billing")
    assert acknowledgements(ns, taken, QueryIdentity("q", "q"), "run") == []


def test_a_batch_without_the_one_before_it_is_refused(ns: Namespace, query: Query) -> None:
    query.write(7, offset(ns, (0, 0), (4, 4)))
    with pytest.raises(InvalidInputError, match="lacks the offsets of batch 6"):
        ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(7), "billing")


def test_two_sources_on_one_subscription_are_refused(ns: Namespace, query: Query) -> None:
    """Also where no sink acknowledges: each source does it then, and knows nothing of the other."""
    first = offset(ns, (0, 0), (4, 4))
    query.write(0, first, "-", offset(ns, (0, 0), (5, 5)))
    with pytest.raises(InvalidInputError, match="two sources of the query read the topic 'orders'"):
        check_sources(ns, query.checkpoint.offsets(0))
    returns = {"topic_ids": {"returns": 99}, "offsets": {"returns": {0: 1}}, "start": {}}
    others: list[dict[str, Any]] = [{"subscription": "audit"}, returns, {"coordinator": 9}]
    for other in others:
        query.write(0, first, dataclasses.replace(offset(ns, (0, 0), (5, 5)), **other))
        check_sources(ns, query.checkpoint.offsets(0))
    query.write(0, *[offset(ns, (0, 0), (4, 4), subscription=None)] * 2)
    check_sources(ns, query.checkpoint.offsets(0))


def test_offsets_from_before_the_namespace_was_adopted_are_ours(ns: Namespace, query: Query) -> None:
    before = offset(ns, (0, 0), (4, 4))
    adopt_namespace(ns.root, ns.name, force=True)
    assert ns.snapshot().version == before.version + 1
    after = offset(ns, (0, 0), (4, 4))
    assert (before.coordinator, after.coordinator) == (0, 1)
    for known in (before, after):
        query.write(0, known)
        assert len(ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(0), "billing")) == 1


@pytest.mark.parametrize("coordinator", [0, 1], ids=["the original", "another adopted copy"])
def test_what_was_read_in_another_copy_of_the_log_is_not_ours(ns: Namespace, query: Query, coordinator: int) -> None:
    """The copy has its own messages at these offsets: its cursor would pass over some that nobody read."""
    adopt_namespace(ns.root, ns.name, force=True)
    newest = ns.snapshot().version
    query.write(0, offset(ns, (0, 0), (4, 4), coordinator=coordinator, entry=(newest, "0" * 32)))
    with pytest.raises(InvalidInputError, match="no source of the query reads"):
        ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(0), "billing")
    query.write(0, offset(ns, (0, 0), (4, 4), coordinator=coordinator, entry=ns._connection.newest_entry))
    assert len(ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(0), "billing")) == 1


def test_sources_of_other_places_and_subscriptions_are_not_ours(ns: Namespace, query: Query) -> None:
    strangers: list[StreamOffset | str] = [
        offset(ns, (0, 0), (4, 4), namespace="other"),
        offset(ns, (0, 0), (4, 4), coordinator=9),
        offset(ns, (0, 0), (4, 4), log="0123456789abcdef"),
        offset(ns, (0, 0), (4, 4), subscription="audit"),
        offset(ns, (0, 0), (4, 4), subscription=None),
        '{"orders":{"0":4}}',
        "12",
        "not json",
        "-",
    ]
    query.write(0, *strangers)
    refused = r"reads the namespace 'sales' with the subscription 'billing' \(it reads with 'audit': give the source"
    with pytest.raises(InvalidInputError, match=refused):
        ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(0), "billing")
    query.write(0, *strangers, offset(ns, (0, 0), (4, 4)))
    assert len(ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(0), "billing")) == 1


@pytest.mark.parametrize("newest", ["kept", "of an older version, which did not keep it"])
def test_a_source_in_a_root_that_the_same_script_made_is_not_ours(
    ns: Namespace, query: Query, tmp_path: Path, newest: str
) -> None:
    with txnlog.open(tmp_path / "twin", namespace="sales", create=True) as twin:
        twin.create_topic("orders", SCHEMA, partitions=2)
        for partition in (0, 1):
            twin.produce("orders", [{"x": i} for i in range(10)], partition=partition)
        twin.create_subscription("orders", "billing")
        assert (twin.topic("orders").id, twin.name) == (ns.topic("orders").id, ns.name), "only the logs tell them apart"
        options = read_options({"path": f"{twin.root}/sales/orders", "subscription": "billing"}, streaming=True)
        plan = StreamPlan(options, {}, None)
        found = plan.latest(plan.initial().to_dict(), None)
        assert (found["log"], found["entry"]) != (None, None)
        query.write(0, json.dumps(found if newest == "kept" else {**found, "entry": None}))
    with pytest.raises(InvalidInputError, match="no source of the query reads the namespace 'sales'"):
        ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(0), "billing")
    assert batch_commit.subscriptions_read(ns, query.checkpoint.offsets(0)) == []


def test_offsets_of_a_later_version_are_refused(ns: Namespace, query: Query) -> None:
    query.write(0, json.dumps({**offset(ns, (0, 0), (4, 4)).to_dict(), "format": 2}))
    with pytest.raises(InvalidInputError, match="have the format 2"):
        ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(0), "billing")


def test_a_subscription_of_an_earlier_topic_is_gone(ns: Namespace, query: Query) -> None:
    query.write(0, offset(ns, (0, 0), (4, 4)))
    ns.drop_topic("orders")
    ns.create_topic("orders", SCHEMA, partitions=2)
    ns.create_subscription("orders", "billing")
    with pytest.raises(SubscriptionNotFound, match="is gone"):
        ranges_of_batch(ns, query.checkpoint, query.checkpoint.offsets(0), "billing")


def test_the_formats_sink_reports_a_subscription_that_nothing_acknowledges(
    ns: Namespace, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    ns.create_topic("copy", SCHEMA)
    query.write(0, offset(ns, (0, 0), (4, 4)))
    query.write(1, offset(ns, (4, 4), (6, 6)))
    given = {"path": path_of(ns, "copy"), "checkpointLocation": query.checkpoint.location}
    for batch in range(2):
        writer = TopicStreamWriter(write_options(given, streaming=True), StructType().add("x", LongType()), False)
        numbers = write_jobs.reserve_job(ns)
        writer.commit([StreamTaskWritten(numbers, "run", (), "")], batch)
    told = [text for item in caplog.records if "nothing acknowledges it" in (text := item.getMessage())]
    assert len(told) == 1
    assert "pass acknowledge='billing'" in told[0]


# --- acknowledging it -------------------------------------------------------------------------------------------------


class Run:
    """One run of a query, as a sink carries it out."""

    def __init__(self, ns: Namespace, query: Query, name: str) -> None:
        self.ns, self.query, self.name = ns, query, name

    def commit(self, batch: int) -> bool:
        """Commit a batch; returns whether it was skipped."""
        offsets = self.query.checkpoint.offsets(batch)
        identity = identity_of(self.query.checkpoint, None)
        wanted = stream_batch(identity, batch, offsets)
        if batch_commit.committed_before(self.ns, wanted):
            return True
        taken = ranges_of_batch(self.ns, self.query.checkpoint, offsets, "billing")
        acknowledged = acknowledgements(self.ns, taken, identity, self.name)
        txn = write_jobs.begin(self.ns, write_jobs.reserve_job(self.ns))
        txn._set_stream(wanted)
        txn._acknowledge_ranges(acknowledged)
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
            txn._set_stream(stream_batch(identity, batch, None))
            txn._acknowledge_ranges(wanted)

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
        match=r"continues at offset 4, .* at 5 \(restore .*; otherwise a new .*; seek back only .* once more",
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
    other._acknowledge_ranges(wanted)
    other.commit()
    with pytest.raises(TransactionConflict, match="the cursor of 'billing' in partition 0 is at 4, not at 0"):
        txn._acknowledge_ranges(wanted)


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
        txn._set_stream(wanted(batches))
    assert batch_commit.committed_before(ns, wanted(batches)) is not None
    with pytest.raises(InvalidInputError, match=r"query '8aba74d1-[^']*'; the query 'another-query' begins again"):
        batch_commit.committed_before(ns, wanted(another))


@pytest.mark.clause("P-71")
def test_an_older_checkpoint_is_refused_and_its_rows_are_not_taken_for_committed(ns: Namespace, batches: Query) -> None:
    """As restored from a backup: its next batch has the number of an old one, and rows that were in none."""
    run = Run(ns, batches, "run-1")
    for batch in range(3):
        run.commit(batch)
    assert run.commit(2), "the last one again is done"
    batches.write(1, offset(ns, (4, 0), (10, 10)))
    with pytest.raises(InvalidInputError, match=r"continues at batch 1, but the log has batch 2 .*new checkpointLoc"):
        run.commit(1)


# --- names that are alike, and bytes that mean harm -------------------------------------------------------------------


IDS = pa.schema([("id", pa.int64())])


GOOD = StreamOffset("sales", 4, 7, "billing", {"orders": 1}, {"orders": {0: 5}}, {"orders": {0: 0}}, "q").to_dict()


@pytest.mark.parametrize("url", [True, False])
@pytest.mark.parametrize("name", ["a%20b", "a#b", "a?b", "a b", "a b ", " a b", "~", "a%2Fb"])
def test_a_checkpoint_is_never_another_one_whose_name_is_alike(tmp_path: Path, name: str, url: bool) -> None:
    """Spark takes every character of a local location for itself. Another query's id would skip what it committed."""
    for other in {"a b", "a", name}:
        (tmp_path / other).mkdir()
        (tmp_path / other / "metadata").write_text(json.dumps({"id": other}))
    given = f"{tmp_path}/{name}"
    assert Checkpoint(f"file://{given}" if url else given).query_id() == name


def test_a_checkpoint_in_a_folder_called_tilde_is_not_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Checkpoint("~/c").location == str(tmp_path / "~" / "c")


@pytest.mark.parametrize("location", ["", " ", "file:", "file://host/c", "file:c", "file:////c"])
def test_a_location_that_means_nothing_is_refused(location: str) -> None:
    with pytest.raises(InvalidInputError):
        Checkpoint(location)


@pytest.mark.parametrize("path", ["file:///lake/sales#old", "file:///lake/sales?old"])
def test_a_namespaces_url_is_not_cut_short(path: str) -> None:
    with pytest.raises(InvalidInputError, match="plain path"):
        normal(path)


@pytest.mark.parametrize(
    "change",
    [
        {"version": float("inf")},
        {"version": True},
        {"version": "7"},
        {"coordinator": -1},
        {"coordinator": 4.5},
        {"namespace": None},
        {"namespace": ["sales"]},
        {"subscription": 3},
        {"query": 3},
        {"topic_ids": {"orders": 1.5}},
        {"topic_ids": []},
        {"offsets": {"orders": {"0": float("inf")}}},
        {"offsets": {"orders": {"0": float("nan")}}},
        {"offsets": {"orders": {"0": 5.9}}},
        {"offsets": {"orders": {"0": -1}}},
        {"offsets": {"orders": {"zero": 1}}},
        {"offsets": {"orders": [5]}},
        {"entry": [7]},
        {"entry": [-7, "0"]},
        {"start": {"orders": {"0": None}}},
        {"start": {"ordert": {"0": 0}}},
        {"offsets": {"ordert": {"0": 5}}},
        {"topic_ids": {"ordert": 1}},
        {"epochs": {"ordert": 7}},
        {"start": 1},
    ],
)
def test_a_damaged_offset_is_refused_and_never_rounded(change: dict[str, Any]) -> None:
    assert StreamOffset.from_dict(json.loads(json.dumps(GOOD))).to_dict() == GOOD
    with pytest.raises(InvalidInputError, match="a damaged offset"):
        StreamOffset.from_dict(json.loads(json.dumps({**GOOD, **change})))


class PutBack:
    """A namespace that is put back to a backup, and streams of it, each in a process of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._backup = folder / "lake", folder / "backup"
        self._monkeypatch = monkeypatch

    def write(self, ids: Iterable[int], topics: int = 1) -> None:
        with txnlog.open(self.root, "sales", create=True) as ns:
            for number in range(topics):
                ns.create_topic(f"orders{number}", IDS, if_not_exists=True)
            for number in ids:
                ns.produce("orders0", [{"id": number}])

    def save(self) -> None:
        shutil.copytree(self.root, self._backup)

    def put_back(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self._backup, self.root)

    def plan(self) -> StreamPlan:
        self._monkeypatch.setattr(namespace_cache, "_handles", OrderedDict())  # as in a process that starts now
        return StreamPlan(read_options({"path": f"{self.root}/sales/orders0"}, streaming=True), {}, None)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PutBack:
    return PutBack(tmp_path, monkeypatch)


@pytest.mark.some(3)
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("topics", [1, 30])
@pytest.mark.parametrize("limit", [None, 2])
def test_a_checkpoint_that_is_ahead_of_its_namespace_is_refused_and_passes_over_nothing(
    lake: PutBack, topics: int, limit: int | None, earlier: bool
) -> None:
    """As after a restored backup: the stream would wait, and go on behind what is new."""
    lake.write(range(3))
    lake.save()
    lake.write(range(5))
    first = lake.plan()
    end = first.latest(first.initial().to_dict(), None)
    if earlier:  # offsets of the version before this one say nothing of an entry
        del end["entry"]
    assert lake.plan().latest(end, limit) == end
    lake.put_back()
    lake.write([], topics)
    with pytest.raises(
        InvalidInputError, match=r"of version \d+, but it now reads a namespace 'sales' that ends before"
    ):
        lake.plan().latest(end, limit)


@pytest.mark.parametrize("limit", [None, 2])
def test_a_namespace_that_was_put_back_and_went_on_is_not_the_one_that_a_checkpoint_is_of(
    lake: PutBack, limit: int | None
) -> None:
    """It ends behind the checkpoint by now: what came since the older state would be passed over."""
    lake.write(range(3))
    lake.save()
    lake.write(range(3, 8))
    first = lake.plan()
    start = first.initial().to_dict()
    end = first.latest(start, limit)
    assert lake.plan().partitions(start, end)
    lake.put_back()
    lake.write(range(100, 112))
    for look in (lambda: lake.plan().latest(end, limit), lambda: lake.plan().partitions(start, end)):
        with pytest.raises(InvalidInputError, match="or was put back to an older state and went on"):
            look()


DEEP = "[" * 200_000


@pytest.mark.parametrize("option", ["startingOffsets", "storageOptions"])
def test_an_option_nested_too_deep_is_a_bad_value(option: str) -> None:
    with pytest.raises(InvalidInputError, match=f"the option '{option}' is "):
        read_options({"path": "/lake/sales/orders", option: DEEP}, streaming=False)


def test_metadata_and_offsets_nested_too_deep_are_nobodys(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(DEEP)
    checkpoint = Checkpoint(str(tmp_path))
    with pytest.raises(InvalidInputError, match="holds no query id"):
        checkpoint.query_id()
    with (
        txnlog.open(tmp_path / "lake", "sales", create=True) as ns,
        pytest.raises(InvalidInputError, match="no source of the query reads"),
    ):
        ranges_of_batch(ns, checkpoint, BatchOffsets(0, {"0": DEEP}), "billing")
