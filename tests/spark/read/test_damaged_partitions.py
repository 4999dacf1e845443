"""Offsets of a stream's checkpoint that name a partition which the topic has not: either end of a stream refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_ext.streaming import batch_commit
from spark_ext.streaming.query_checkpoint import Checkpoint
from spark_ext.support import namespace_cache
from tests.spark.runs import Run
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA)
    namespace.produce("orders", [{"id": 1}, {"id": 2}])
    namespace_cache.use(namespace)
    return namespace


@pytest.mark.parametrize("partition", ["1", "-1", str(1 << 70)])
def test_a_source_refuses_to_acknowledge_a_partition_that_is_not_there(ns: Namespace, partition: str) -> None:
    run = Run(ns, subscription="billing")
    run.batch()
    end = run.log[-1]
    end["offsets"]["orders"][partition] = 0
    with pytest.raises(InvalidInputError, match="damaged offset: of partition"):
        run.reader.commit(end)


def test_a_source_refuses_to_plan_from_or_up_to_a_partition_that_is_not_there(ns: Namespace) -> None:
    run = Run(ns, subscription="billing")
    run.batch()
    start, end = run.log
    end["start"]["orders"]["1"] = 0
    with pytest.raises(InvalidInputError, match="damaged offset: of partition 1 of the topic 'orders', which has 1"):
        run.reader.partitions(start, end)
    with pytest.raises(InvalidInputError, match="damaged offset: of partition"):
        run.reader.latestOffset(end, run.reader.getDefaultReadLimit())


@pytest.mark.parametrize("partition", ["1", "-1", str(1 << 70)])
def test_a_sink_refuses_to_acknowledge_a_partition_that_is_not_there(
    ns: Namespace, tmp_path: Path, partition: str
) -> None:
    run = Run(ns, subscription="billing")
    run.batch()
    end = run.log[-1]
    end["offsets"]["orders"][partition] = 3
    end["start"]["orders"][partition] = 0
    place = tmp_path / "checkpoint"
    (place / "offsets").mkdir(parents=True)
    (place / "metadata").write_text('{"id":"q"}')
    (place / "offsets" / "0").write_text("v1\n{}\n" + json.dumps(end))
    checkpoint = Checkpoint(str(place))
    offsets = checkpoint.offsets(0)
    assert offsets is not None
    with pytest.raises(InvalidInputError, match="damaged offset: of partition"):
        batch_commit.begin_batch(ns, checkpoint, None, 0, offsets)
    with pytest.raises(InvalidInputError, match="damaged offset: of partition"):
        batch_commit.ranges_of_batch(ns, checkpoint, offsets, "billing")
