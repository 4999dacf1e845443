"""Arguments that are True or False: a text, also ``"false"``, is neither, and nothing is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import txnlog
from tests.client.support import SCHEMA, Place, Unchanged, raises, rows
from txnlog.api.adoption import adopt_namespace
from txnlog.common.validation import truth
from txnlog.errors import InvalidInputError

SWITCHES: dict[str, Callable[[Any, Any], object]] = {
    "create_topic(if_not_exists)": lambda ns, it: ns.create_topic("orders", SCHEMA, if_not_exists=it),
    "create_subscription(if_not_exists)": lambda ns, it: ns.create_subscription("orders", "new", if_not_exists=it),
    "create_subscription(allow_short_lease)": lambda ns, it: ns.create_subscription(
        "orders", "new", lease_ms=5, allow_short_lease=it
    ),
    "consumer(takeover)": lambda ns, it: ns.consumer("orders", "billing", takeover=it),
    "abort(force)": lambda ns, it: ns.abort("0" * 32, force=it),
    "complete(commit)": lambda ns, it: ns.complete("0" * 32, commit=it),
    "vacuum(dry_run)": lambda ns, it: ns.vacuum(dry_run=it),
    "vacuum(allow_short_retention)": lambda ns, it: ns.vacuum(retain_ms=0, allow_short_retention=it),
    "maintain(allow_short_retention)": lambda ns, it: ns.maintain(retain_ms=0, allow_short_retention=it),
    "optimize(dry_run)": lambda ns, it: ns.optimize("orders", dry_run=it),
    "acknowledge(cumulative)": lambda ns, it: received(ns)[0].acknowledge(received(ns)[1], cumulative=it),
    "read(include_metadata)": lambda ns, it: ns.snapshot().read("orders", include_metadata=it),
    "scan(include_metadata)": lambda ns, it: ns.snapshot().scan("orders", include_metadata=it),
}


def received(ns: Any) -> tuple[Any, Any]:
    """A consumer and what it received, the same at every call."""
    if not hasattr(ns, "received"):
        consumer = ns.consumer("orders", "billing")
        ns.received = consumer, consumer.receive(timeout_ms=0)
    found: tuple[Any, Any] = ns.received
    return found


@pytest.mark.parametrize("value", ["false", "no", "", 0, 1, None], ids=repr)
@pytest.mark.parametrize("call", SWITCHES)
def test_what_is_neither_true_nor_false_is_refused(memory: Place, call: str, value: Any) -> None:
    ns: Any = memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2, 3))
    received(ns)
    name = call.partition("(")[2].rstrip(")")
    with Unchanged(memory), raises(InvalidInputError, match=rf"^{name} is True or False, not ") as caught:
        SWITCHES[call](ns, value)
    assert caught.value.advice


@pytest.mark.parametrize("value", ["false", 0])
def test_a_namespace_is_not_created_or_adopted_by_what_is_neither(place: Place, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="create is True or False, not"):
        txnlog.open(place.root, "sales", create=value, storage_options=place.storage_options)
    place.open().create_topic("orders", SCHEMA)
    with Unchanged(place), raises(InvalidInputError, match="force is True or False, not"):
        adopt_namespace(place.root, "sales", force=value, storage_options=place.storage_options)


def test_an_acknowledgement_that_is_refused_for_it_leaves_the_transaction_open(memory: Place) -> None:
    ns: Any = memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2, 3))
    with ns.begin() as txn:
        with pytest.raises(InvalidInputError, match="cumulative is True or False, not 'no'"):
            txn.acknowledge(received(ns)[1], cumulative="no")
        txn.acknowledge(received(ns)[1], cumulative=True)
    assert ns.lag("orders", "billing")[0].cursor == 3


@pytest.mark.parametrize("value", [True, np.True_, False, np.False_])
def test_truth_values_of_numpy_are_some_too(value: Any) -> None:
    assert truth("force", value) is bool(value)
