"""Names that lead nowhere: nothing a caller passes becomes part of a path unchecked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.by_hand import append
from tests.client.support import SCHEMA, Place, Unchanged, raises, rows
from txnlog.errors import InvalidInputError, LimitExceeded, NameNotAllowed, SchemaMismatch
from txnlog.format.actions import AlterTopic

BAD = [
    "",
    ".",
    "..",
    "../orders",
    "a/b",
    "a\\b",
    "/etc",
    "a..b",
    ".hidden",
    "_log",
    "_catalog",
    "-a",
    "a b",
    "a\nb",
    "a\x00b",
    "a\x7fb",
    "naïve",
    "ord\u202eers",
    "a~1",
    "a=1",
    "%2e%2e",
    "con",
    "NUL.txt",
    "x" * 101,
    "x" * 10_000,
    None,
    7,
    b"orders",
    ["orders"],
    ("orders",),
    {"orders"},
]


@pytest.mark.clause("P-5", "P-6")
@pytest.mark.parametrize("name", BAD, ids=lambda name: ascii(name)[:30])
def test_a_name_that_is_not_allowed_is_refused_by_every_call(sales: Any, memory: Place, name: Any) -> None:
    snapshot, txn = sales.snapshot(), sales.begin()
    calls: list[Callable[[], Any]] = [
        lambda: sales.create_topic(name, SCHEMA),
        lambda: sales.drop_topic(name),
        lambda: sales.topic(name),
        lambda: sales.produce(name, [{"id": 1}]),
        lambda: txn.produce(name, [{"id": 1}]),
        lambda: snapshot.read(name),
        lambda: snapshot.scan(name),
        lambda: snapshot.plan(name),
        lambda: snapshot.end_offsets(name),
        lambda: sales.create_subscription(name, "billing"),
        lambda: sales.create_subscription("orders", name),
        lambda: sales.subscription(name, "billing"),
        lambda: sales.subscription("orders", name),
        lambda: sales.subscriptions(name),
        lambda: sales.drop_subscription("orders", name),
        lambda: sales.lag("orders", name),
        lambda: sales.consumer([name], "billing"),
        lambda: sales.consumer("orders", name),
        lambda: sales.producer("loader").last_sequence(name, 0),
    ]
    calls_without_epoch, producer_call = calls[:-1], calls[-1]
    with Unchanged(memory):
        for call in calls_without_epoch:
            with raises(NameNotAllowed) as caught:
                call()
            assert len(str(caught.value)) < 300
            assert "\n" not in str(caught.value)
    with raises(NameNotAllowed):
        producer_call()
    if name is not None:
        with raises(NameNotAllowed):
            memory.open(name)
    txn.produce("orders", [{"id": 1}])
    txn.commit()


@pytest.mark.clause("P-1", "P-7", "P-10")
def test_names_that_differ_in_case_alone_clash(sales: Any, memory: Place) -> None:
    for name in ("ORDERS", "Orders", "oRDERS"):
        with Unchanged(memory), raises(NameNotAllowed, match="only in case"):
            sales.create_topic(name, SCHEMA)
    sales.drop_topic("orders")
    sales.create_topic("ORDERS", SCHEMA)
    sales.produce("ORDERS", [{"id": 1}])
    (segment,) = sales.snapshot().plan("ORDERS").segments
    assert segment.key.startswith("ORDERS~"), "a folder that no case-blind file system takes for the old one's"


@pytest.mark.parametrize("partitions", [0, -1, 1.0, "4", None, True])
def test_a_number_of_partitions_that_makes_no_sense_is_refused(sales: Any, memory: Place, partitions: Any) -> None:
    with Unchanged(memory), raises(InvalidInputError, match="partitions"):
        sales.create_topic("new", SCHEMA, partitions=partitions)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("id int", SchemaMismatch),
        ({"id": "int64"}, SchemaMismatch),
        (pa.schema([]), SchemaMismatch),
        (pa.schema([pa.field("_offset", pa.int64())]), SchemaMismatch),
        (pa.schema([pa.field("a b", pa.int64())]), SchemaMismatch),
        (pa.schema([pa.field("a", pa.int64()), pa.field("A", pa.int64())]), SchemaMismatch),
        (pa.schema([pa.field("a", pa.uint32())]), SchemaMismatch),
        (pa.schema([pa.field("a", pa.duration("s"))]), SchemaMismatch),
        (pa.schema([pa.field(f"c{number}", pa.int64()) for number in range(2_001)]), SchemaMismatch),
    ],
)
def test_a_schema_that_is_none_is_refused(sales: Any, memory: Place, schema: Any, kind: Any) -> None:
    with Unchanged(memory), raises(kind):
        sales.create_topic("new", schema)


@pytest.mark.clause("P-32")
@pytest.mark.parametrize(("key", "kind"), [("nope", SchemaMismatch), ("price", SchemaMismatch), (7, InvalidInputError)])
def test_a_key_that_cannot_be_one_is_refused(sales: Any, memory: Place, key: Any, kind: Any) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("price", pa.float64())])
    with Unchanged(memory), raises(kind):
        sales.create_topic("new", schema, key=key)


@pytest.mark.parametrize("properties", ["owner", 7, ["owner"], {"owner": 7}, {7: "owner"}, {"owner": None}])
def test_properties_are_texts(sales: Any, memory: Place, properties: Any) -> None:
    with Unchanged(memory), raises(InvalidInputError, match="properties"):
        sales.create_topic("new", SCHEMA, properties=properties)


@pytest.mark.parametrize("properties", [{"user.owner": "\ud800"}, {"user.\udfff": "x"}])
def test_text_that_the_log_cannot_hold_is_refused_and_harms_no_other(
    sales: Any, memory: Place, properties: Any
) -> None:
    with Unchanged(memory), raises(InvalidInputError):
        sales.create_topic("new", SCHEMA, properties=properties)
    sales.create_topic("new", SCHEMA, properties={"user.owner": "Zoë \u2028 \x00"})
    assert memory.open().topic("new").properties == {"user.owner": "Zoë \u2028 \x00"}


def test_properties_too_big_for_an_entry_are_refused(sales: Any, memory: Place) -> None:
    with Unchanged(memory), raises(LimitExceeded, match="bytes"):
        sales.create_topic("new", SCHEMA, properties={"user.note": "x" * (9 << 20)})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("retention.ms", "use retention_ms=..."),
        ("retention_ms", "use retention_ms=..."),
        ("retention.bites", "did you mean 'retention.bytes'? use retention_bytes=..."),
        ("cleanup.polcy", "did you mean 'cleanup.policy'?"),
        ("partitons", "use ns.create_topic(name, partitions=...)"),
        ("delta.deletedFileRetentionDuration", "ns.vacuum"),
        ("transaction.timeout.ms", "ns.begin"),
        ("owner", "'user.owner'"),
        ("user.", "begin with 'user.'"),
    ],
)
def test_a_property_that_would_do_nothing_is_refused(sales: Any, memory: Place, name: str, advice: str) -> None:
    for call in (sales.create_topic, sales.alter_topic):
        with Unchanged(memory), raises(InvalidInputError, match="would do nothing") as caught:
            call("new" if call == sales.create_topic else "orders", properties={name: "1"})
        assert advice in caught.value.advice


def test_a_topic_with_properties_of_an_earlier_version_stays_readable_and_can_be_altered(
    sales: Any, memory: Place
) -> None:
    record = sales._connection.topic_record("orders")
    append(sales, AlterTopic(record.id, None, {"retention.ms": "1000", "owner": "ann"}))
    client = memory.open()
    assert client.topic("orders").properties == {"retention.ms": "1000", "owner": "ann"}
    client.produce("orders", rows(1))
    client.alter_topic("orders", add_columns=[("note", pa.string())], properties={"user.owner": "bob"})
    changed = client.alter_topic("orders", properties={"retention.ms": None})
    assert changed.properties == {"owner": "ann", "user.owner": "bob"}
