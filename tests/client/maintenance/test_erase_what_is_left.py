"""What an erasure says of what is left: bounds of files that are gone, mailboxes, fields that came later."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import xxhash

from tests.client.maintenance.people import people, positions, put, vacuumed
from tests.client.support import Place, raises
from txnlog.api.namespace import Namespace
from txnlog.data import wire_rows
from txnlog.errors import InvalidInputError
from txnlog.format.keys import mailbox_key
from txnlog.log.proposals.proposal_codec import Mailbox, ProposedRows
from txnlog.testing import ManualClock

START_MS = 1_700_000_000_000
WRITER = "0123456789abcdef" * 2


def test_bounds_are_named_again_when_the_files_are_gone(place: Place) -> None:
    clock = ManualClock(START_MS)
    ns = people(place.open(clock=clock))
    put(ns, 2, 4, 6, 8)
    condition = pc.field("name") == "person-2-secret"
    first = ns.erase("orders", condition)
    assert first.bounds == ("id", "name")
    vacuumed(ns, clock)
    ns.checkpoint()
    for client in (ns, place.open(mode="r", clock=clock)):
        again = client.erase("orders", condition, dry_run=True)
        assert (again.bounds, again.is_complete) == (("id", "name"), True)


def test_a_value_that_no_bound_says_is_not_named_when_the_files_are_gone(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = people(memory.open(clock=clock))
    put(ns, *range(100, 120))
    condition = pc.field("name") == "person-110-secret"
    assert ns.erase("orders", condition).bounds == ()
    vacuumed(ns, clock)
    assert ns.erase("orders", condition).bounds == ()
    assert ns.erase("orders", pc.field("id") == 777).bounds == ()


def test_bounds_of_merged_files_that_are_gone_are_named_with_the_rows(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = people(memory.open(clock=clock))
    put(ns, 5)
    for first in (1, 3, 7):
        put(ns, first, first + 1)
    ns.alter_topic("orders", statistics="off")
    ns.optimize("orders")
    vacuumed(ns, clock)
    assert ns.erase("orders", pc.field("id") == 5).bounds == ("id", "name")
    assert set(positions(ns)) == {1, 2, 3, 4, 7, 8}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_bound_is_a_value_of_an_erased_row_whoever_else_has_it(memory: Place, first: bool, waits: bool) -> None:
    """A row with the same name stays, in front of it or behind it; ``waits``: an older version shows the erased one."""
    clock = ManualClock(START_MS)
    ns = memory.open(clock=clock)
    ns.enable("holes")
    ns.create_topic("t", pa.schema([("id", pa.int64()), ("name", pa.string())]), partitions=2)
    there = 0 if first else 1  # merged segments are read partition by partition
    for number, name in ((1, "m"), (7, "a"), (0, "z")):
        ns.produce("t", [{"id": number, "name": name}], partition=1 - there)
    for number, name in ((12, "m"), (13, "b"), (11, "y")):
        ns.produce("t", [{"id": number, "name": name}], partition=there)
    ns.optimize("t")
    vacuumed(ns, clock)
    done = ns.erase("t", pc.field("id") == 1)
    if waits:
        done = memory.open(mode="r", clock=clock).erase("t", pc.field("id") == 1, dry_run=True)
    assert (done.erased_messages, len(done.waiting)) == (0 if waits else 1, 1)
    assert done.bounds == ("id", "name")


def test_a_long_text_is_found_by_its_beginning(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = memory.open(clock=clock)
    ns.enable("holes")
    ns.create_topic("orders", pa.schema([("id", pa.int64()), ("note", pa.string())]))
    ns.produce("orders", [{"id": number, "note": f"{number}" * 100} for number in (1, 2, 3)])
    condition = pc.field("note") == "1" * 100
    for _ in range(2):
        assert ns.erase("orders", condition).bounds == ("id", "note")
        vacuumed(ns, clock)


def mailbox(ns: Namespace, topic: str, ids: list[int], *, schema: int | None = None) -> bytes:
    """A proposal with rows of a topic."""
    record = ns._connection.topic_record(topic)
    table = pa.table({"id": ids, "name": [f"person-{number}" for number in ids]})
    rows = {record.id: ProposedRows(schema or record.schemas[-1].version, wire_rows.encode(table))}
    content = msgspec.msgpack.encode(Mailbox(1, WRITER, 3, 1, START_MS, (), rows))
    return xxhash.xxh3_128_digest(content) + content


def test_mailboxes_with_such_rows_are_named_until_a_vacuum(place: Place) -> None:
    clock = ManualClock(START_MS)
    ns = people(place.open(clock=clock))
    put(ns, 50)
    key, store = mailbox_key(WRITER), ns._connection.store
    store.put(key, mailbox(ns, "orders", [1, 2, 1]))
    ns.alter_topic("orders", [("email", pa.string())])  # the rows have the schema of before
    done = ns.erase("orders", pc.field("id") == 1)
    assert [(item.key, item.rows, item.why, item.version) for item in done.waiting] == [
        (key, 2, "it is the mailbox of a writer", None)
    ]
    assert not done.is_complete
    assert ns.erase("orders", pc.field("id") == 3).is_complete
    vacuumed(ns, clock)
    assert ns.erase("orders", pc.field("id") == 1).is_complete


def test_a_mailbox_that_cannot_be_read_is_named(memory: Place) -> None:
    ns = people(memory.open())
    put(ns, 50)
    key, store = mailbox_key(WRITER), ns._connection.store
    for data in (b"half", mailbox(ns, "orders", [1])[:-1], mailbox(ns, "orders", [1], schema=77)):
        store.put(key, data)
        assert [(item.key, item.rows) for item in ns.erase("orders", pc.field("id") == 9).waiting] == [(key, 1)]


def test_fields_that_came_later_cannot_be_asked_of_older_rows(place: Place) -> None:
    ns = place.open()
    ns.enable("holes")
    home = pa.struct([("city", pa.string())])
    ns.create_topic("people", pa.schema([pa.field("id", pa.int64()), pa.field("home", home)]))
    ns.produce("people", [{"id": 1, "home": {"city": "Kiel"}}])
    ns.alter_topic("people", widen={"home": pa.struct([("city", pa.string()), ("street", pa.string())])})
    ns.produce("people", [{"id": 2, "home": {"city": "Kiel", "street": "x"}}])
    before = ns.snapshot().version
    for where in (
        pc.field("home", "street") == "x",
        pc.struct_field(pc.field("home"), "street") == "x",
        (pc.field("id") == 1) & pc.field("home", "street").is_null(),
    ):
        with raises(InvalidInputError, match="older rows of 'people' do not have all fields of the column 'home'"):
            ns.erase("people", where)
    assert ns.snapshot().version == before
    assert ns.erase("people", (pc.field("home", "city") == "Kiel") & (pc.field("id") == 2)).erased_messages == 1
