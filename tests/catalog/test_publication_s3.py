"""Publication on an S3 server on loopback: two publishers, damage, and a reader that is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import deltalake
import pytest

import catalog as txn_catalog
from tests.catalog.judging import check_table
from tests.client.support import SCHEMA, Place, rows, unique_name
from tools.servers import ACCESS_KEY, SECRET_KEY, s3_server
from txnlog.format import keys


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with s3_server("txnlog-catalog") as found:
        yield found


@pytest.fixture
def s3(server: Any, quick: None) -> Iterator[Place]:
    place = Place("s3", server.url(unique_name()), server.storage_options)
    yield place
    place.close()


def read(server: Any, url: str) -> list[int]:
    options = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    table = deltalake.DeltaTable(url, storage_options=options).to_pyarrow_table()
    return sorted(table.column("id").to_pylist())


def test_topics_are_published_on_s3(s3: Place, server: Any) -> None:
    ns = s3.open()
    ns.create_topic("orders", SCHEMA)
    options: Any = {"storage_options": s3.storage_options}
    with txn_catalog.open(s3.root, **options) as one, txn_catalog.open(s3.root, **options) as two:
        done: Any = None
        for number in range(6):
            ns.produce("orders", rows(number))
            done = (one, two)[number % 2].publish("sales", "orders")
            assert done.delta_version == number
        assert read(server, done.url) == list(range(6))
        store = ns._connection.store
        store.delete(keys.delta_commit_key("orders", 2))
        store.put(keys.delta_commit_key("orders", 3), b"garbage")
        with txn_catalog.open(s3.root, **options) as other:
            assert other.publish("sales", "orders").repaired == (2, 3)
        assert [item.topic for item in one.publish("sales")] == ["orders", keys.SEGMENTS_TABLE]
    check_table(ns, "orders", may_repeat=True)
    assert read(server, done.url) == list(range(6))
