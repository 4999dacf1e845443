"""A stream's batch takes a whole range: what others took of it by themselves meanwhile is not taken a second time."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from spark_ext import jobs, stream_batches
from tests.client.support import SCHEMA, Place, ids, read, rows
from txnlog import takeover
from txnlog.errors import TxnLogError


def _batch(ns: Any, subscription: int, end: int) -> Any:
    """The commit of a batch that read everything below ``end``, as both sinks do it."""
    taken = stream_batches.BatchRange("orders", subscription, {0: 0}, {0: end})
    identity = stream_batches.QueryIdentity("query", "query")
    wanted = stream_batches.acknowledgements(ns, [taken], identity, "run")
    txn = jobs.begin(ns, jobs.reserve_job(ns))
    txn.acknowledge_ranges(wanted)
    txn.produce("audit", rows(*range(end)))
    return txn.commit()


@pytest.mark.clause("P-84")
@pytest.mark.parametrize("prepared", [False, True])
def test_what_was_acknowledged_by_itself_while_a_batch_took_over_is_not_taken_twice(
    memory: Place, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    ns, other = memory.open(), memory.open()
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA)
    ns.produce("orders", rows(*range(10)))
    consumer = other.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    token = ""
    if prepared:
        txn = other.begin()
        txn.acknowledge(messages[5])
        txn.produce("audit", rows(*ids(messages[5].table)))
        token = txn.prepare()
    honest = takeover.take_epoch

    def late(*arguments: Any, **options: Any) -> int:
        if prepared:
            other.complete(token, commit=True)
        else:
            with other.begin() as mine:
                mine.acknowledge(messages[5])
                mine.produce("audit", rows(*ids(messages[5].table)))
        return honest(*arguments, **options)

    monkeypatch.setattr(stream_batches, "take_epoch", late)
    with contextlib.suppress(TxnLogError):
        _batch(ns, ns.subscription("orders", "billing").id, 10)
    seen = read(ns, "audit")
    assert len(seen) == len(set(seen)), f"processed twice: {sorted(seen)}"
