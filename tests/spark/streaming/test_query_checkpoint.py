"""What a query's checkpoint says, and which offsets a batch took; without a Spark around it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructType

import txnlog
from spark_ext.streaming import batch_commit
from spark_ext.streaming.batch_commit import (
    QueryIdentity,
    acknowledgements,
    check_sources,
    identity_of,
    ranges_of_batch,
)
from spark_ext.streaming.format_sink import StreamTaskWritten, TopicStreamWriter
from spark_ext.streaming.offsets import StreamOffset
from spark_ext.streaming.query_checkpoint import Checkpoint, parse_offsets
from spark_ext.streaming.source_plan import StreamPlan
from spark_ext.support.options import read_options, write_options
from spark_ext.write import write_jobs
from tests.spark.support import Query, path_of
from txnlog.api.adoption import adopt_namespace
from txnlog.errors import InvalidInputError, SubscriptionNotFound, UnsupportedFeature

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
from tests.spark.queries import SCHEMA, ns, offset, query

__all__ = ["ns", "query"]  # fixtures


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


def test_the_formats_sink_acknowledges_nothing_for_a_run_without_a_name(ns: Namespace, query: Query) -> None:
    """Spark's name of the run, a property of its tasks, is what fences another one."""
    ns.create_topic("copy", SCHEMA)
    query.write(0, offset(ns, (0, 0), (4, 4)))
    given = {"path": path_of(ns, "copy"), "checkpointLocation": query.checkpoint.location, "acknowledge": "billing"}
    writer = TopicStreamWriter(write_options(given, streaming=True), StructType().add("x", LongType()), False)
    numbers = write_jobs.reserve_job(ns)
    version = ns.snapshot().version
    with pytest.raises(UnsupportedFeature, match=r"does not say which run .* a task belongs to"):
        writer.commit([StreamTaskWritten(numbers, "", (), "")], 0)
    assert ns.snapshot().version == version


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
