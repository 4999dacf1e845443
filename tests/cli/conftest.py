"""What the commands are called on: a namespace with work under way."""

from __future__ import annotations

import pytest

import txnlog


@pytest.fixture
def lake(tmp_path):
    with txnlog.open(tmp_path / "lake", namespace="sales", create=True) as ns:
        ns.create_topic("orders", partitions=2)
        with ns.producer("loader") as producer, producer.begin() as txn:
            txn.produce("orders", [{"value": b"one"}, {"value": b"two"}], partition=1)
        ns.create_subscription("orders", "billing")
        open_one = ns.begin()
        open_one.produce("orders", [{"value": b"open"}])
        open_one.flush()
        yield str(tmp_path / "lake" / "sales"), open_one
