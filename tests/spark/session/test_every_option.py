"""Every option has, for each place where it may stand, a test of what it does there."""

from __future__ import annotations

import ast
import functools
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

import txnlog
from spark_ext.read.scan import balanced, input_partitions, open_scan
from spark_ext.read.task_reader import ReadPartition
from spark_ext.streaming.format_sink import TopicStreamWriter
from spark_ext.streaming.format_source import TopicStreamReader
from spark_ext.support.options import OPTIONS, read_options, write_options
from spark_ext.write.format_batch_writer import TopicBatchWriter
from tests.spark.runs import batch, batch_reader
from tools.servers import s3_server
from txnlog.data.segment_rows import PlannedSegment, PlannedSlice

HERE = Path(__file__).parent
READ = "read/test_format_read.py::"
OFFSETS = "read/test_format_read_offsets.py::"
STREAM = "streaming/test_format_stream_read.py::"
WRITE = "write/test_format_write.py::"
SINK = "streaming/test_format_stream_write.py::"
BOUNDS = "read/test_read_bounds.py::"
PATTERN = "streaming/test_subscribe_pattern.py::"
EXCLUDED = "read/test_excluded_segments.py::"
METADATA = "read/test_metadata.py::"
FILTERS = "read/test_filters.py::"
THIS = "session/test_every_option.py::"

TESTS: dict[str, dict[str, str]] = {
    "path": {
        "read": f"{READ}test_rows_and_metadata_are_those_of_a_snapshot",
        "readStream": f"{STREAM}test_a_query_of_spark_sees_each_committed_row_once_over_restarts_and_a_crash",
        "write": f"{WRITE}test_rows_are_committed_in_one_transaction_and_come_back_equal",
        "writeStream": f"{SINK}test_each_batch_is_one_commit_and_a_replayed_one_is_skipped",
    },
    "storageOptions": {
        "read": f"{READ}test_secrets_reach_executors_and_no_plan_no_repr_and_no_error",
        "readStream": f"{THIS}test_storage_options_open_the_store_of_a_stream_and_of_both_writers",
        "write": f"{THIS}test_storage_options_open_the_store_of_a_stream_and_of_both_writers",
        "writeStream": f"{THIS}test_storage_options_open_the_store_of_a_stream_and_of_both_writers",
    },
    "subscribe": {
        "read": f"{READ}test_several_topics_come_together_and_say_which_they_are",
        "readStream": f"{STREAM}test_batches_hold_every_committed_row_once_in_whole_transactions",
    },
    "subscribePattern": {
        "read": f"{PATTERN}test_a_batch_reads_the_topics_whose_whole_names_match_at_its_version",
        "readStream": f"{PATTERN}test_a_stream_keeps_the_topics_that_it_began_with_while_it_runs_and_after_a_restart",
    },
    "startingOffsets": {
        "read": f"{OFFSETS}test_a_range_of_offsets_gives_its_rows_and_no_others",
        "readStream": f"{STREAM}test_a_query_without_a_checkpoint_begins_where_its_options_say",
    },
    "endingOffsets": {"read": f"{OFFSETS}test_a_range_of_offsets_gives_its_rows_and_no_others"},
    "startingTimestamp": {
        "read": f"{BOUNDS}test_one_time_alone_bounds_one_side_and_a_text_with_a_zone_is_a_time_as_well",
        "readStream": f"{BOUNDS}test_a_stream_begins_with_the_first_message_of_a_time_or_a_version",
    },
    "endingTimestamp": {"read": f"{BOUNDS}test_a_batch_from_one_time_to_another_holds_the_messages_between_them"},
    "startingVersion": {
        "read": f"{BOUNDS}test_a_batch_since_a_version_holds_what_became_visible_at_it_or_later",
        "readStream": f"{BOUNDS}test_a_stream_begins_with_the_first_message_of_a_time_or_a_version",
    },
    "versionAsOf": {"read": f"{READ}test_every_version_is_read_as_it_was_over_all_topics"},
    "timestampAsOf": {"read": f"{READ}test_a_time_means_the_newest_version_that_is_not_younger"},
    "isolationLevel": {"read": f"{READ}test_open_and_aborted_rows_are_for_read_uncommitted_with_their_state"},
    "includeMetadata": {
        "read": f"{READ}test_rows_and_metadata_are_those_of_a_snapshot",
        "readStream": f"{STREAM}test_rows_and_metadata_are_those_of_a_batch_read",
    },
    "columns": {
        "read": f"{READ}test_columns_are_chosen_by_name_and_come_in_that_order",
        "readStream": f"{STREAM}test_rows_and_metadata_are_those_of_a_batch_read",
    },
    "filters": {
        "read": f"{FILTERS}test_a_read_with_filters_is_the_whole_read_filtered_afterwards",
        "readStream": f"{FILTERS}test_a_stream_leaves_out_rows_and_goes_on_behind_them",
    },
    "excludeSegments": {
        "read": f"{EXCLUDED}test_a_batch_read_leaves_out_what_the_option_names",
        "readStream": f"{EXCLUDED}test_a_stream_goes_on_behind_a_segment_that_it_leaves_out",
    },
    "minPartitions": {
        "read": f"{READ}test_each_partition_comes_in_the_order_of_its_offsets_however_it_is_shared_out",
        "readStream": f"{STREAM}test_rows_and_metadata_are_those_of_a_batch_read",
    },
    "failOnDataLoss": {
        "read": f"{OFFSETS}test_offsets_that_were_deleted_are_an_error_unless_data_loss_is_accepted",
        "readStream": STREAM
        + "test_rows_that_were_deleted_before_they_were_read_stop_the_query_unless_that_is_accepted",
    },
    "metadata": {"read": f"{METADATA}test_the_option_gives_the_rows_of_the_table_in_tasks_that_need_no_store"},
    "limit": {"read": f"{METADATA}test_the_option_gives_as_many_rows_as_the_limit_says_and_the_version_has"},
    "subscription": {
        "readStream": f"{STREAM}test_a_subscription_is_where_a_query_begins_and_what_it_moves_one_batch_late"
    },
    "maxOffsetsPerTrigger": {"readStream": f"{STREAM}test_a_limit_is_soft_and_takes_as_many_whole_transactions_as_fit"},
    "splitTransactions": {
        "readStream": "write/test_split_transactions.py::test_a_large_transaction_is_split_if_that_is_asked_for"
    },
    "topic": {
        "write": f"{WRITE}test_a_topic_column_is_user_data_where_the_topic_is_given",
        "writeStream": f"{THIS}test_a_sink_writes_to_the_topic_of_its_option",
    },
    "transactionalId": {"write": f"{WRITE}test_a_newer_writer_with_the_name_fences_the_older_one"},
    "txnAppId": {
        "readStream": f"{STREAM}test_a_query_takes_over_from_the_consumer_whose_name_is_its_app_id",
        "write": f"{WRITE}test_a_batch_with_an_app_version_is_written_once",
        "writeStream": f"{SINK}test_a_new_checkpoint_under_the_same_app_id_is_refused_naming_both",
    },
    "txnVersion": {"write": f"{WRITE}test_a_batch_with_an_app_version_is_written_once"},
    "acknowledge": {"writeStream": f"{SINK}test_rows_and_acknowledgement_are_in_one_entry"},
    "checkpointLocation": {"writeStream": f"{SINK}test_a_query_without_an_identity_is_refused"},
    "queryName": {"writeStream": f"{THIS}test_the_name_that_spark_shows_of_a_query_changes_nothing"},
}


@functools.cache
def statements(file: str) -> dict[str, tuple[ast.stmt, str]]:
    """What a module has at its top level: by each name it gives the statement, and how that is written."""
    text = (HERE.parent / file).read_text(encoding="utf-8")
    found: dict[str, tuple[ast.stmt, str]] = {}
    for node in ast.parse(text).body:
        first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", ()))])
        source = "\n".join(text.split("\n")[first - 1 : node.end_lineno])
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = [getattr(node, "name", ""), *(item.id for item in targets if isinstance(item, ast.Name))]
        found.update({name: (node, source) for name in names if name})
    return found


def written(file: str, test: str) -> str:
    """A test with all that it uses of its module: helpers, fixtures, constants, and what those use."""
    known, seen, waiting = statements(file), set[str](), [test]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        for node in ast.walk(known[name][0]):
            match node:
                case ast.Name(id=used) | ast.arg(arg=used) | ast.Attribute(attr=used):
                    waiting.append(used)
    return "\n".join(known[name][1] for name in seen)


def test_every_option_has_a_test_for_each_place_where_it_may_stand() -> None:
    assert {option.name: set(option.uses) for option in OPTIONS} == {name: set(uses) for name, uses in TESTS.items()}
    for name, uses in TESTS.items():
        for test in uses.values():
            file, _, function = test.partition("::")
            assert function in statements(file), test
            assert name == "path" or re.search(rf"\b{name}\b", written(file, function)), f"{test} does not use {name}"


# --- what no other module tests ---------------------------------------------------------------------------------------

IDS = pa.schema([("id", pa.int64())])
SPARKS = StructType().add("id", LongType())


def test_storage_options_open_the_store_of_a_stream_and_of_both_writers() -> None:
    """Nothing but these options leads to the bucket."""
    with s3_server() as server:
        storage = server.storage_options
        with txnlog.open(server.url("lake"), namespace="sales", create=True, storage_options=storage) as ns:
            ns.create_topic("orders", IDS)
            ns.produce("orders", [{"id": 7}])
        path = server.url("lake/sales/orders")
        given = {"path": path, "storageOptions": json.dumps(storage)}
        parsed = read_options(given, streaming=True)
        reader = TopicStreamReader(parsed, open_scan(parsed).schema)
        start = reader.initialOffset()
        (part,) = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
        assert [item for rows in reader.read(part) for item in rows.to_pylist()] == [{"id": 7}]
        TopicBatchWriter(write_options(given, streaming=False), SPARKS, overwrite=False)
        TopicStreamWriter(write_options({**given, "txnAppId": "copier"}, streaming=True), SPARKS, overwrite=False)


def sink(namespace: Any, **options: str) -> TopicStreamWriter:
    given = {"path": f"{namespace.root}/{namespace.name}", "txnAppId": "copier", **options}
    return TopicStreamWriter(write_options(given, streaming=True), SPARKS, overwrite=False)


def test_a_sink_writes_to_the_topic_of_its_option(namespace: Any) -> None:
    for topic in ("orders", "audit"):
        namespace.create_topic(topic, IDS)
    spec = sink(namespace, topic="audit").__getstate__()["_spec"]
    assert [target.id for target in spec.targets] == [namespace._connection.topic_record("audit").id]
    with pytest.raises(txnlog.errors.TopicNotFound, match="did you mean 'audit'"):
        sink(namespace, topic="adit")


def test_the_name_that_spark_shows_of_a_query_changes_nothing(namespace: Any) -> None:
    namespace.create_topic("audit", IDS)
    specs = [sink(namespace, topic="audit", **name).__getstate__()["_spec"] for name in ({}, {"queryName": "nightly"})]
    assert specs[0].targets == specs[1].targets


# --- input partitions -------------------------------------------------------------------------------------------------


def segment(number: int, rows: int) -> PlannedSegment:
    halves = (PlannedSlice(0, 0, rows // 2, 0), PlannedSlice(1, rows // 2, rows - rows // 2, 100))
    slices = tuple(piece for piece in halves if piece.rows)
    return PlannedSegment(number, f"k{number}", rows, rows * 10, "c", slices, "COMMITTED", 1, 1, 1, False, False)


def rows_in(share: Any) -> int:
    return sum(item.rows for _, item in share)


@pytest.mark.parametrize("sizes", [[1000], [1] * 1000, [700, 1, 1, 298], [10] * 40 + [600], [3, 0, 5]])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_shares_have_about_the_same_number_of_rows_whatever_the_files(sizes: list[int], count: int) -> None:
    tasks = [("orders", segment(number, rows)) for number, rows in enumerate(sizes) if rows]
    total = sum(sizes)
    shares = balanced(tasks, min(count, total))
    assert sum(map(rows_in, shares)) == total
    assert all(shares)
    assert len(shares) <= count
    even = -(-total // min(count, total))
    assert max(map(rows_in, shares)) <= even + even // 4 + 1
    places = [
        (item.number, piece.partition, piece.first_row + row)
        for share in shares
        for _, item in share
        for piece in item.slices
        for row in range(piece.rows)
    ]
    assert places == sorted(places), "in the order of the plan"
    assert len(places) == len(set(places)) == total


def test_many_small_files_share_tasks_and_a_few_rows_are_one_task(namespace: Any) -> None:
    assert input_partitions([], 5) == []
    small = input_partitions([("orders", segment(number, 2)) for number in range(500)], None)
    assert len(small) == 1
    assert len(input_partitions([("orders", segment(1, 3))], 50)) == 3, "no task without a row"
    namespace.create_topic("orders", IDS)
    for number in range(6):
        namespace.produce("orders", [{"id": number}])
    planned = batch_reader(namespace, "orders", minPartitions=4).partitions()
    assert all(isinstance(part, ReadPartition) for part in planned)
    assert len(planned) == 4
    assert [row["id"] for row in batch(namespace, "orders", minPartitions=4)] == list(range(6))
