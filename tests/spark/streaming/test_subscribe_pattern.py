"""``subscribePattern``: the topics whose names match, when a read begins; a stream keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.spark.runs import Offset, Run, batch, ids_of
from tests.spark.support import path_of
from txnlog.errors import InvalidInputError, SchemaMismatch, TopicNotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])
PATTERN = "orders-(eu|us).*"


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    for number, topic in enumerate(("orders-us", "orders-eu", "old-orders-eu", "audit")):
        namespace.create_topic(topic, SCHEMA)
        namespace.produce(topic, [{"id": number}])
    return namespace


def stream(ns: Namespace, topic: str = "", **options: Any) -> Run:
    return Run(ns, topic, **options)


def make(ns: Namespace, topic: str, *numbers: int) -> None:
    ns.create_topic(topic, SCHEMA, if_not_exists=True)
    ns.produce(topic, [{"id": number} for number in numbers])


def test_a_batch_reads_the_topics_whose_whole_names_match_at_its_version(ns: Namespace) -> None:
    before = ns.snapshot().version
    rows = batch(ns, subscribePattern=PATTERN)
    assert [(row["_topic"], row["id"]) for row in rows] == [("orders-eu", 1), ("orders-us", 0)]
    make(ns, "orders-eu-2", 50)
    assert ids_of(batch(ns, subscribePattern=PATTERN)) == [0, 1, 50]
    assert ids_of(batch(ns, subscribePattern=PATTERN, versionAsOf=before)) == [0, 1]
    ns.drop_topic("orders-us")
    assert ids_of(batch(ns, subscribePattern=PATTERN)) == [1, 50]
    assert ids_of(batch(ns, subscribePattern=".*")) == [1, 2, 3, 50]


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (
            "orders",
            r"no topic of the namespace 'sales' matches 'orders' \(a pattern matches whole names; .*orders-eu",
        ),
        ("Orders.*", r"matches 'Orders\.\*'"),
    ],
)
def test_a_pattern_without_a_topic_is_refused_with_those_that_there_are(
    ns: Namespace, pattern: str, problem: str
) -> None:
    for read in (batch, stream):
        with pytest.raises(TopicNotFound, match=problem):
            read(ns, subscribePattern=pattern)


def test_a_pattern_that_is_none_or_together_with_another_choice_of_topics_is_refused(ns: Namespace) -> None:
    for read in (batch, stream):
        with pytest.raises(InvalidInputError, match=r"'subscribePattern' is a regular expression \(missing \), unterm"):
            read(ns, subscribePattern="orders-(")
        with pytest.raises(InvalidInputError, match=r"'subscribe' and 'subscribePattern' exclude each other"):
            read(ns, subscribePattern=PATTERN, subscribe="audit")
        with pytest.raises(InvalidInputError, match=r"names the topic 'audit', and an option names topics"):
            read(ns, "audit", subscribePattern=PATTERN)
        ns.create_topic("orders-eu-old", pa.schema([("number", pa.int64())]), if_not_exists=True)
        with pytest.raises(SchemaMismatch, match=r"'orders-eu' and 'orders-eu-old' have different columns"):
            read(ns, subscribePattern=PATTERN)


def test_a_stream_keeps_the_topics_that_it_began_with_while_it_runs_and_after_a_restart(ns: Namespace) -> None:
    log: list[Offset] = []
    run = stream(ns, log=log, subscribePattern=PATTERN, maxOffsetsPerTrigger=1)
    assert ids_of(run.all()) == [0, 1]
    make(ns, "orders-eu-2", 50)
    make(ns, "orders-us", 2)
    assert ids_of(run.all()) == [2], "a new topic is not taken up by a query that runs"
    make(ns, "orders-eu", 3)
    for now in (False, True):
        assert ids_of(stream(ns, log=log, now=now, subscribePattern=PATTERN).all()) == ([] if now else [3]), (
            "nor by its next run"
        )
    assert log[-1]["offsets"].keys() == {"orders-eu", "orders-us"}
    assert ids_of(stream(ns, subscribePattern=PATTERN).all()) == [0, 1, 2, 3, 50], "a new query has it"
    named = stream(ns, log=log, subscribe="orders-eu,orders-us,orders-eu-2")
    assert ids_of(named.all()) == [50], "it may be named, from the same checkpoint"


def test_a_batch_that_is_replayed_has_the_topics_it_had(ns: Namespace) -> None:
    run = stream(ns, subscribePattern=PATTERN)
    first = run.batch()
    make(ns, "orders-eu-2", 50)
    again = stream(ns, subscribePattern=PATTERN)
    assert again.rows(run.log[0], run.log[1]) == first


def test_a_query_whose_pattern_leaves_out_a_topic_of_its_checkpoint_is_refused(ns: Namespace) -> None:
    log: list[Offset] = []
    stream(ns, log=log, subscribePattern=PATTERN).all()
    with pytest.raises(
        InvalidInputError, match=r"of the topic 'orders-us', but it now reads topics that match 'orders-e"
    ):
        stream(ns, log=log, subscribePattern="orders-eu.*").all()
    ns.drop_topic("orders-us")
    with pytest.raises(TopicNotFound, match="no topic 'orders-us'"):
        stream(ns, log=log, subscribePattern=PATTERN).all()


def test_a_subscription_is_kept_on_every_topic_that_matches(ns: Namespace) -> None:
    run = stream(ns, subscribePattern=PATTERN, subscription="billing")
    assert ids_of(run.all()) == [0, 1]
    run.reader.commit(run.log[-1])
    ns._connection.follower.refresh()
    for topic, names in (("orders-eu", ("billing",)), ("orders-us", ("billing",)), ("audit", ())):
        assert ns.subscriptions(topic) == names
    assert [item.cursor for item in ns.subscription("orders-us", "billing").cursors] == [1]


def test_a_query_of_spark_reads_the_topics_that_match(spark: SparkSession, ns: Namespace, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def keep(df: DataFrame, _: int) -> None:
        seen.extend((row["_topic"], row["id"]) for row in df.collect())

    def run() -> None:
        reader = spark.readStream.format("txnlog").option("subscribePattern", PATTERN).option("includeMetadata", "true")
        writer = (
            reader.load(path_of(ns)).writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c"))
        )
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    run()
    make(ns, "orders-us", 7)
    make(ns, "orders-eu-2", 50)
    run()
    assert sorted(seen) == [("orders-eu", 1), ("orders-us", 0), ("orders-us", 7)]
    frame = spark.read.format("txnlog").option("subscribePattern", PATTERN).load(path_of(ns))
    assert sorted(row["id"] for row in frame.collect()) == [0, 1, 7, 50]
