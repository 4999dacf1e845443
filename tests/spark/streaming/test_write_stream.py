"""``spark_ext.write_stream``: what a handler writes to any topics is one commit a batch, exactly once."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
from tests.client.support import wait_for
from tests.spark.streaming.pipeline import Pipeline, pipeline
from tests.spark.support import forget_commit, ids, versions
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    SchemaMismatch,
)
from txnlog.format.actions import Commit

__all__ = ["pipeline"]  # a fixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_batch_is_one_entry_over_all_topics_with_its_acknowledgement(pipeline: Pipeline) -> None:
    for first in (0, 10, 20):
        pipeline.produce(first)
    query = pipeline.run(query_name="splitter")
    assert query.name == "splitter"
    assert pipeline.calls == [list(range(first, first + 10)) for first in (0, 10, 20)]
    pipeline.check(0, 30)
    assert pipeline.behind() == 0
    committed = sorted(versions(pipeline.ns, "even"))
    assert len(committed) == 3
    for number, version in enumerate(committed):
        (commit,) = [
            item for item in pipeline.ns._connection.follower.log.entry(version).actions if isinstance(item, Commit)
        ]
        assert commit.stream.batch == number
        assert commit.stream.query == query.id
        assert len(commit.acknowledgements) == 1
    assert len(pipeline.ns.transactions()) == 3 + 3, "three orders, three batches, and nothing was aborted"


def test_an_older_copy_of_the_checkpoint_leaves_no_file_out(pipeline: Pipeline, tmp_path: Path) -> None:
    """The offset of Spark's source of files counts its batches: it is the same for others, in such a copy."""
    files, copy = tmp_path / "files", tmp_path / "copy"
    files.mkdir()

    def add(number: int) -> None:
        (files / f"{number}.json").write_text(f'{{"id": {number}, "customer": "c"}}')

    def run() -> None:
        query = spark_ext.write_stream(
            pipeline.spark.readStream.schema("id long, customer string").json(str(files)),
            pipeline.path,
            checkpoint=str(pipeline.checkpoint),
            handler=lambda batch, txn: txn.write(batch, "odd"),
            trigger={"availableNow": True},
        )
        assert query.awaitTermination(120)

    add(1)
    run()
    shutil.copytree(pipeline.checkpoint, copy)
    add(2)
    run()
    shutil.rmtree(pipeline.checkpoint)
    shutil.copytree(copy, pipeline.checkpoint)
    add(3)
    with pytest.raises(StreamingQueryException, match="offsets"):
        run()
    assert ids(pipeline.ns, "odd") == [1, 2]


def test_a_restart_and_a_crash_before_sparks_commit_log_double_nothing(pipeline: Pipeline) -> None:
    pipeline.produce(0)
    pipeline.run()
    assert len(pipeline.calls) == 1
    forget_commit(pipeline.checkpoint, 0)
    version = pipeline.ns.snapshot().version
    pipeline.run()
    assert len(pipeline.calls) == 1, "the batch came again, and the log knew it"
    assert (pipeline.checkpoint / "commits" / "0").exists(), "it came again"
    assert pipeline.ns.snapshot().version == version
    pipeline.produce(10)
    pipeline.run()
    assert pipeline.calls[1:] == [list(range(10, 20))]
    pipeline.check(0, 20)
    assert pipeline.behind() == 0


def _raises(batch: Any, _txn: Any) -> None:
    raise RuntimeError(f"as planned: {batch.count()}")


def _fails_in_a_task(batch: Any, txn: Any) -> None:
    txn.write(batch.selectExpr("if(id = 7, null, id) AS id"), "odd")


def _swallows(batch: Any, txn: Any) -> None:
    with contextlib.suppress(SchemaMismatch):
        _fails_in_a_task(batch, txn)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (_raises, "as planned: 10"),
        (lambda batch, txn: txn.write(batch, "evne"), r"no topic 'evne'.*did you mean 'even'"),
        (lambda batch, txn: txn.write(batch.withColumn("x", F.lit(1)), "odd"), r"topic 'odd' has no column 'x'"),
        (lambda batch, txn: txn.write(batch.count(), "odd"), r"takes a Spark DataFrame, not int"),
        (_fails_in_a_task, r"topic 'odd', column 'id': null"),
        (
            _swallows,
            r"TransactionHasFailedOperation: a write of .* failed: SchemaMismatch: topic 'odd', column 'id': null",
        ),
        (lambda batch, txn: txn.abort(), r"the handler aborted the transaction of batch 0"),
        (lambda batch, txn: sys.exit(3), r"InvalidInputError: the handler of batch 0 raised SystemExit\(3\)"),
    ],
    ids=["raises", "unknown topic", "unknown column", "no frame", "fails in a task", "swallows", "aborts", "exits"],
)
def test_a_bad_handler_stops_the_query_and_leaves_nothing(pipeline: Pipeline, bad: Any, problem: str) -> None:
    def handler(batch: Any, txn: Any) -> None:
        txn.write(batch, "even")
        bad(batch, txn)

    pipeline.produce(0)
    with pytest.raises(StreamingQueryException, match=f"(?s){problem}"):
        pipeline.run(handler)
    for topic in ("even", "odd", "counts"):
        assert pipeline.ns.snapshot().read(topic).num_rows == 0
        assert set(pipeline.ns.snapshot().end_offsets(topic).values()) == {0}
    assert pipeline.behind() == 10
    assert pipeline.ns.transactions("OPEN") == ()


def test_a_query_that_failed_goes_on_with_the_same_batch(pipeline: Pipeline) -> None:
    def fails_late(batch: Any, txn: Any) -> None:
        pipeline.handle(batch, txn)
        if len(pipeline.calls) == 2:
            raise RuntimeError("as planned")

    pipeline.produce(0)
    pipeline.produce(10)
    with pytest.raises(StreamingQueryException, match="as planned"):
        pipeline.run(fails_late)
    pipeline.check(0, 10)
    assert pipeline.behind() == 10
    pipeline.run()
    assert pipeline.calls[1] == pipeline.calls[2] == list(range(10, 20))
    pipeline.check(0, 20)


def test_a_handler_may_commit_by_itself_or_write_nothing(pipeline: Pipeline) -> None:
    def own_commit(batch: Any, txn: Any) -> None:
        pipeline.handle(batch, txn)
        if len(pipeline.calls) == 1:
            txn.commit()

    pipeline.produce(0)
    pipeline.run(own_commit)
    pipeline.check(0, 10)
    assert pipeline.behind() == 0, "a commit of the handler's own takes the acknowledgement along"
    pipeline.produce(10)
    pipeline.run(lambda batch, txn: None)
    assert pipeline.behind() == 0
    pipeline.check(0, 10)


def test_a_namespace_full_of_open_transactions_says_so_before_the_handlers_work(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("api.writing", "fold.transactions"):  # the first one checks, the second one has the error
        monkeypatch.setattr(f"txnlog.{module}.MAX_OPEN_TRANSACTIONS", 0)
    pipeline.produce(0)
    with pytest.raises(StreamingQueryException, match=r"LimitExceeded: the namespace has 0 open transactions"):
        pipeline.run()
    assert pipeline.calls == []


# --- what is acknowledged ---------------------------------------------------------------------------------------------


def test_a_subscription_that_nothing_acknowledges_is_reported_once(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.run(acknowledge=None)
    told = [record.getMessage() for record in caplog.records if "nothing acknowledges it" in record.getMessage()]
    assert len(told) == 1
    assert "acknowledge='billing'" in told[0]
    caplog.clear()
    pipeline.produce(1000)
    pipeline.run(checkpoint=str(pipeline.checkpoint) + "-2")
    assert not [record for record in caplog.records if "nothing acknowledges it" in record.getMessage()]


def test_two_sources_under_one_name_are_acknowledged_together_and_one_under_another_is_reported(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    def run(name: str, number: int) -> None:
        returns = pipeline.spark.readStream.format("txnlog").option("subscription", name).load(f"{pipeline.path}/odd")
        query = spark_ext.write_stream(
            pipeline.source().union(returns),
            pipeline.path,
            checkpoint=f"{pipeline.checkpoint}-{number}",
            handler=lambda batch, txn: txn.write(batch, "even"),
            acknowledge="billing",
            trigger={"availableNow": True},
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    def behind(topic: str, name: str) -> int:
        return sum(item.behind_messages for item in pipeline.ns.lag(topic, name))

    def told() -> list[str]:
        return [text for item in caplog.records if "nothing acknowledges it" in (text := item.getMessage())]

    pipeline.produce(0)
    pipeline.ns.produce("odd", [{"id": 100, "customer": "ann"}])
    run("billing", 0)
    assert (behind("orders", "billing"), behind("odd", "billing")) == (0, 0)
    assert ids(pipeline.ns, "even") == [*range(10), 100]
    assert told() == []

    pipeline.produce(10)
    run("returns", 1)
    assert (behind("orders", "billing"), behind("odd", "returns")) == (0, 1)
    (text,) = told()
    assert "the subscription 'returns'" in text
    assert "share one subscription name: 'billing'" in text


# --- two runs at once -------------------------------------------------------------------------------------------------


@pytest.mark.some(1)
@pytest.mark.parametrize("acknowledge", [None, "billing"])
def test_two_runs_at_work_on_the_same_batch_take_effect_once(pipeline: Pipeline, acknowledge: str | None) -> None:
    def slow(batch: Any, txn: Any) -> None:
        pipeline.handle(batch, txn)
        if len(pipeline.calls) == 1:
            pipeline.batches(pipeline.handle, acknowledge).run(batch, 0)

    pipeline.produce(0)
    pipeline.run(slow, acknowledge=acknowledge)
    assert pipeline.calls == [list(range(10))] * 2, "the other one began and ended it in between"
    pipeline.check(0, 10)
    if acknowledge is not None:
        assert pipeline.behind() == 0


@pytest.mark.clause("P-77")
def test_a_restart_of_the_query_keeps_a_subscription_that_goes_by_name(pipeline: Pipeline) -> None:
    pipeline.ns.create_subscription("orders", "billing", takeover="same_name")
    pipeline.produce(0)
    pipeline.run()
    pipeline.produce(10)
    pipeline.run()
    pipeline.check(0, 20)
    assert pipeline.behind() == 0
    with pytest.raises(ConsumerBusy, match="'billing' belongs to the query"):
        pipeline.ns.consumer("orders", "billing", takeover=True)
    pipeline.produce(20)
    with pytest.raises(StreamingQueryException, match=r"ConsumerBusy: .*same_name"):
        pipeline.run(checkpoint=str(pipeline.checkpoint.with_name("other")))
    assert len(pipeline.calls) == 2, "the handler is not called for what could not be acknowledged"
    pipeline.run()
    pipeline.check(0, 30)


def test_a_newer_run_fences_an_older_one_for_good(pipeline: Pipeline) -> None:
    def stop(batch: Any, txn: Any) -> None:
        raise RuntimeError("as planned")

    def frame(first: int) -> Any:
        rows = [(i, f"c{i % 3}") for i in range(first, first + 10)]
        return pipeline.spark.createDataFrame(rows, "id bigint, customer string")

    older = pipeline.batches(pipeline.handle, "billing")
    pipeline.produce(0)
    with pytest.raises(StreamingQueryException, match="as planned"):
        pipeline.run(stop)
    older.run(frame(0), 0)
    pipeline.check(0, 10)
    pipeline.produce(10)
    pipeline.produce(20)

    refused: list[str] = []

    def late(batch: Any, txn: Any) -> None:
        pipeline.handle(batch, txn)
        for _ in range(2 if len(pipeline.calls) == 3 else 0):
            try:
                older.run(frame(20), 2)
            except ConsumerFenced as error:
                refused.append(str(error))

    pipeline.run(late)
    assert len(refused) == 2
    assert "the epoch of the subscription 'billing' is" in refused[1]
    assert len(pipeline.calls) == 3, "it was refused before its handler was called"
    pipeline.check(0, 30)
    assert pipeline.behind() == 0


def test_a_stopped_query_whose_subscription_was_sought_back_acknowledges_nothing(pipeline: Pipeline) -> None:
    pipeline.produce(0)
    pipeline.run()
    with pipeline.ns.consumer("orders", subscription="billing", takeover=True) as consumer:
        consumer.seek("earliest")
    for first in (10, 20):
        with pytest.raises(StreamingQueryException, match=r"continues at offset \d+, but .* is at 0 .*new checkpoint"):
            pipeline.run()
        pipeline.produce(first)
    assert pipeline.behind() == 30
    pipeline.run(checkpoint=f"{pipeline.checkpoint}-new")
    assert pipeline.behind() == 0
    assert sorted(chain(*pipeline.calls[1:])) == list(range(30)), "a new checkpoint begins at the cursor"


def slow(batches: Any) -> Any:
    time.sleep(60)
    return batches


def in_a_job(batch: Any, txn: Any) -> None:
    txn.write(batch.mapInArrow(slow, batch.schema), "odd")


def in_a_job_of_its_own(batch: Any, _txn: Any) -> None:
    batch.mapInArrow(slow, batch.schema).collect()


@pytest.fixture
def printed(spark: SparkSession) -> Iterator[Callable[[], str]]:
    """What the driver's Java prints on its error output, where threads that an error ended leave its traceback."""
    jvm: Any = spark._jvm
    before, said = jvm.java.lang.System.err, jvm.java.io.ByteArrayOutputStream()
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(said, True))
    try:
        yield lambda: str(said.toString())
    finally:
        jvm.java.lang.System.setErr(before)


def running(spark: SparkSession) -> bool:
    return bool(spark.sparkContext.statusTracker().getActiveStageIds())


@pytest.mark.some(1)
@pytest.mark.parametrize("handler", [in_a_job, in_a_job_of_its_own])
def test_a_query_that_is_stopped_amid_a_batch_ends_without_an_error(
    pipeline: Pipeline, handler: Any, printed: Callable[[], str]
) -> None:
    """Spark recognises its own interrupt: where it cannot, the thread ends otherwise, and this status is not set."""
    pipeline.produce(0)
    query = pipeline.start(handler)
    wait_for(lambda: running(pipeline.spark))
    query.stop()
    assert "StackOverflowError" not in printed()
    assert query.status["message"] == "Stopped"
    assert query.exception() is None
    assert pipeline.behind() == 10
    pipeline.run()
    pipeline.check(0, 10)


def test_a_failure_while_the_query_stops_is_still_its_error(pipeline: Pipeline) -> None:
    pipeline.produce(0)
    began = threading.Event()

    def fail(_batch: Any, _txn: Any) -> None:
        began.set()
        wait_for(lambda: not query.isActive)
        pipeline.spark._jvm.java.net.URI("a" * 9_000 + " ")  # Spark would search all of its text

    query = pipeline.start(fail)
    assert began.wait(60)
    query.stop()
    assert "java.net.URISyntaxException" in str(query.exception())
    assert query.status["message"].startswith("Terminated with exception")


def test_an_app_id_is_remembered_over_checkpoints_and_a_new_one_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.produce(0)
    pipeline.run(txn_app_id="splitter", acknowledge=None)
    with pytest.raises(StreamingQueryException, match=r"'splitter' committed batch 0 of the query .* begins again"):
        pipeline.run(txn_app_id="splitter", acknowledge=None, checkpoint=str(tmp_path / "another"))
    pipeline.check(0, 10)


def test_a_checkpoint_is_where_spark_writes_it_whatever_is_in_its_name(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.produce(0)
    pipeline.run(checkpoint=str(tmp_path / "a b"))
    pipeline.checkpoint = tmp_path / "a%20b#1?2 "
    pipeline.ns.create_subscription("orders", "other", start="earliest")
    source = pipeline.source(subscription="other")
    handled: list[int] = []
    query = spark_ext.write_stream(
        source,
        pipeline.path,
        checkpoint=f"file://{pipeline.checkpoint}",
        handler=lambda batch, _txn: handled.append(batch.count()),
        acknowledge="other",
        trigger={"availableNow": True},
    )
    assert query.awaitTermination(120)
    assert handled == [10], "another query's checkpoint would have said that its batch was committed"
