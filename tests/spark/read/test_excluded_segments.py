"""A damaged segment is left out of Spark's reads where somebody asks for it by its number, and nowhere else."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

import spark_ext
from tests.spark.runs import Run, batch, ids_of
from tests.spark.support import path_of
from txnlog.errors import CorruptionError, InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

IDS = pa.schema([("id", pa.int64())])


@pytest.fixture
def lost(namespace: Namespace) -> Any:
    """The planned segment in the middle of three, each of three messages in one partition: its file is gone."""
    for topic in ("orders", "payments"):
        namespace.create_topic(topic, IDS)
        for number in range(3):
            namespace.produce(topic, [{"id": 10 * number + step} for step in range(3)])
    segment = namespace.snapshot().plan("orders").segments[1]
    Path(namespace._connection.store.url(segment.key)).unlink()
    return segment


def test_a_batch_read_leaves_out_what_the_option_names(
    namespace: Namespace, lost: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CorruptionError, match="'orders', with the offsets 3 to 5 of partition 0") as caught:
        batch(namespace, "orders")
    assert f"exclude_segments=[{lost.number}], which is the option excludeSegments" in caught.value.advice
    with caplog.at_level(logging.WARNING, "txnlog"):
        assert ids_of(batch(namespace, "orders", excludeSegments=lost.number)) == [0, 1, 2, 20, 21, 22]
    assert "leaves out 3 rows" in caplog.text
    # Offsets stay what they are.
    found = batch(namespace, "orders", excludeSegments=lost.number)
    assert [row["_offset"] for row in found] == [0, 1, 2, 6, 7, 8]
    assert ids_of(batch(namespace, "orders", excludeSegments=lost.number, filters='[["id", ">", 1]]')) == [
        2,
        20,
        21,
        22,
    ]


def test_of_several_topics_each_has_its_own_segments(namespace: Namespace, lost: Any) -> None:
    assert len(batch(namespace, subscribe="orders,payments", excludeSegments=lost.number)) == 6 + 9
    with pytest.raises(InvalidInputError, match="segment 12345, which none of 2 topics has"):
        batch(namespace, subscribe="orders,payments", excludeSegments=f"{lost.number},12345")
    with pytest.raises(InvalidInputError, match="which the topic 'payments' does not have"):
        batch(namespace, "payments", excludeSegments=lost.number)


def test_a_stream_goes_on_behind_a_segment_that_it_leaves_out(namespace: Namespace, lost: Any) -> None:
    with pytest.raises(CorruptionError, match="the offsets 3 to 5"):
        Run(namespace).all()
    assert ids_of(Run(namespace, excludeSegments=lost.number).all()) == [0, 1, 2, 20, 21, 22]


def test_spark_reads_without_the_segment_by_its_format_and_natively(
    spark: SparkSession, namespace: Namespace, lost: Any
) -> None:
    path = path_of(namespace, "orders")
    with pytest.raises(PythonException, match=rf"exclude_segments=\[{lost.number}\]"):
        spark.read.format("txnlog").load(path).collect()
    frame = spark.read.format("txnlog").option("excludeSegments", lost.number).load(path)
    assert sorted(row.id for row in frame.collect()) == [0, 1, 2, 20, 21, 22]
    with pytest.raises(CorruptionError, match=rf"exclude_segments=\[{lost.number}\]"):
        spark_ext.read_topic(spark, path)
    left = spark_ext.read_topic(spark, path, include_metadata=True, exclude_segments=[lost.number])
    assert sorted((row.id, row._offset) for row in left.collect()) == [
        (0, 0),
        (1, 1),
        (2, 2),
        (20, 6),
        (21, 7),
        (22, 8),
    ]
    with pytest.raises(InvalidInputError, match="which the topic 'orders' does not have"):
        spark_ext.read_topic(spark, path, exclude_segments=[12345])
