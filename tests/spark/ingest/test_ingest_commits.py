"""What the commits of a batch of an ingestion come to, and what an error says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamReader

import txnlog
from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import kafka_batches, position_commits, positions
from spark_ext.ingest.kafka_batches import KafkaBatches
from spark_ext.ingest.positions import Ingestion, TopicPartition
from spark_ext.write import frame_jobs
from tests.client.support import FaultyStore
from tests.spark.ingest.recorded_kafka import RecordedCluster, RecordedKafka, _Reader
from tests.spark.ingest.story import RUNNING, SCHEMA, Story, story
from txnlog.api.internals import connection_of
from txnlog.errors import (
    Durable,
    InvalidInputError,
    OffsetOutOfRange,
    OutcomeUnknown,
    ProducerFenced,
    RetriableError,
    TransactionConflict,
)
from txnlog.fold import transactions
from txnlog.format import codec
from txnlog.format.actions import Segment, SliceRows
from txnlog.log.appender import Appender
from txnlog.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

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
        patch.setattr(kafka_batches, "commit_batch", lambda *_, **_more: (_ for _ in ()).throw(RuntimeError("dies")))
        with pytest.raises(StreamingQueryException, match="dies"):
            story.ingest(subscribe=both)
    story.ingest()
    assert story.ids() == [1]
    story.ingest(subscribe=both)
    assert story.ids() == [1, 7]


def test_a_topic_that_is_dropped_between_the_last_look_and_the_commit_fails_the_batch(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is there, and the next run does not take the new topic for the old one."""
    story.produce(0, 1, 2)
    check = kafka_batches.KafkaBatches._check_sources

    def dropping(*given: Any) -> None:
        check(*given)
        story.ns.drop_topic("orders")

    with monkeypatch.context() as patch:
        patch.setattr(KafkaBatches, "_check_sources", dropping)
        with pytest.raises(
            StreamingQueryException, match=r"TransactionConflict: .*'orders' was dropped while its rows"
        ):
            story.ingest()
    assert story.stream(0).batch == 0
    story.ns.create_topic("orders", SCHEMA, partitions=2)
    with pytest.raises(InvalidInputError, match="'orders', which was dropped and created again"):
        story.ingest()
    story.ingest(name="again")
    assert story.ids() == [1, 2]


# --- a batch is there, or nothing of it -------------------------------------------------------------------------------


FIRST, SECOND = TopicPartition("source", 0), TopicPartition("source", 1)


def owner(ns: Namespace) -> Ingestion:
    return Ingestion("n", {}, epoch=ns.producer("n").epoch)


def of_files(ns: Namespace, *files: int) -> Callable[[int], list[Segment]]:
    """Files of a row each, which the log takes without a look at them."""
    topic = connection_of(ns).topic_record("orders").id
    numbers = connection_of(ns).appender.take_numbers(len(files))

    def segments(txn: int) -> list[Segment]:
        named = zip(numbers, files, strict=True)
        return [
            Segment(number, topic, f"{file:032x}.parquet", 1, 1, f"crc32:{file:08x}", (SliceRows(0, 1),), txn)
            for number, file in named
        ]

    return segments


def test_all_partitions_of_a_batch_move_on_in_one_entry(story: Story) -> None:
    """Else a watermark that follows the partition ahead takes rows of the others for late ones, for ever."""
    for number in range(3):
        story.produce(0, 2 * number)
        story.produce(1, 2 * number + 1)
        story.ingest()
        first, second = story.stream(0), story.stream(1)
        assert (first.batch, first.version) == (number + 1, second.version)


@pytest.mark.parametrize("known", [0, 1])
def test_of_a_batch_that_one_partition_refuses_nothing_is_committed(namespace: Namespace, known: int) -> None:
    """The log has that one up to there already: its rows are passed over, which only an error may say."""
    run = owner(namespace)
    position_commits.commit_batch(namespace, run, {(FIRST, SECOND)[known]: 5}, of_no_files)
    with pytest.raises(TransactionConflict, match="were not committed") as caught:
        position_commits.commit_batch(namespace, run, {FIRST: 5, SECOND: 5}, of_no_files)
    assert caught.value.durable is Durable.NOTHING
    assert (FIRST, SECOND)[1 - known] not in positions.ingestions(namespace)["n"]


def test_of_a_batch_of_a_run_that_was_overtaken_nothing_is_committed(namespace: Namespace) -> None:
    run = owner(namespace)
    namespace.producer("n")
    with pytest.raises(ProducerFenced) as caught:
        position_commits.commit_batch(namespace, run, {FIRST: 5, SECOND: 5}, of_no_files)
    assert caught.value.durable is Durable.NOTHING
    assert positions.ingestions(namespace) == {}


@pytest.mark.parametrize("is_there", [True, False])
def test_what_has_no_answer_is_there_as_a_whole_or_not_at_all(namespace: Namespace, is_there: bool) -> None:
    run = owner(namespace)
    store = FaultyStore(open_store(namespace.root, {}))
    with txnlog.open(namespace.root, namespace.name, store=store) as ns:
        connection_of(ns).appender.take_numbers(1)  # it has a block of them from here on
        store.script += [lambda: setattr(store, "reads_forever", "broken"), "broken-after" if is_there else "broken"]
        store.forever = "broken"
        with pytest.raises(OutcomeUnknown, match="start the ingestion again") as caught:
            position_commits.commit_batch(ns, run, {FIRST: 5, SECOND: 6}, of_no_files)
        assert len(caught.value.txn_ids) == 1
        store.heal()
    connection_of(namespace).follower.refresh()
    assert positions.ingestions(namespace) == ({"n": {FIRST: 5, SECOND: 6}} if is_there else {})


def of_no_files(_: int) -> list[Segment]:
    return []


def test_files_that_no_entry_holds_are_logged_before_and_committed_together(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace.create_topic("orders", SCHEMA)
    run = owner(namespace)
    monkeypatch.setattr(position_commits, "_MOST_FILES", 2)
    before = namespace.snapshot().version
    files = of_files(namespace, 1, 2, 3, 4, 5)
    version = position_commits.commit_batch(namespace, run, {FIRST: 3, SECOND: 2}, files)
    assert version - before == 4  # three of two files at most, and the commits
    assert positions.ingestions(namespace) == {"n": {FIRST: 3, SECOND: 2}}
    assert namespace.snapshot().plan("orders").rows == 5
    assert namespace.snapshot(version=version - 1).plan("orders").rows == 0
    assert not [item for item in namespace.transactions() if item.state == "OPEN"]


def test_a_topic_that_is_dropped_behind_files_that_were_logged_before_commits_none_of_them(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace.create_topic("orders", SCHEMA)
    run = owner(namespace)
    monkeypatch.setattr(position_commits, "_MOST_FILES", 1)
    call = Appender.call

    def dropping(appender: Appender, command: Any) -> Any:
        if isinstance(command, position_commits._BatchCommand):
            namespace.drop_topic("orders")
        return call(appender, command)

    monkeypatch.setattr(Appender, "call", dropping)
    files = of_files(namespace, 1, 2)
    with pytest.raises(TransactionConflict, match=r"was dropped while its rows were committed.*do this"):
        position_commits.commit_batch(namespace, run, {FIRST: 1, SECOND: 1}, files, if_dropped="do this")
    assert positions.ingestions(namespace) == {}
    assert not [item for item in namespace.transactions() if item.state == "OPEN"]


def test_a_batch_of_many_files_has_one_transaction(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one for each partition a namespace had no room for those of a large Kafka, nor for those of others."""
    namespace.create_topic("orders", SCHEMA)
    run = owner(namespace)
    monkeypatch.setattr(transactions, "MAX_OPEN_TRANSACTIONS", 1)
    monkeypatch.setattr(position_commits, "_MOST_FILES", 2)
    ends = {TopicPartition("source", number): 1 for number in range(6)}
    position_commits.commit_batch(namespace, run, ends, of_files(namespace, *range(6)))
    assert set(positions.ingestions(namespace)["n"].values()) == {1}


def test_where_an_ingestion_may_begin_it_can_commit_a_batch(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of all of its partitions: a position takes no more of an entry than a beginning does."""
    monkeypatch.setattr(codec, "MAX_ENTRY_BYTES", 64 << 10)
    name, topic = "kafka:" + "a" * 40, "b" * 60
    run = Ingestion(name, {topic: "x" * 22}, epoch=namespace.producer(name).epoch)
    parts = [TopicPartition(topic, number) for number in range(225)]
    position_commits.note_starts(namespace, run, dict.fromkeys(parts, 0))
    position_commits.commit_batch(namespace, run, dict.fromkeys(parts, 1), of_no_files)
    assert set(positions.ingestions(namespace)[name].values()) == {1}
