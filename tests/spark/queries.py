"""A query's checkpoint and the offsets in it, as Spark writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_ext.streaming.offsets import StreamOffset
from tests.spark.support import Query

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace


SCHEMA = pa.schema([("x", pa.int64())])


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint")


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    for partition in (0, 1):
        namespace.produce("orders", [{"x": i} for i in range(10)], partition=partition)
    namespace.create_subscription("orders", "billing")
    return namespace


def offset(ns: Namespace, start: tuple[int, int], end: tuple[int, int], **changes: Any) -> StreamOffset:
    values = {
        "namespace": ns.name,
        "coordinator": ns._connection.coordinator,
        "version": ns._connection.follower.version,
        "subscription": "billing",
        "topic_ids": {"orders": ns.topic("orders").id},
        "offsets": {"orders": dict(enumerate(end))},
        "start": {"orders": dict(enumerate(start))},
    }
    return StreamOffset(**{**values, **changes})
