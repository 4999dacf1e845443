"""What executors write: files, numbers, slices and order, without a Spark around it."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from spark_ext.write import task_writer, write_jobs
from spark_ext.write.task_writer import ATTEMPTS, TaskIdentity, WriteSpec, WrittenSegment, write_batches
from txnlog.common.limits import STATISTICS_COLUMNS
from txnlog.data import partitioner
from txnlog.data.scan_planner import plan
from txnlog.data.segment_rows import PlannedSegment
from txnlog.errors import LimitExceeded, SchemaMismatch, TopicNotFound
from txnlog.format.keys import segment_key

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string()), ("amount", pa.float64())])
TASK = TaskIdentity(3, 7_000)


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("keyed", SCHEMA, partitions=4, key="customer")
    namespace.create_topic("turns", SCHEMA, partitions=4)
    namespace.create_topic("single", SCHEMA)
    return namespace


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {"amount": [i / 2 for i in ids], "customer": [f"c{i % 11}" for i in ids], "id": list(ids)}
    )


def batches(*counts: int) -> Iterator[pa.RecordBatch]:
    first = 0
    for count in counts:
        yield rows(count, first)
        first += count


def spec_of(ns: Namespace, topic: str, **changes: object) -> WriteSpec:
    record = ns._connection.topic_handle(topic).record
    spec = write_jobs.Planned(rows(0).schema, record).spec(ns, "{}")
    return WriteSpec(**{**vars(spec), **changes})


def committed(ns: Namespace, spec: WriteSpec, written: list[WrittenSegment]) -> None:
    txn = write_jobs.begin(ns, spec.numbers)
    write_jobs.add_segments(txn, write_jobs.segments_of(written, spec.numbers, spec.numbers.txn))
    txn.commit()


def planned_segments(ns: Namespace, topic: str) -> tuple[PlannedSegment, ...]:
    record = ns._connection.topic_record(topic)
    segments, removals = ns._connection.follower.segments(record.id)
    return plan(
        segments,
        removals,
        topic=topic,
        folder=record.folder,
        schema=record.schema,
        coordinators=ns._connection.coordinators,
        version=ns._connection.follower.version,
    ).segments


@pytest.mark.parametrize("topic", ["keyed", "turns", "single"])
def test_rows_come_back_as_they_were_in_the_order_of_each_partition(ns: Namespace, topic: str) -> None:
    spec = spec_of(ns, topic, target_bytes=4_000)
    written = write_batches(batches(500, 0, 300, 1), spec, TASK)
    assert len(written) > 1
    committed(ns, spec, written)
    table = ns.snapshot().read(topic, include_metadata=True)
    assert sorted(table.column("id").to_pylist()) == list(range(801))
    assert {row["customer"] for row in table.to_pylist()} == {f"c{i}" for i in range(11)}
    for partition in set(table.column("_partition").to_pylist()):
        ids = [row["id"] for row in table.to_pylist() if row["_partition"] == partition]
        assert ids == sorted(ids)


def test_keys_go_where_the_python_client_puts_them(ns: Namespace) -> None:
    spec = spec_of(ns, "keyed")
    committed(ns, spec, write_batches(batches(300), spec, TASK))
    read = ns.snapshot().read("keyed", include_metadata=True).to_pylist()
    assert len(read) == 300
    for row in read:
        assert row["_partition"] == partitioner.partition_of_key(row["customer"], pa.string(), 4)


def test_a_partition_that_spark_computed_is_taken_as_it_is(ns: Namespace) -> None:
    spec = spec_of(ns, "keyed")
    batch = rows(100).append_column("_partition", pa.array([i % 3 for i in range(100)], pa.int32()))
    committed(ns, spec, write_batches(iter([batch]), spec, TASK))
    read = ns.snapshot().read("keyed", include_metadata=True).to_pylist()
    assert len(read) == 100
    for row in read:
        assert row["_partition"] == row["id"] % 3


def test_a_task_without_a_key_fills_one_partition_and_tasks_take_turns(ns: Namespace) -> None:
    spec = spec_of(ns, "turns", turn=2)
    written = [write_batches(batches(50), spec, TaskIdentity(task, task))[0] for task in range(5)]
    assert [item.slices for item in written] == [((p, 50),) for p in (2, 3, 0, 1, 2)]


@pytest.mark.parametrize(("topic", "stored"), [("keyed", True), ("turns", False), ("single", False)])
def test_the_partition_is_stored_where_the_planner_looks_for_it(ns: Namespace, topic: str, stored: bool) -> None:
    spec = spec_of(ns, topic)
    written = write_batches(batches(200), spec, TASK)
    committed(ns, spec, written)
    (planned,) = planned_segments(ns, topic)
    names = pq.read_schema(pa.BufferReader(ns._connection.store.get(planned.key))).names
    assert planned.stores_partition is stored
    assert ("_partition" in names) is stored
    assert names[:3] == SCHEMA.names


def test_attempts_of_a_task_share_no_number_and_leave_each_others_files_alone(ns: Namespace) -> None:
    spec = spec_of(ns, "single", target_bytes=4_000)
    lost = write_batches(batches(500), spec, TaskIdentity(0, 8))
    again = write_batches(batches(500), spec, TaskIdentity(0, 9))
    other = write_batches(batches(500), spec, TaskIdentity(1, 7 + ATTEMPTS))
    numbers = [item.segment for item in (*lost, *again, *other)]
    assert len(set(numbers)) == len(numbers) >= 3
    assert all(n in spec.numbers.files for n in numbers)
    committed(ns, spec, again)
    assert ns.snapshot().read("single").num_rows == 500


def test_an_attempt_that_failed_and_one_that_was_slower_leave_only_garbage(ns: Namespace) -> None:
    spec = spec_of(ns, "keyed", target_bytes=4_000)

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from batches(500)
        raise OSError("the executor is gone")

    with pytest.raises(OSError, match="the executor is gone"):
        write_batches(breaking(), spec, TaskIdentity(0, 8))
    again = write_batches(batches(500, 300), spec, TaskIdentity(0, 9))
    speculative = write_batches(batches(500, 300), spec, TaskIdentity(0, 10))
    committed(ns, spec, again)
    assert sorted(ns.snapshot().read("keyed").column("id").to_pylist()) == list(range(800))
    folder = ns._connection.topic_record("keyed").folder
    stored = {key for key in files_of(ns, folder) if key.endswith(".parquet")}
    named = {planned.key for planned in planned_segments(ns, "keyed")}
    slower = {segment_key(folder, item.segment, item.file) for item in speculative}
    assert named == {segment_key(folder, item.segment, item.file) for item in again}
    assert stored > named | slower, "the failed attempt had stored something, too"


def files_of(ns: Namespace, folder: str) -> list[str]:
    root = Path(ns.root) / ns.name
    return [str(path.relative_to(root)) for path in (root / folder).rglob("*") if path.is_file()]


@pytest.mark.parametrize("topic", ["keyed", "single"])
def test_what_a_task_answers_is_true_of_each_of_its_files(ns: Namespace, topic: str) -> None:
    names = [None if number % 4 == 0 else f"c{number:04d}" for number in range(700)]
    given = [
        rows(300),
        rows(400, 300).set_column(1, "customer", pa.array(names[300:])),
    ]
    written = write_batches(iter(given), spec_of(ns, topic, target_bytes=4_000), TASK)
    assert len(written) > 1
    folder = ns._connection.topic_record(topic).folder
    for item in written:
        data = ns._connection.store.get(segment_key(folder, item.segment, item.file))
        assert item.checksum == f"crc32:{zlib.crc32(data):08x}"
        assert item.size_bytes == len(data)
        table = pq.read_table(pa.BufferReader(data))
        assert item.rows == table.num_rows == sum(rows for _, rows in item.slices)
        expected = []
        for name in SCHEMA.names:
            column = table.column(name)
            bounds = pc.min_max(column).as_py()
            expected.append((name, bounds["min"], bounds["max"], column.null_count))
        assert list(item.statistics) == expected
    assert any(nulls for item in written for *_, nulls in item.statistics)


def test_a_task_with_too_many_files_stops_with_the_limit(ns: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writer, "FILES_PER_TASK", 2)
    with pytest.raises(LimitExceeded, match=r"more than 2 files \(repartition the DataFrame"):
        write_batches(batches(2_000), spec_of(ns, "single", target_bytes=4_000), TASK)


def test_an_ingestion_whose_task_has_too_many_files_stops_with_advice_on_its_options(
    ns: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one with ``topic_by`` and a topic for each customer: no DataFrame is the user's to repartition."""
    monkeypatch.setattr(task_writer, "FILES_PER_TASK", 2)
    spec = dataclasses.replace(spec_of(ns, "single", target_bytes=4_000), sources=(0,))
    rows = (
        batch.append_column(task_writer.SOURCE_COLUMN, pa.array([0] * len(batch), pa.int32()))
        for batch in batches(2_000)
    )
    with pytest.raises(LimitExceeded, match=r"more than 2 files \(.* by maxOffsetsPerTrigger or maxRecordsPer"):
        write_batches(rows, spec, TASK)


def test_jobs_of_a_handle_never_share_numbers(ns: Namespace) -> None:
    before = ns._connection.follower.version
    firsts = [write_jobs.reserve_job(ns).txn for _ in range(20)]
    spans = sorted((first, first + task_writer.JOB_NUMBERS) for first in firsts)
    assert all(end < start for (_, end), (start, _) in pairwise(spans))
    assert ns._connection.follower.version - before <= 6, "blocks hold more and more jobs"


def test_a_missing_nullable_column_is_null_and_types_widen(ns: Namespace) -> None:
    spec = spec_of(ns, "single")
    batch = pa.RecordBatch.from_pydict({"id": pa.array([1, 2], pa.int32())})
    committed(ns, spec, write_batches(iter([batch]), spec, TASK))
    assert ns.snapshot().read("single").to_pylist() == [
        {"id": 1, "customer": None, "amount": None},
        {"id": 2, "customer": None, "amount": None},
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"customer": ["a"]},
        {"id": pa.array([None], pa.int64())},
        {"id": ["1"]},
        {"id": [1], "amount": ["x"]},
    ],
)
def test_rows_that_do_not_fit_name_topic_and_column(ns: Namespace, columns: dict[str, object]) -> None:
    name = "amount" if "amount" in columns else "id"
    with pytest.raises(SchemaMismatch, match=f"topic 'single', column '{name}'"):
        write_batches(iter([pa.RecordBatch.from_pydict(columns)]), spec_of(ns, "single"), TASK)


def test_bytes_that_are_no_text_are_refused_wherever_they_stand(namespace: Namespace) -> None:
    """Spark makes text of any bytes: ``cast(X'C328' AS STRING)``."""
    pair = pa.struct([("word", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("word", pa.string()), ("pairs", pa.list_(pair)), ("raw", pa.binary())])
    namespace.create_topic("texts", schema)
    raw = pa.array([b"a", b"\xc3(", b"z"])
    text = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    fine = pa.array(["a", "ü", "z"])
    spec = write_jobs.Planned(schema, namespace._connection.topic_record("texts")).spec(namespace, "{}")

    def write(word: pa.Array, inside: pa.Array) -> list[WrittenSegment]:
        pairs = pa.ListArray.from_arrays([0, 1, 2, 3], pa.StructArray.from_arrays([inside], fields=list(pair)))
        data = {"id": [1, 2, 3], "word": word, "pairs": pairs, "raw": raw}
        return write_batches(iter([pa.RecordBatch.from_pydict(data)]), spec, TASK)

    for word, inside, name in ((text, fine, "word"), (fine, text, "pairs")):
        with pytest.raises(SchemaMismatch, match=f"topic 'texts', column '{name}': not valid Arrow data: .*UTF8"):
            write(word, inside)
    committed(namespace, spec, write(fine, fine))
    assert namespace.snapshot().read("texts").column("raw").to_pylist() == [b"a", b"\xc3(", b"z"]


def test_rows_are_routed_by_their_topic_each_in_order(ns: Namespace) -> None:
    columns = rows(0).schema.append(pa.field("topic", pa.string()))
    spec = write_jobs.Planned(columns, None).spec(ns, "{}")
    names = ["keyed", "single", "turns"]
    mixed = rows(300).append_column("topic", pa.array([names[i % 3] for i in range(300)]))
    committed(ns, spec, write_batches(iter([mixed, mixed]), spec, TASK))
    snapshot = ns.snapshot()
    for place, name in enumerate(names):
        ids = snapshot.read(name).column("id").to_pylist()
        assert sorted(ids) == sorted(2 * list(range(place, 300, 3)))
    assert snapshot.read("single").column("id").to_pylist() == 2 * list(range(1, 300, 3))


def test_a_row_that_names_no_topic_or_an_unfit_one_is_refused(ns: Namespace) -> None:
    ns.create_topic("other", pa.schema([("z", pa.int64())]))
    columns = rows(0).schema.append(pa.field("topic", pa.string()))
    spec = write_jobs.Planned(columns, None).spec(ns, "{}")

    def routed(name: str | None) -> list[WrittenSegment]:
        batch = rows(2).append_column("topic", pa.array(["single", name], pa.string()))
        return write_batches(iter([batch]), spec, TASK)

    with pytest.raises(TopicNotFound, match=r"'singel'.*did you mean 'single'"):
        routed("singel")
    with pytest.raises(SchemaMismatch, match="'topic' is null"):
        routed(None)
    with pytest.raises(SchemaMismatch, match="topic 'other' has no column"):
        routed("other")


def test_no_batches_make_no_file(ns: Namespace) -> None:
    for topic in ("single", "keyed"):
        assert write_batches(iter([]), spec_of(ns, topic), TASK) == []
        assert write_batches(iter([rows(0)]), spec_of(ns, topic), TASK) == []


def test_answers_survive_json_and_pickle_and_specs_show_no_secret(ns: Namespace) -> None:
    spec = spec_of(ns, "keyed")
    written = write_batches(batches(100), spec, TASK)
    assert written
    for item in written:
        assert WrittenSegment.from_json(item.to_json()) == item
        assert pickle.loads(pickle.dumps(item)) == item
        assert {name for name, *_ in item.statistics} == set(SCHEMA.names[:STATISTICS_COLUMNS])
    assert "hush" not in repr(spec_of(ns, "keyed", storage_options='{"secret": "hush"}'))


def test_an_executor_needs_none_of_a_clients_packages(ns: Namespace, tmp_path: Path) -> None:
    """Neither for the partition of a text, nor for the files of a local root."""
    spec = spec_of(ns, "keyed")
    batch = rows(100)
    (tmp_path / "spec").write_bytes(pickle.dumps(spec))
    with pa.ipc.new_stream(str(tmp_path / "rows"), batch.schema) as sink:
        sink.write_batch(batch)
    script = f"""
import sys
for name in ("click", "fsspec", "msgspec", "xxhash"):
    sys.modules[name] = None
import pickle, pyarrow as pa
from spark_ext.write.task_writer import TaskIdentity, write_batches
spec = pickle.load(open({str(tmp_path / "spec")!r}, "rb"))
written = write_batches(iter(pa.ipc.open_stream({str(tmp_path / "rows")!r})), spec, TaskIdentity(0, 1))
print(*[item.to_json() for item in written], sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    written = [WrittenSegment.from_json(line) for line in done.stdout.splitlines()]
    committed(ns, spec, written)
    for row in ns.snapshot().read("keyed", include_metadata=True).to_pylist():
        assert row["_partition"] == partitioner.partition_of_key(row["customer"], pa.string(), 4)
    assert ns.snapshot().read("keyed").num_rows == 100


def test_a_topic_that_is_no_text_is_refused_as_such_a_column_is(ns: Namespace) -> None:
    """Spark makes text of any bytes: ``CAST(X'ff' AS STRING) AS topic``."""
    spec = write_jobs.Planned(pa.schema([("topic", pa.string()), ("id", pa.int64())]), None).spec(ns, "{}")
    names = pa.array([b"single", b"\xff"]).cast(pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_arrays([names, pa.array([1, 2])], names=["topic", "id"])
    with pytest.raises((SchemaMismatch, TopicNotFound)):
        write_batches(iter([batch]), spec, TASK)
