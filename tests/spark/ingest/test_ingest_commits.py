"""What the commits of a batch of an ingestion come to, and what an error says of them."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamReader

from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import kafka_batches, positions
from spark_ext.ingest.kafka_batches import KafkaBatches
from spark_ext.ingest.positions import Part
from spark_ext.write import frame_jobs
from tests.spark.ingest.recorded_kafka import RecordedCluster, RecordedKafka, _Reader
from tests.spark.ingest.story import RUNNING, SCHEMA, Story, story
from txnlog.api.transaction import Transaction
from txnlog.errors import (
    Durable,
    InvalidInputError,
    OffsetOutOfRange,
    OutcomeUnknown,
    ProducerFenced,
    RetriableError,
    StoreError,
)

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

__all__ = ["story"]  # a fixture


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_dropped_while_a_batch_is_written_fails_the_batch(
    story: Story, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """As docs/ingest.md says. This client's state is of before the job, and ``check_there`` reads nothing."""
    story.produce(0, 1, 2)
    job = frame_jobs.frame_job

    def with_a_drop(*given: Any, **more: Any) -> Any:
        made = job(*given, **more)  # planned: its tasks run behind this
        story.ns.drop_topic("orders")
        if again:
            story.ns.create_topic("orders", SCHEMA, partitions=2)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "frame_job", with_a_drop)
        with pytest.raises(StreamingQueryException):
            story.ingest()


def test_offsets_that_go_back_while_a_query_runs_are_no_silent_loss(story: Story) -> None:
    story.produce(0, 1, 2)
    query = story.start(trigger=RUNNING, options={"failOnDataLoss": "false"})
    query.processAllAvailable()
    story.messages = [[9], []]
    story.produce(0)
    with pytest.raises(
        StreamingQueryException, match=r"OffsetOutOfRange: the partition 0 .* ends at offset 1, and had"
    ):
        query.processAllAvailable()
    with pytest.raises(OffsetOutOfRange, match=r"partition 0 .* ends at offset 1, and the log has"):
        story.start(options={"failOnDataLoss": "false"})
    assert story.ids() == [1, 2]


def test_a_partition_that_is_gone_while_a_query_runs_is_no_silent_loss(story: Story) -> None:
    story.produce(1, 1, 2)
    query = story.start(trigger=RUNNING, options={"failOnDataLoss": "false"})
    query.processAllAvailable()
    story.messages = [[3]]
    story.produce(0)
    with pytest.raises(StreamingQueryException, match=r"OffsetOutOfRange: the partition 1 .* is gone, and had"):
        query.processAllAvailable()
    assert story.ids() == [1, 2]


class _LateReader(_Reader):
    """What a broker answers that does not know the third partition of a topic yet."""

    def latestOffset(self, *limits: object) -> dict[str, Any]:  # noqa: N802 - Spark's name
        found = super().latestOffset(*limits)
        return {topic: {key: end for key, end in ends.items() if int(key) < 2} for topic, ends in found.items()}


class _LateKafka(RecordedKafka):
    @classmethod
    def name(cls) -> str:
        return "late_kafka"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's signature
        return _LateReader(dict(self.options))


def test_a_partition_that_sparks_source_does_not_see_yet_is_not_called_lost(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition was added a moment ago: one broker knows it, and the one that Spark's source asks does not."""
    story.produce(0, 1)
    story.ingest()
    story.messages.append([])
    story.produce(2, 2)
    story.spark.dataSource.register(_LateKafka)
    story.produce(0, 3)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_SOURCE", _LateKafka.name())
        with pytest.raises(StreamingQueryException, match=r"RetriableError: .* does not see the partition 2") as caught:
            story.ingest()
    assert "lost messages" not in str(caught.value).partition("Caused by")[0]
    story.ingest()
    assert story.ids() == [1, 2, 3]


@pytest.mark.parametrize("runs", [True, False])
def test_a_broker_that_gives_no_ids_is_not_one_whose_topics_were_made_again(
    story: Story, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    """An older broker of the cluster answers, as while it is upgraded, in a batch or at the start. It may be both."""
    story.produce(0, 1, 2)
    query = story.start(trigger=RUNNING)
    query.processAllAvailable()
    if not runs:
        query.stop()
    with monkeypatch.context() as patch:
        patch.setattr(RecordedCluster, "ids", lambda *_: {})
        story.produce(0, 3)
        why = "the broker gives no id of the Kafka topic 'source' now"
        if runs:
            with pytest.raises(StreamingQueryException, match=f"RetriableError: {why}") as caught:
                query.processAllAvailable()
            assert "another one" not in str(caught.value)
        else:
            with pytest.raises(RetriableError, match=why):
                story.start()
    story.ingest()
    assert story.ids() == [1, 2, 3]


def test_brokers_that_never_gave_ids_may_be_upgraded(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RecordedCluster, "ids", lambda *_: {})
        story.produce(0, 1)
        story.ingest()
        story.produce(0, 2)
        story.ingest()
    story.produce(0, 3)
    story.ingest()
    assert story.ids() == [1, 2, 3]
    story.produce(0, number="id-2")
    with pytest.raises(InvalidInputError, match="'source' is not the one"):
        story.start()


def test_a_topic_that_is_made_again_with_fewer_partitions_is_called_made_again(story: Story) -> None:
    story.produce(1, 1, 2)
    query = story.start(trigger=RUNNING, options={"failOnDataLoss": "false"})
    query.processAllAvailable()
    story.messages = [[3]]
    story.produce(0, number="id-2")
    with pytest.raises(StreamingQueryException, match="InvalidInputError: the Kafka topic 'source' is not the one"):
        query.processAllAvailable()
    assert story.ids() == [1, 2]


def test_a_topic_that_is_not_subscribed_to_any_more_can_come_again(story: Story) -> None:
    """Also if a batch of both was planned, and failed."""
    both = ["source", "other"]
    story.recording.write("other", "id-2", [[7]])
    story.produce(0, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_batches, "commit_parts", lambda *_: (_ for _ in ()).throw(RuntimeError("dies")))
        with pytest.raises(StreamingQueryException, match="dies"):
            story.ingest(subscribe=both)
    story.ingest()
    assert story.ids() == [1]
    story.ingest(subscribe=both)
    assert story.ids() == [1, 7]


def test_a_topic_that_is_dropped_between_the_last_look_and_the_commit_fails_the_batch(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit leaves its rows out, and the next run does not take the new topic for the old one."""
    story.produce(0, 1, 2)
    check = kafka_batches.KafkaBatches._check_sources

    def dropping(*given: Any) -> None:
        check(*given)
        story.ns.drop_topic("orders")

    with monkeypatch.context() as patch:
        patch.setattr(KafkaBatches, "_check_sources", dropping)
        with pytest.raises(
            StreamingQueryException, match=r"TransactionConflict: .*without its rows.*data may be durable"
        ):
            story.ingest()
    story.ns.create_topic("orders", SCHEMA, partitions=2)
    with pytest.raises(InvalidInputError, match="'orders', which was dropped and created again"):
        story.ingest()
    story.ingest(name="again")
    assert story.ids() == [1, 2]


# --- what an error says of a batch of which a part is there -----------------------------------------------------------


def test_an_error_of_one_partition_does_not_say_of_the_others_that_nothing_was_written(namespace: Namespace) -> None:
    epoch = namespace.producer("n").epoch
    assert epoch is not None
    first, second = Part("source", 0), Part("source", 1)

    def overtaken(_: object) -> list[Any]:
        while first not in positions.positions(namespace, "n", [first]):
            time.sleep(0.01)
        namespace.producer("n")
        return []

    work = {first: (5, lambda _: []), second: (5, overtaken)}
    with pytest.raises(ProducerFenced) as caught:
        positions.commit_parts(namespace, positions.Ingestion("n", {}, epoch=epoch), work)
    assert positions.positions(namespace, "n", [first])[first].offset == 5
    assert caught.value.durable is Durable.MAYBE
    assert "of the batch's 2 partitions, 1 are committed" in str(caught.value)


def test_an_unknown_outcome_is_said_before_any_other_error(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four partitions one is committed, one fails, and of two the outcome is unknown."""
    epoch = namespace.producer("n").epoch
    commit = Transaction.commit_async
    failures: list[Exception | None] = [
        None,
        StoreError("the store refuses", durable=Durable.NOTHING),
        OutcomeUnknown("no answer", txn_ids=("a",)),
        OutcomeUnknown("no answer", txn_ids=("b",)),
    ]
    waiting = iter(failures)

    def commits(txn: Transaction) -> Future[Any]:
        failure = next(waiting)
        if failure is None:
            return commit(txn)
        future: Future[Any] = Future()
        future.set_exception(failure)
        return future

    monkeypatch.setattr(Transaction, "commit_async", commits)
    work: dict[Part, Any] = {Part("source", number): (5, lambda _: []) for number in range(4)}
    with pytest.raises(OutcomeUnknown, match="1 are committed, and of 2 the outcome is unknown") as caught:
        positions.commit_parts(namespace, positions.Ingestion("n", {}, epoch=epoch), work)
    assert (caught.value.txn_ids, caught.value.durable) == (("a", "b"), Durable.MAYBE)


def test_a_failure_before_the_commit_of_a_partition_hides_no_unknown_outcome(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = namespace.producer("n").epoch

    def unknown(_: Transaction) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(OutcomeUnknown("no answer", txn_ids=("a",)))
        return future

    def refuses(_: object) -> list[Any]:
        raise StoreError("the store refuses")

    monkeypatch.setattr(Transaction, "commit_async", unknown)
    work: dict[Part, Any] = {Part("source", 0): (5, lambda _: []), Part("source", 1): (5, refuses)}
    with pytest.raises(OutcomeUnknown):
        positions.commit_parts(namespace, positions.Ingestion("n", {}, epoch=epoch), work)
