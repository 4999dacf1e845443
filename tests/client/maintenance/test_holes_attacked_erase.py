"""What an erasure must find, and the errors of conditions that fail on rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog.errors import Durable, InvalidInputError
from txnlog.testing import ManualClock

HOUR = 3_600_000
START = 1_700_000_000_000


def keys_of(ns, topic, name="id"):
    return sorted(ns.snapshot().read(topic).column(name).to_pylist())


def vacuumed(ns, clock):
    clock.advance(3 * HOUR)
    ns.vacuum(retain_ms=0, grace_ms=HOUR, allow_short_retention=True)


def test_dead_letters_of_a_dropped_subscription_are_not_forgotten(memory: Place) -> None:
    clock = ManualClock(START)
    ns = memory.open(clock=clock)
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "s", type="shared", max_redeliveries=0, dead_letter_topic="dead")
    ns.produce("orders", rows(1, 2))
    with ns.consumer("orders", subscription="s", type="shared") as consumer:
        consumer.negative_acknowledge(consumer.receive())
        consumer.receive(timeout_ms=0)
    assert keys_of(ns, "dead") == [1, 2]
    ns.drop_subscription("orders", "s")
    ns.erase("orders", pc.field("id") == 1)
    vacuumed(ns, clock)
    done = ns.erase("orders", pc.field("id") == 1)
    assert keys_of(ns, "dead") == [2] or not done.is_complete, done


_FIT = "does not fit the columns"
_FAILS = "fails on rows"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (pc.field("id"), _FIT),
        (pc.scalar(True), [1, 2]),
        (pc.scalar(None), _FIT),
        (pc.field("name").cast(pa.int64()) == 5, _FAILS),
        (pc.divide(pc.field("id"), pc.scalar(0)) == 5, _FAILS),
        (pc.field(0) == 1, "goes by places of columns"),
        (pc.field("name") == 1, _FIT),
        (pc.field("nope") == 1, _FIT),
        (pc.field("_offset") == 1, _FIT),
        (pc.match_substring_regex(pc.field("name"), "("), _FAILS),
        (pc.is_null(pc.field("name")), []),
        (pc.equal(pc.field("s", "a"), 1), _FIT),
        (pc.field("id").isin([]), []),
        (pc.scalar(1) == 1, [1, 2]),
    ],
    ids=str,
)
def test_no_condition_makes_an_error_without_a_type(memory: Place, where, expected) -> None:
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1, 2))
    for dry_run in (True, False):
        if isinstance(expected, str):
            with pytest.raises(InvalidInputError, match=expected) as caught:
                ns.erase("orders", where, dry_run=dry_run)
            assert caught.value.durable == (Durable.MAYBE if expected == _FAILS and not dry_run else Durable.NOTHING)
        else:
            assert ns.erase("orders", where, dry_run=dry_run).erased_messages == len(expected)
    assert keys_of(ns, "orders") == ([1, 2] if isinstance(expected, str) else sorted({1, 2} - set(expected)))
