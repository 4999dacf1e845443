"""Offsets of a stream's checkpoint that lack a partition which the topic has: "0" and "1" are one bit apart.

A default for it would begin at the start, or acknowledge nothing: rows twice, or messages that come again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_ext.streaming import batch_commit
from spark_ext.streaming.offsets import StreamOffset
from spark_ext.streaming.query_checkpoint import Checkpoint
from spark_ext.support import namespace_cache
from tests.spark.runs import Offset, Run, ids_of
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])
REFUSED = "a damaged offset: without partition 0 of the topic 'orders', which has 2"


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    for partition in (0, 1):
        namespace.produce("orders", [{"id": 2 * partition}, {"id": 2 * partition + 1}], partition=partition)
    namespace_cache.use(namespace)
    return namespace


def produce(ns: Namespace) -> None:
    for partition in (0, 1):
        ns.produce("orders", [{"id": 10 + partition}], partition=partition)


def flipped(offset: Offset, which: str) -> str:
    """The text of an offset with one bit turned: partition 0 is called 1, which is there a second time and wins."""
    text = json.dumps(offset)
    damaged = text.replace(f'"{which}": {{"orders": {{"0"', f'"{which}": {{"orders": {{"1"')
    assert damaged != text
    return damaged


@pytest.mark.parametrize("which", ["start", "offsets"])
@pytest.mark.parametrize("options", [{}, {"subscription": "billing"}], ids=["alone", "billing"])
def test_a_batch_whose_bounds_lack_a_partition_is_not_read_again(
    ns: Namespace, options: dict[str, Any], which: str
) -> None:
    run = Run(ns, **options)
    run.batch()
    produce(ns)
    assert ids_of(run.batch() or []) == [10, 11]
    start, end = run.log[-2:]
    with pytest.raises(InvalidInputError, match=REFUSED):
        run.rows(start, json.loads(flipped(end, which)))
    assert ids_of(run.rows(start, end)) == [10, 11]


def test_a_query_does_not_go_on_from_offsets_that_lack_a_partition(ns: Namespace) -> None:
    run = Run(ns)
    run.batch()
    produce(ns)
    with pytest.raises(InvalidInputError, match=REFUSED):
        Run(ns, log=[*run.log[:-1], json.loads(flipped(run.log[-1], "offsets"))]).batch()
    assert ids_of(Run(ns, log=run.log).batch() or []) == [10, 11]


def test_a_source_acknowledges_no_offsets_that_lack_a_partition(ns: Namespace) -> None:
    run = Run(ns, subscription="billing")
    run.batch()
    with pytest.raises(InvalidInputError, match=REFUSED):
        run.reader.commit(json.loads(flipped(run.log[-1], "offsets")))


def checkpoint_of(folder: Path, offset: str) -> Checkpoint:
    """A checkpoint whose first batch ends there."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q"}')
    (folder / "offsets" / "0").write_text("v1\n{}\n" + offset)
    return Checkpoint(str(folder))


@pytest.mark.parametrize("which", ["start", "offsets"])
@pytest.mark.parametrize(
    ("parsed", "refused"),
    [(False, "a damaged offset(?!:)"), (True, REFUSED)],
    ids=["twice", "lacking"],
)
def test_a_sink_refuses_offsets_that_name_a_partition_twice_or_lack_one(
    ns: Namespace, tmp_path: Path, which: str, parsed: bool, refused: str
) -> None:
    run = Run(ns, subscription="billing")
    run.batch()
    damaged = flipped(run.log[-1], which)
    checkpoint = checkpoint_of(tmp_path / "c", json.dumps(json.loads(damaged)) if parsed else damaged)
    offsets = checkpoint.offsets(0)
    assert offsets is not None
    with pytest.raises(InvalidInputError, match=refused):
        batch_commit.begin_batch(ns, checkpoint, None, 0, offsets)
    with pytest.raises(InvalidInputError, match=refused):
        batch_commit.ranges_of_batch(ns, checkpoint, offsets, "billing")


def test_the_first_offset_of_a_query_is_no_end_of_a_batch_wherever_the_newest_one_is(ns: Namespace) -> None:
    """Where another source of the query had rows, it is the end of batch 0, which Spark may replay."""
    first = Run(ns, startingOffsets="latest")
    assert first.batch() is None
    produce(ns)
    again = Run(ns, startingOffsets="latest")
    assert again.rows(again.reader.initialOffset(), first.log[0]) == []
    assert ids_of(Run(ns, log=first.log, startingOffsets="latest").batch() or []) == [10, 11]


def test_a_sink_acknowledges_nothing_of_a_source_that_has_only_its_first_offset(ns: Namespace, tmp_path: Path) -> None:
    run = Run(ns, subscription="billing", startingOffsets="latest")
    assert run.batch() is None
    checkpoint = checkpoint_of(tmp_path / "c", json.dumps(run.log[0]))
    offsets = checkpoint.offsets(0)
    assert offsets is not None
    begun = batch_commit.begin_batch(ns, checkpoint, None, 0, offsets)
    assert begun is not None
    taken = batch_commit.ranges_of_batch(ns, checkpoint, offsets, "billing")
    assert batch_commit.acknowledgements(ns, taken, begun[0], "run") == []


def test_an_offset_that_names_a_partition_in_two_ways_is_damaged() -> None:
    text = json.dumps(StreamOffset("sales", 1, 3, None, {"orders": 1}, {"orders": {0: 6}}).to_dict())
    assert StreamOffset.from_text(text) is not None
    with pytest.raises(InvalidInputError, match="damaged"):
        StreamOffset.from_text(text.replace('"0": 6', '"0": 6, "00": 3'))
