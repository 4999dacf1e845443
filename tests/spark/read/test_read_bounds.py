"""``startingTimestamp``, ``endingTimestamp``, ``startingVersion``: the messages of a time, or since a version."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txnlog
from tests.by_hand import append, compact
from tests.spark.runs import Offset, Options, Row, Run, batch, ids_of
from tests.spark.support import path_of
from txnlog.errors import InvalidInputError, OffsetOutOfRange, VersionNotAvailable
from txnlog.format.actions import DeleteRecords, Vacuum
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Two topics, several versions of some milliseconds, a partition with merged segments; nobody writes to it."""
    clock = ManualClock(START_MS)
    numbers = itertools.count()

    def rows(count: int) -> list[Row]:
        return [{"id": next(numbers)} for _ in range(count)]

    root = str(tmp_path_factory.mktemp("bounds") / "lake")
    with txnlog.open(root, namespace="sales", create=True, clock=clock) as ns:
        ns.create_topic("orders", SCHEMA, partitions=3)
        ns.create_topic("audit", SCHEMA)
        for step in range(8):
            clock.advance(250 * (step % 3))  # every third version has the time of the one before
            with ns.begin() as txn:
                txn.produce("orders", rows(3), partition=step % 2)
                if step % 4 == 1:
                    txn.produce("audit", rows(2))
        opened = ns.begin(timeout_ms=900_000)
        opened.produce("orders", rows(2), partition=0)
        opened.flush()
        clock.advance(1_000)
        opened.commit()  # its time is that of the commit
        segments = [item.number for item in ns.snapshot().plan("orders").segments if item.slices[0].partition == 1]
        compact(ns, "orders", segments[:2], 1)
        yield SimpleNamespace(ns=ns)


def stream(ns: Namespace, topic: str, **options: Any) -> list[Row]:
    return Run(ns, topic, **options).all()


def at_ms(row: Row) -> int:
    return round(row["_timestamp"].timestamp() * 1000)


def committed(ns: Namespace, topic: str = "orders", version: int | None = None) -> list[Row]:
    found: list[Row] = ns.snapshot(version).read(topic, include_metadata=True).to_pylist()
    return found


def instants(ns: Namespace) -> list[int]:
    """All times of messages, and their neighbours."""
    return sorted({at_ms(row) + step for row in committed(ns) for step in (-1, 0, 1)})


# --- times ------------------------------------------------------------------------------------------------------------


def test_a_batch_from_one_time_to_another_holds_the_messages_between_them(lake: Any) -> None:
    rows = committed(lake.ns)
    assert ids_of(batch(lake.ns, "orders")) == ids_of(rows)
    moments = instants(lake.ns)
    assert len(moments) > 12
    for first, last in itertools.combinations_with_replacement(moments[::2], 2):
        found = batch(lake.ns, "orders", startingTimestamp=first, endingTimestamp=last)
        assert ids_of(found) == ids_of(row for row in rows if first <= at_ms(row) < last), (first, last)


def test_one_time_alone_bounds_one_side_and_a_text_with_a_zone_is_a_time_as_well(lake: Any) -> None:
    rows = committed(lake.ns)
    for moment in instants(lake.ns):
        assert ids_of(batch(lake.ns, "orders", startingTimestamp=moment)) == ids_of(
            row for row in rows if at_ms(row) >= moment
        )
        assert ids_of(batch(lake.ns, "orders", endingTimestamp=moment)) == ids_of(
            row for row in rows if at_ms(row) < moment
        )
    moment = at_ms(rows[len(rows) // 2])
    text = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(moment // 1000))}.{moment % 1000:03}"
    assert batch(lake.ns, "orders", startingTimestamp=f"{text}Z") == batch(lake.ns, "orders", startingTimestamp=moment)
    later = ids_of(row for row in rows if at_ms(row) > moment)
    assert ids_of(batch(lake.ns, "orders", startingTimestamp=f"{text}001+00:00")) == later


def test_times_go_with_the_bounds_of_the_other_side_with_a_version_and_with_several_topics(lake: Any) -> None:
    rows = committed(lake.ns)
    moment = at_ms(rows[len(rows) // 2])
    offsets = json.dumps({"orders": {"0": 4, "1": 5, "2": 0}})
    ends = {0: 4, 1: 5, 2: 0}
    assert ids_of(batch(lake.ns, "orders", startingTimestamp=moment, endingOffsets=offsets)) == ids_of(
        row for row in rows if at_ms(row) >= moment and row["_offset"] < ends[row["_partition"]]
    )
    assert ids_of(batch(lake.ns, "orders", startingOffsets=offsets, endingTimestamp=moment)) == ids_of(
        row for row in rows if at_ms(row) < moment and row["_offset"] >= ends[row["_partition"]]
    )
    version = sorted({row["_version"] for row in rows})[4]
    assert batch(lake.ns, "orders", startingVersion=version, endingTimestamp=START_MS) == []
    assert ids_of(batch(lake.ns, "orders", startingTimestamp=moment, versionAsOf=version)) == ids_of(
        row for row in rows if at_ms(row) >= moment and row["_version"] <= version
    )
    both = batch(lake.ns, subscribe="orders,audit", startingTimestamp=moment)
    everything = rows + committed(lake.ns, "audit")
    assert ids_of(both) == ids_of(row for row in everything if at_ms(row) >= moment)


def test_a_read_of_a_version_ends_with_it_or_at_an_earlier_end_that_another_option_says(lake: Any) -> None:
    rows = committed(lake.ns)
    versions = sorted({row["_version"] for row in rows})
    for version, moment in itertools.product((versions[2], versions[5]), instants(lake.ns)):
        assert ids_of(batch(lake.ns, "orders", versionAsOf=version, endingTimestamp=moment)) == ids_of(
            row for row in rows if row["_version"] <= version and at_ms(row) < moment
        )
    ends = lake.ns.snapshot(versions[2]).end_offsets("orders")
    offsets = json.dumps({"orders": {str(partition): end for partition, end in ends.items()}})
    assert batch(lake.ns, "orders", versionAsOf=versions[5], endingOffsets=offsets) == batch(
        lake.ns, "orders", versionAsOf=versions[2]
    )
    with pytest.raises(OffsetOutOfRange):
        batch(lake.ns, "orders", versionAsOf=versions[1], endingOffsets=offsets)


def test_a_stream_begins_with_the_first_message_of_a_time_or_a_version(lake: Any) -> None:
    rows = committed(lake.ns)
    for moment in instants(lake.ns):
        assert ids_of(Run(lake.ns, "orders", startingTimestamp=moment).all()) == ids_of(
            r for r in rows if at_ms(r) >= moment
        )
    for version in range(lake.ns.snapshot().version + 1):
        run = Run(lake.ns, "orders", startingVersion=version, maxOffsetsPerTrigger=4)
        assert ids_of(run.all()) == ids_of(row for row in rows if row["_version"] >= version)


def test_a_time_that_is_yet_to_come_is_no_beginning_but_may_be_an_end(lake: Any) -> None:
    later = round(time.time() * 1000) + 3_600_000
    for read in (batch, stream):
        with pytest.raises(
            InvalidInputError, match=r"'startingTimestamp' is \d+ ms in the future .*epoch milliseconds"
        ):
            read(lake.ns, "orders", startingTimestamp=later)
        read(lake.ns, "orders", startingTimestamp=round(time.time() * 1000) + 30_000)  # as far as clocks may differ
    assert batch(lake.ns, "orders", endingTimestamp=later) == batch(lake.ns, "orders")
    newest = max(at_ms(row) for row in committed(lake.ns))
    assert batch(lake.ns, "orders", startingTimestamp=newest + 1) == []


@pytest.mark.parametrize("option", ["startingTimestamp", "endingTimestamp"])
def test_epoch_seconds_are_distinguished_from_milliseconds(lake: Any, option: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"{option}' is \d+, a time of 1970 .these seem to be seconds"):
        batch(lake.ns, "orders", **{option: START_MS // 1000})
    everything = batch(lake.ns, "orders")
    assert batch(lake.ns, "orders", **{option: 0}) == (everything if option == "startingTimestamp" else [])


# --- versions ---------------------------------------------------------------------------------------------------------


def test_a_batch_since_a_version_holds_what_became_visible_at_it_or_later(lake: Any) -> None:
    newest = lake.ns.snapshot().version
    for last in (None, newest - 2):
        rows = committed(lake.ns, version=last)
        for version in range((newest if last is None else last) + 1):
            options = {} if last is None else {"versionAsOf": last}
            found = batch(lake.ns, "orders", startingVersion=version, **options)
            assert ids_of(found) == ids_of(row for row in rows if row["_version"] >= version), (version, last)


def test_a_version_that_cannot_be_read_is_refused_with_those_that_can(lake: Any, namespace: Namespace) -> None:
    newest = lake.ns.snapshot().version
    for read in (batch, stream):
        with pytest.raises(
            VersionNotAvailable, match=rf"version {newest + 1} cannot be read \(versions 0 to {newest} "
        ):
            read(lake.ns, "orders", startingVersion=newest + 1)
    with pytest.raises(InvalidInputError, match=rf"'startingVersion' \({newest}\) is beyond the version that is read"):
        batch(lake.ns, "orders", startingVersion=newest, timestampAsOf=START_MS)
    namespace.create_topic("orders", SCHEMA)
    for number in range(4):
        namespace.produce("orders", [{"id": number}])
    oldest = namespace.snapshot().version
    append(namespace, Vacuum(oldest))
    for read in (batch, stream):
        with pytest.raises(VersionNotAvailable, match=rf"version {oldest - 1} cannot be read \(versions {oldest} to"):
            read(namespace, "orders", startingVersion=oldest - 1)
        assert ids_of(read(namespace, "orders", startingVersion=oldest)) == [3]


# --- what was deleted, dropped or taken -------------------------------------------------------------------------------


def test_a_time_takes_what_is_left_of_it_and_a_version_reports_what_is_gone(namespace: Namespace) -> None:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    first = namespace.produce("orders", [{"id": i} for i in range(5)], partition=0).version
    namespace.produce("orders", [{"id": 9}], partition=1)
    append(namespace, DeleteRecords(namespace._connection.topic_record("orders").id, ((0, 3),)))
    left = [3, 4, 9]
    assert ids_of(batch(namespace, "orders", startingTimestamp=0)) == left
    assert ids_of(Run(namespace, "orders", startingTimestamp=0).all()) == left
    assert batch(namespace, "orders", endingTimestamp=0) == []
    for read in (batch, stream):
        with pytest.raises(
            OffsetOutOfRange, match=r"partition 0 of 'orders' holds offsets 3 to 5; 0 to 5 were.*failOn"
        ):
            read(namespace, "orders", startingVersion=first)
        assert ids_of(read(namespace, "orders", startingVersion=first, failOnDataLoss="false")) == left


def test_a_topic_that_was_made_again_has_none_of_the_older_ones_offsets(namespace: Namespace) -> None:
    namespace.create_topic("orders", SCHEMA)
    before = namespace.produce("orders", [{"id": i} for i in range(7)]).version
    namespace.drop_topic("orders")
    namespace.create_topic("orders", SCHEMA)
    namespace.produce("orders", [{"id": 70}])
    assert ids_of(batch(namespace, "orders", startingVersion=before)) == [70]
    assert ids_of(Run(namespace, "orders", startingVersion=before + 1).all()) == [70]


def test_a_checkpoint_and_a_cursor_come_before_a_time_and_a_version(namespace: Namespace) -> None:
    namespace.create_topic("orders", SCHEMA)
    for number in range(4):
        namespace.produce("orders", [{"id": number}])
    newest = namespace.snapshot().version
    namespace.create_subscription("orders", "billing", start={0: 1})
    cases: tuple[Options, ...] = ({"startingTimestamp": 0}, {"startingVersion": newest})
    for options in cases:
        assert ids_of(Run(namespace, "orders", subscription="billing", **options).all()) == [1, 2, 3]
        log: list[Offset] = []
        assert ids_of(Run(namespace, "orders", log=log).all()) == [0, 1, 2, 3]
        assert Run(namespace, "orders", log=log, **options).all() == []
        assert ids_of(Run(namespace, "orders", subscription=f"new-{next(iter(options))}", **options).all()) == (
            [3] if "startingVersion" in options else [0, 1, 2, 3]
        ), "a subscription is created where the option says"


# --- through Spark ----------------------------------------------------------------------------------------------------


def test_spark_passes_the_bounds(spark: SparkSession, lake: Any) -> None:
    rows = committed(lake.ns)
    moment, version = at_ms(rows[4]), rows[9]["_version"]

    def load(**options: Any) -> list[int]:
        found = spark.read.format("txnlog").options(**options).load(path_of(lake.ns, "orders")).collect()
        return sorted(row["id"] for row in found)

    wanted = ids_of(row for row in rows if at_ms(row) >= moment and row["_version"] < version)
    assert wanted
    assert load(startingTimestamp=moment, versionAsOf=version - 1) == wanted
    assert load(startingVersion=version, endingTimestamp="2026-01-01T00:00:00Z") == []
    with pytest.raises(Exception, match=r"(?s)txnlog\.errors\.VersionNotAvailable: version 999 cannot be read"):
        load(startingVersion=999)
