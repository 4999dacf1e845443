"""The handle counts its requests, and a commit needs no more than it must."""

from __future__ import annotations

import pytest

import txnlog


@pytest.mark.parametrize("partitions", [1, 100])
def test_a_commit_is_one_put_for_each_segment_and_one_entry(tmp_path, partitions):
    with txnlog.open(tmp_path / "lake", namespace="sales", create=True) as ns:
        for topic in ("orders", "audit"):
            ns.create_topic(topic, partitions=partitions)
        ns.produce("orders", [{"value": b"the first append reserves numbers"}])
        before = ns.store_requests
        for _ in range(3):
            with ns.begin() as txn:
                for topic in ("orders", "audit"):
                    for partition in range(partitions):
                        txn.produce(topic, [{"value": b"x"}] * 5, partition=partition)
        sent = {name: count - before.get(name, 0) for name, count in ns.store_requests.items()}
        assert {name: count for name, count in sent.items() if count} == {("put", "segment"): 6, ("create", "entry"): 3}


def test_requests_are_told_by_call_and_kind_of_object(tmp_path):
    with txnlog.open(tmp_path / "lake", namespace="sales", create=True) as ns:
        ns.create_topic("orders")
        ns.produce("orders", [{"value": b"x"}])
        ns.checkpoint()
        counts = ns.store_requests
        assert counts["put", "segment"] == 1
        assert counts["create", "entry"] >= 3
        assert counts["create", "checkpoint"] == 1
        assert counts["create", "root"] >= 1
