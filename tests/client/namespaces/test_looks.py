"""The table "Which calls look at the log" of docs/python.md: the requests to the log of each call in it, counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, Place, rows, take
from tests.pages import page
from txnlog.errors import SchemaMismatch, TransactionConflict, TxnLogError
from txnlog.fold.number_blocks import CHUNK


class Client:
    """A warm handle, named producer and consumers, and how often a call of theirs asks for an entry or makes one."""

    def __init__(self, place: Place) -> None:
        self.ns, self._store = place.counted()
        self.ns.create_topic("orders", SCHEMA)
        self.ns.create_subscription("orders", "shared", type="shared")
        self.producer = self.ns.producer("loader")
        self.consumer = self.ns.consumer("orders", "billing")
        self.shared = self.ns.consumer("orders", "shared")
        self.ns.produce("orders", rows(*range(20)))

    def looks(self, call: Callable[[], object], error: type[TxnLogError] | None = None) -> bool:
        """Whether a call looks at the log; with ``error`` it must be refused so."""
        self._store.reset()
        if error is None:
            call()
        else:
            with pytest.raises(error):
                call()
        return any(kind == "entry" for _, kind in self._store.counts())

    def begin(self, *ids: int) -> Any:
        """A transaction with work, if there are ids, and with a number in stock for the next one."""
        txn = self.ns.begin()
        if ids:
            txn.produce("orders", rows(*ids))
        return txn


@pytest.fixture
def client(memory: Place) -> Client:
    return Client(memory)


def begins(client: Client) -> Iterator[bool]:
    """Only where a new block of numbers is needed: every so many transactions."""
    found = [client.looks(client.ns.begin) for _ in range(16 * CHUNK)]
    assert 1 <= sum(found) <= 3, "once for each block of numbers"
    yield True


def produces(client: Client) -> Iterator[bool]:
    txn = client.begin()
    yield not client.looks(lambda: txn.produce("orders", rows(1)))
    once = pa.RecordBatchReader.from_batches(SCHEMA, pa.Table.from_pylist(rows(2), SCHEMA).to_batches())
    yield client.looks(lambda: txn.produce("orders", once))
    yield client.looks(lambda: txn.produce("orders", [{"ident": 1}]), SchemaMismatch)


def acknowledges_in_a_transaction(client: Client) -> Iterator[bool]:
    txn = client.begin()
    messages = take(client.consumer, 10)
    yield not client.looks(lambda: txn.acknowledge(messages))
    other = client.begin()
    yield client.looks(lambda: other.acknowledge(messages), TransactionConflict)
    leased = take(client.shared, 10)
    yield client.looks(lambda: client.begin().acknowledge(leased))


def flushes(client: Client) -> Iterator[bool]:
    txn = client.begin(1)
    yield client.looks(txn.flush)
    yield client.looks(txn.flush)
    txn = client.begin(1)
    yield client.looks(txn.prepare)


def prepares(client: Client) -> Iterator[bool]:
    yield client.looks(client.begin(1).prepare)


def commits(client: Client) -> Iterator[bool]:
    yield client.looks(client.begin(1).commit)
    yield not client.looks(client.begin().commit)
    flushed = client.begin(1)
    flushed.flush()
    yield client.looks(flushed.commit)


def commits_async(client: Client) -> Iterator[bool]:
    yield client.looks(lambda: client.begin(1).commit_async().result(20))
    yield not client.looks(lambda: client.begin().commit_async().result(20))


def aborts(client: Client) -> Iterator[bool]:
    yield not client.looks(client.begin(1).abort)
    flushed = client.begin(1)
    flushed.flush()
    yield client.looks(flushed.abort)


def produces_plainly(client: Client) -> Iterator[bool]:
    yield client.looks(lambda: client.producer.produce("orders", rows(1), partition=0, sequence=0))
    yield client.looks(lambda: client.producer.produce("orders", rows(1), partition=0, sequence=0))


def produces_in_nobody_s_name(client: Client) -> Iterator[bool]:
    yield client.looks(lambda: client.ns.produce("orders", rows(1)))


def acknowledges(client: Client) -> Iterator[bool]:
    messages = take(client.consumer)
    yield client.looks(lambda: client.consumer.acknowledge(messages))
    yield client.looks(lambda: client.consumer.acknowledge(messages))


def receives(client: Client) -> Iterator[bool]:
    yield client.looks(lambda: take(client.consumer))
    yield client.looks(lambda: take(client.consumer))


def takes_snapshots(client: Client) -> Iterator[bool]:
    yield client.looks(client.ns.snapshot)


def looks_for_sequences(client: Client) -> Iterator[bool]:
    yield client.looks(lambda: client.producer.last_sequence("orders", 0))


def looks_for_a_transaction(client: Client) -> Iterator[bool]:
    txn = client.begin(1)
    yield client.looks(lambda: client.ns.transaction(txn.id))


def lists_transactions(client: Client) -> Iterator[bool]:
    yield client.looks(client.ns.transactions)


def has_attributes(client: Client, name: str) -> Iterator[bool]:
    txn = client.begin(1)
    yield not client.looks(lambda: getattr(txn, name))


CALLS: dict[str, Callable[[Client], Iterator[bool]]] = {
    "begin": begins,
    "txn.produce": produces,
    "txn.acknowledge": acknowledges_in_a_transaction,
    "txn.flush": flushes,
    "txn.prepare": prepares,
    "txn.commit": commits,
    "txn.commit_async": commits_async,
    "txn.abort": aborts,
    "producer.produce": produces_plainly,
    "ns.produce": produces_in_nobody_s_name,
    "consumer.acknowledge": acknowledges,
    "consumer.receive": receives,
    "ns.snapshot": takes_snapshots,
    "producer.last_sequence": looks_for_sequences,
    "ns.transaction": looks_for_a_transaction,
    "ns.transactions": lists_transactions,
    "txn.state": lambda client: has_attributes(client, "state"),
    "txn.id": lambda client: has_attributes(client, "id"),
    "txn.skipped": lambda client: has_attributes(client, "skipped"),
}


def test_every_call_of_the_table_is_tried() -> None:
    _, found, rest = page("docs/python.md").partition("\n### Which calls look at the log\n")
    assert found
    lines = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert [name for line in lines for name in re.findall(r"`([^`]+)`", line.split("|")[1])] == list(CALLS)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_looks_at_the_log_where_the_table_says_so(client: Client, call: str) -> None:
    done = list(CALLS[call](client))
    assert done
    assert all(done), done
