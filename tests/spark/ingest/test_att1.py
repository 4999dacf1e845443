"""Attacks on the one entry of a batch, and on the end of an ingestion (att1)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
import txnlog
from spark_ext.ingest import end_ingestion as end_module
from spark_ext.ingest import positions
from spark_ext.ingest.kafka_cluster import Bounds
from spark_ext.ingest.positions import Ingestion, Part
from spark_ext.write import write_jobs
from tests.client.support import FaultyStore
from tests.spark.ingest.recorded_kafka import RecordedCluster
from tests.spark.ingest.story import SCHEMA, Story, story
from tests.spark.ingest.test_ingest_commits import of_files, of_no_files, owner
from txnlog.api import producers
from txnlog.errors import InvalidInputError, TxnLogError
from txnlog.fold import transactions
from txnlog.format import codec
from txnlog.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from txnlog.api.namespace import Namespace

__all__ = ["story"]  # a fixture

MANY = 10_001


def test_an_ingestion_that_may_begin_can_commit_a_batch_of_all_its_partitions(namespace: Namespace) -> None:
    """Kind: a run that cannot go on, ever. docs/ingest.md: one ingestion can begin with some 30,000 partitions."""
    namespace.create_topic("orders", SCHEMA)
    parts = [Part("source", number) for number in range(MANY)]
    run = owner(namespace)
    positions.note_starts(namespace, run, dict.fromkeys(parts, 0))
    work = {part: (1, of_files(namespace, part.partition)) for part in parts}
    positions.commit_parts(namespace, run, work)
    assert set(positions.ingestions(namespace)["n"].values()) == {1}


def test_a_batch_that_cannot_be_committed_leaves_room_for_the_transactions_of_others(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: an error that says that nothing was written, and fills the namespace for a quarter of an hour.

    The limits are lower here: of open transactions 4 instead of 10,000, of files of an entry 2 instead of 10,000.
    """
    namespace.create_topic("orders", SCHEMA)
    run = owner(namespace)
    monkeypatch.setattr(transactions, "MAX_OPEN_TRANSACTIONS", 4)
    monkeypatch.setattr(write_jobs, "ENTRY_SEGMENTS", 2)
    work = {Part("source", number): (1, of_files(namespace, number)) for number in range(6)}
    said = ""
    try:
        positions.commit_parts(namespace, run, work)
    except TxnLogError as error:
        said = str(error)
    still_open = [item for item in namespace.transactions() if item.state == "OPEN"]
    assert not still_open, f"{len(still_open)} are open, and the error says: {said}"
    with namespace.begin() as other:
        other.produce("orders", [{"id": 1, "partition": 0, "offset": 0}])
        other.flush()


def test_an_entry_with_many_partitions_takes_a_client_a_time_that_grows_with_their_number_alone(
    namespace: Namespace,
) -> None:
    """Kind: time. format_limits.MAX_ENTRY_ACTIONS promises 100 ms "whatever a hostile writer put into it"."""
    took: list[float] = []
    for name, count in (("few", 1_000), ("many", 8_000)):
        run = Ingestion(name, {})
        positions.note_starts(namespace, run, {Part("source", number): 0 for number in range(count)})
        began = time.perf_counter()
        with txnlog.open(namespace.root, namespace.name) as ns:  # applies the entries
            ns.snapshot()
        took.append(time.perf_counter() - began)
    assert took[1] < 20 * took[0], took


RIVAL = """
import os, sys, time, txnlog
ns, end = txnlog.open(sys.argv[1], namespace="sales"), time.time() + 60
while time.time() < end and not os.path.exists(sys.argv[2]):
    ns.produce("other", [{"id": 1}])
    open(sys.argv[3], "a").close()
    time.sleep(0.05)
"""


def test_a_batch_of_a_thousand_partitions_comes_next_to_one_writer_that_commits_at_leisure(
    namespace: Namespace, tmp_path: Path
) -> None:
    """Kind: a run that hangs. One process produces single rows to another topic, with a pause behind each.

    One entry with a thousand begins, files and commits takes a few tenths of a second to make, and loses each race. It
    cannot be proposed (``travels``), it cannot be split, and the place that it asks for has the length of 16 puts,
    which on a fast store is shorter than it takes to make the entry.
    """
    namespace.create_topic("orders", SCHEMA)
    namespace.create_topic("other", pa.schema([("id", pa.int64())]))
    run = owner(namespace)
    parts = [Part("source", number) for number in range(1_000)]
    positions.note_starts(namespace, run, dict.fromkeys(parts, 0))
    work = {part: (1, of_files(namespace, part.partition)) for part in parts}
    stop, going = tmp_path / "stop", tmp_path / "going"
    rival = subprocess.Popen([sys.executable, "-c", RIVAL, namespace.root, str(stop), str(going)])
    try:
        while not going.exists():
            time.sleep(0.1)
        began, before = time.perf_counter(), namespace.snapshot().version
        positions.commit_parts(namespace, run, work)
        took, others = time.perf_counter() - began, namespace.snapshot().version - before
    finally:
        stop.touch()
        rival.wait()
    assert took < 15, f"{took:.0f} s, in which the other one had {others} entries"


def test_where_an_ingestion_may_begin_it_can_commit_a_batch_without_rows(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: a run that cannot go on, ever: ``where`` leaves all messages of a batch out.

    The line of a commit without rows is longer than that of a start, by the digest, the producer and the epoch: with
    names of some 50 characters 34,000 starts fit into an entry, and 24,000 commits. Here with an entry of 64 KiB.
    """
    monkeypatch.setattr(codec, "MAX_ENTRY_BYTES", 64 << 10)
    name, topic = "kafka:" + "a" * 40, "b" * 60
    run = Ingestion(name, {topic: "x" * 22}, epoch=namespace.producer(name).epoch)
    parts = [Part(topic, number) for number in range(225)]
    positions.note_starts(namespace, run, dict.fromkeys(parts, 0))
    positions.commit_parts(namespace, run, {part: (1, of_no_files) for part in parts})
    assert set(positions.ingestions(namespace)[name].values()) == {1}


def end(story: Story, name: str, **given: Any) -> str:
    return spark_ext.end_ingestion(story.spark, f"{story.ns.root}/{story.ns.name}", name, **given)


@pytest.mark.parametrize("how", ["fence", "producer"])
def test_an_ingestion_that_was_ended_stays_ended_whoever_fences_its_name_later(story: Story, how: str) -> None:
    """Kind: doubled messages, and a promise that does not hold: "refuses the name from then on".

    An administrator makes sure of the old program with ``txnlog producers fence``; what looks after it starts it again.
    """
    story.produce(0, 1)
    story.ingest(name="n")
    offsets = end(story, "n")
    if how == "fence":
        story.ns.fence("n", by="command line")
    else:
        story.ns.producer("n")
    story.produce(0, 2)
    try:
        story.ingest(name="n")
    except InvalidInputError:
        pass
    story.ingest(name="n-2", options={"startingOffsets": offsets})
    assert story.ids() == [1, 2]


def test_offsets_of_the_end_that_an_open_transaction_hides_are_not_advised_to_be_lowered(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: an advice that doubles a message.

    The ended one read uncommitted, and the other one has the default, read_committed. Under its own name the call would
    say to wait (``_behind``).
    """
    story.produce(0, 1, 2)
    story.ingest(name="n", options={"kafka.isolation.level": "read_uncommitted"})
    offsets = end(story, "n")
    assert json.loads(offsets)["source"]["0"] == 2
    bounds = RecordedCluster.bounds

    def committed(*given: Any) -> dict[Part, Bounds]:
        """The transaction of the message at offset 1 is open."""
        return {part: Bounds(found.earliest, min(found.latest, 1)) for part, found in bounds(*given).items()}

    with monkeypatch.context() as patch:
        patch.setattr(RecordedCluster, "bounds", committed)
        patch.setattr(RecordedCluster, "written", lambda own, part: bounds(own, [part])[part].latest)
        with pytest.raises(TxnLogError) as caught:
            story.ingest(name="n-2", options={"startingOffsets": offsets})
    if "use one of these" in str(caught.value):  # 1 is the highest of these
        story.ingest(name="n-2", options={"startingOffsets": '{"source": {"0": 1, "1": 0}}'})
    assert story.ids() == [1, 2], str(caught.value)


def test_an_end_behind_which_the_log_cannot_be_read_is_not_called_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: a wrong statement: "nothing was written" of a call that has ended the ingestion."""
    story.produce(0, 1)
    story.ingest(name="n")
    store = FaultyStore(open_store(story.ns.root, {}))
    start = producers.start_producer

    def breaking(*given: Any) -> int:
        epoch = start(*given)
        store.reads_forever = "broken"
        return epoch

    with txnlog.open(story.ns.root, story.ns.name, store=store) as ns:
        spark_ext.use(ns)
        monkeypatch.setattr(end_module, "start_producer", breaking)
        with pytest.raises(TxnLogError) as caught:
            end(story, "n")
        store.heal()
    assert "nothing was written" not in str(caught.value), str(caught.value)


def followed(story: Story, error: InvalidInputError) -> None:
    """What a user does who has read the error of a name that was ended."""
    text = str(error)
    assert "give this one another name (name=...), with the option startingOffsets" in text
    assert "end_ingestion gives the offsets again" in text
    given = ", from_beginning=" in text
    offsets = end(story, "n", **({"from_beginning": ["source"]} if given else {}))
    story.ingest(name="n-3", options={"startingOffsets": offsets})


def test_advice_of_a_name_that_was_ended_doubles_nothing_where_another_one_goes_on(story: Story) -> None:
    """Kind: an advice that doubles messages. What looks after the old program starts it again: it has to stay ended."""
    story.produce(0, 1)
    story.ingest(name="n")
    story.produce(0, 2)
    story.ingest(name="n-2", options={"startingOffsets": end(story, "n")})
    with pytest.raises(InvalidInputError, match="was ended by end_ingestion") as caught:
        story.ingest(name="n")
    followed(story, caught.value)
    assert story.ids() == [1, 2], str(caught.value)


def test_advice_of_a_name_that_was_ended_loses_nothing_of_a_topic_that_was_made_again(story: Story) -> None:
    """Kind: an advice that loses messages, in silence.

    The topic was made again, and the ingestion ended, as the error of that says. Before another one is begun the old
    program is started again. Its error hides the first one, and its advice has no ``from_beginning``.
    """
    story.produce(0, 1, 2)
    story.ingest(name="n")
    story.messages = [[10, 11, 12], []]
    story.produce(0, number="id-2")
    with pytest.raises(InvalidInputError, match="'source' is not the one"):
        story.ingest(name="n")
    end(story, "n", from_beginning=["source"])
    with pytest.raises(InvalidInputError, match="was ended by end_ingestion") as caught:
        story.ingest(name="n")
    followed(story, caught.value)
    assert story.ids() == [1, 2, 10, 11, 12], str(caught.value)
