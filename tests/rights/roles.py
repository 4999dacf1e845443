"""What each role of docs/operations/access.md may do, tried: the same calls over local files and over S3."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import catalog
import txnlog
from tests.client.support import SCHEMA, ids, rows
from tests.pages import blocks, page, section
from txnlog.errors import AccessDenied, Durable
from txnlog.format.keys import entry_key, mailbox_key, segment_key
from txnlog.store import Store, open_store
from txnlog.testing import ManualClock

NAMESPACE: Final = "sales"
TOPIC: Final = "orders"

_TWO_HOURS_MS: Final = 2 * 3_600_000

GARBAGE: Final = f"{NAMESPACE}/{segment_key(TOPIC, 999, '0' * 32 + '.parquet')}"
ENTRY: Final = f"{NAMESPACE}/{entry_key(0)}"
MAILBOX: Final = f"{NAMESPACE}/{mailbox_key('0' * 32)}"


@dataclass(frozen=True)
class Lake:
    """A root, as one user reaches it."""

    root: str
    storage_options: dict[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def open(self, namespace: str = NAMESPACE, **options: Any) -> Iterator[Any]:
        """A handle of the namespace."""
        with txnlog.open(self.root, namespace, storage_options=self.storage_options or None, **options) as ns:
            yield ns

    def catalog(self) -> catalog.Catalog:
        """The root's catalog."""
        return catalog.open(self.root, self.storage_options or None)

    def store(self) -> Store:
        """The objects of the root."""
        return open_store(self.root, self.storage_options or None)

    def shown(self) -> tuple[dict[str, object], object]:
        """What a reader sees: rows by topic, and cursors. The log may also have numbers of rows that were refused.

        Without the topic that maintenance makes: of its many steps the first ones need fewer rights than the others.
        """
        with self.open(mode="r") as ns:
            snapshot = ns.snapshot()
            cursors = [ns.subscription(TOPIC, name).cursors for name in ns.subscriptions(TOPIC)]
            return {topic: ids(snapshot.read(topic)) for topic in ns.topics() if topic != "more"}, cursors


def make(lake: Lake) -> None:
    """As an administrator: a namespace with everything that a role may be refused."""
    long_ago = ManualClock(time.time_ns() // 1_000_000 - _TWO_HOURS_MS)
    with lake.open(create=True, clock=long_ago) as ns:
        ns.create_topic("ended", SCHEMA)
        ns.produce("ended", rows(1))
        with lake.catalog() as cat:
            cat.publish(NAMESPACE, "ended")
        ns.drop_topic("ended")
    with lake.open() as ns:
        for topic in (TOPIC, "audit"):
            ns.create_topic(topic, SCHEMA)
            ns.produce(topic, rows(1, 2, 3))
        ns.create_subscription(TOPIC, "billing")
        ns.create_subscription(TOPIC, "leased", takeover="after_lease")
    with lake.catalog() as cat:
        cat.publish(NAMESPACE)
    with lake.open() as ns:
        ns.produce(TOPIC, rows(4))  # to be published
    lake.store().put(GARBAGE, b"")


def _read(lake: Lake) -> None:
    for mode in ("r", "rw"):
        with lake.open(mode=mode) as ns:
            assert ids(ns.snapshot().read(TOPIC))[:3] == [1, 2, 3]
            assert ns.topics() == ("audit", TOPIC)
            assert ns.subscriptions(TOPIC) == ("billing", "leased")
            assert ns.lag(TOPIC, "leased")[0].behind_messages >= 3
    with lake.catalog() as cat:
        assert NAMESPACE in cat.namespaces()


def _consume(lake: Lake) -> None:
    with lake.open() as ns:
        consumer = ns.consumer(TOPIC, "billing")
        consumer.acknowledge(consumer.receive(1, timeout_ms=0))
        with ns.begin() as txn:
            txn.acknowledge(consumer.receive(1, timeout_ms=0))


def _consume_with_a_lease(lake: Lake) -> None:
    with lake.open() as ns, ns.consumer(TOPIC, "leased", name="one") as consumer:
        assert ids(consumer.receive(timeout_ms=0).table)[:3] == [1, 2, 3]


def _produce(lake: Lake) -> None:
    with lake.open() as ns:
        ns.produce(TOPIC, rows(5))
        with ns.begin() as txn:
            txn.produce(TOPIC, rows(5))


def _produce_elsewhere(lake: Lake) -> None:
    with lake.open() as ns:
        ns.produce("audit", rows(5))


def _publish(lake: Lake) -> None:
    with lake.catalog() as cat:
        cat.publish(NAMESPACE)


def _maintain(lake: Lake) -> None:
    with lake.open() as ns:
        ns.create_topic("more", SCHEMA, if_not_exists=True)
        ns.produce("more", rows(1))
        ns.produce("more", rows(2))
        ns.optimize("more")
        ns.checkpoint()
        assert ns.vacuum(retain_ms="1h", grace_ms="1h").dropped_files > 0
        ns.drop_topic("more")


def _collect(lake: Lake) -> None:
    lake.store().delete(GARBAGE)


def _share_an_entry(lake: Lake) -> None:
    lake.store().put(MAILBOX, b"")


def _delete_an_entry(lake: Lake) -> None:
    lake.store().delete(ENTRY)


def _create_a_namespace(lake: Lake) -> None:
    with lake.open("another", create=True) as ns:
        ns.create_topic(TOPIC, SCHEMA)


OPERATIONS: Final[dict[str, Callable[[Lake], None]]] = {
    "read": _read,
    "consume": _consume,
    "consume with a lease": _consume_with_a_lease,
    "produce": _produce,
    "produce to another topic": _produce_elsewhere,
    "publish": _publish,
    "maintain": _maintain,
    "delete a file": _collect,
    "share an entry": _share_an_entry,
    "delete an entry": _delete_an_entry,
    "create a namespace": _create_a_namespace,
}

_CONSUMER: Final = {"read", "consume", "consume with a lease"}
_PRODUCER: Final = {"produce"} | _CONSUMER  # the log is one: whoever may append to it may acknowledge
_PUBLISHER: Final = {"read", "publish"}

ROLES: Final[dict[str, set[str]]] = {
    "Reader": {"read"},
    "Consumer": _CONSUMER,
    "Producer": _PRODUCER,
    "Publisher of Delta tables": _PUBLISHER,
    "Maintainer": {
        *(_CONSUMER | _PRODUCER | _PUBLISHER),
        *("produce to another topic", "maintain", "delete a file", "share an entry"),
    },
    "Administrator of the root": {"read", "create a namespace", "consume", "consume with a lease"}
    | {"produce", "produce to another topic", "publish", "share an entry"},  # no "maintain": a vacuum deletes
}
"""What works; everything else is refused."""


def outcomes(lake: Lake, *operations: str) -> dict[str, AccessDenied | None]:
    """Try operations; what each was refused with. What is refused changes nothing that a reader sees."""
    found: dict[str, AccessDenied | None] = {}
    before = lake.shown()
    for name in operations or OPERATIONS:
        try:
            OPERATIONS[name](lake)
        except AccessDenied as error:
            found[name] = error
        else:
            found[name] = None
        after = lake.shown()
        assert found[name] is None or after == before, f"{name}: refused, and something was done"
        before = after
    return found


def check(role: str, found: dict[str, AccessDenied | None], *more: str) -> None:
    """What a role could do is what the page says, and ``more`` that this store cannot refuse; refusals are plain."""
    print(f"\n{role}")
    for name, error in found.items():
        print(f"  {name}: {'yes' if error is None else error}")
        if error is not None:
            announced = name == "maintain" and error.right == "delete"  # a vacuum's first step, in the log
            assert error.durable is (Durable.MAYBE if announced else Durable.NOTHING)
            assert error.right in ({"read", "write"} if name == "create a namespace" else {"write", "delete"})
            assert error.url in error.message
            assert "docs/operations/access.md" in error.advice
    assert {name for name, error in found.items() if error is None} == (ROLES[role] | set(more)) & set(found)


def policy(role: str, bucket: str, root: str) -> dict[str, Any]:
    """The policy of a role for this root, or another one under a title, as a reader of the page copies it."""
    (text,) = blocks(section(page("docs/operations/access.md"), role), "json")
    for name, value in {"BUCKET": bucket, "ROOT": root, "NAMESPACE": NAMESPACE, "TOPIC": TOPIC}.items():
        text = re.sub(rf"\b{name}\b", value, text)
    found: dict[str, Any] = json.loads(text)
    return found


def folders(role: str) -> list[str]:
    """The folders below the namespace's that a role writes to on local files, by the page."""
    (line,) = re.findall(r"^On local files: (.*)\.$", section(page("docs/operations/access.md"), role), re.MULTILINE)
    return [name.replace("TOPIC", TOPIC) for name in re.findall(r"`([^`]+)`", line) if name != "none"]
