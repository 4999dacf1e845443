"""Metadata as Arrow tables: fixed columns, and rows that are what the other calls say."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from tests.by_hand import compact
from tests.client.support import SCHEMA, Place, begun, busy, prepared, raises, rows, take
from tests.pages import page
from txnlog.api.tables import TABLES
from txnlog.errors import InvalidInputError, VersionNotAvailable
from txnlog.format import keys
from txnlog.testing import ManualClock

NAMES = ("transactions", "segments", "subscriptions", "producers", "history", "files")


def listed(ns: Any, name: str, **options: Any) -> list[dict[str, Any]]:
    return ns.table(name, **options).to_pylist()


# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_table_has_its_columns_with_rows_and_without(memory: Place, clock: ManualClock, name: str) -> None:
    ns = memory.open(clock=clock)
    for limit in (None, 0):
        found = ns.table(name, limit=limit)
        assert found.schema == TABLES[name].schema
        found.validate(full=True)
    busy(ns, 1)
    ns.producer("loader")
    filled = ns.table(name)
    assert filled.schema == TABLES[name].schema
    filled.validate(full=True)
    assert filled.num_rows > 1
    assert ns.table(name, limit=2).equals(filled.slice(0, 2)), "the first ones"
    times = [field for field in filled.schema if pa.types.is_timestamp(field.type)]
    assert all(field.type == pa.timestamp("us", "UTC") for field in times)


def test_the_reference_has_every_column_with_its_type() -> None:
    text = page("docs/reference/namespace.md")
    for name, chosen in TABLES.items():
        _, found, rest = text.partition(f'\n**`"{name}"`**')
        assert found, name
        listing = rest.partition("\n\n**`")[0].partition("\n```")[0]
        columns = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S.*\|$", listing, re.MULTILINE)
        assert columns == [(field.name, _shown(field.type)) for field in chosen.schema], name


def _shown(kind: pa.DataType) -> str:
    return str(kind).replace(" not null", "").replace("element: ", "")


def test_there_is_no_other_table(memory: Place) -> None:
    ns = memory.open()
    with raises(InvalidInputError, "no table 'transacton'.*did you mean 'transactions'"):
        ns.table("transacton")
    with raises(InvalidInputError, "no table 7"):
        ns.table(7)
    for call in (lambda: ns.table("files", limit=-1), lambda: ns.history(-1), lambda: ns.history("x")):
        with raises(InvalidInputError, "limit is a whole number"):
            call()


# --- rows -------------------------------------------------------------------------------------------------------------


def test_transactions_are_those_of_the_listing(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(1, clock=clock)
    open_one = begun(ns.producer("loader"), 2, flush=True, timeout_ms=60_000)
    prepared(ns, 3)
    begun(ns, 4, flush=True).abort()
    clock.advance(7_000)
    found = listed(ns, "transactions")
    assert [(row["txn_id"], row["state"]) for row in found] == [
        (str(item.txn_id), item.state) for item in ns.transactions()
    ]
    (opened,) = [row for row in found if row["state"] == "OPEN"]
    assert (opened["txn_id"], opened["producer"], opened["age_ms"]) == (str(open_one.id), "loader", 7_000)
    assert (opened["deadline"] - opened["timestamp"]).total_seconds() == 60
    assert [row["reason"] for row in found if row["state"] == "ABORTED"] == ["user"]


def test_segments_say_how_they_stand_with_a_checkpoint_and_without(memory: Place) -> None:
    ns = memory.orders(1)
    ns.produce("orders", rows(2))
    compact(ns, "orders", [item.number for item in ns.snapshot().plan("orders").segments], 0)
    begun(ns, 3, flush=True).abort()
    pending = begun(ns, 4, flush=True)
    before = listed(ns, "segments")
    states = {row["state"]: [other for other in before if other["state"] == row["state"]] for row in before}
    assert {state: len(found) for state, found in states.items()} == {
        "aborted": 1,
        "pending": 1,
        "replaced": 2,
        "visible": 1,
    }
    assert states["pending"][0]["txn_id"] == str(pending.id)
    (shown,) = states["visible"]
    assert [row for row in before if row["merged"]] == [shown]
    assert shown["slices"] == [{"partition": 0, "offset": 0, "rows": 2}]
    assert ns._connection.store.info(shown["key"]).size_bytes == shown["size_bytes"]
    assert {row["replaced_version"] for row in states["replaced"]} == {shown["ended_version"]}
    ns.checkpoint()
    assert listed(ns, "segments") == before == listed(memory.open(mode="r"), "segments")


def test_subscriptions_have_a_row_for_each_partition(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(*range(6), partitions=2, clock=clock)
    ns.create_subscription("orders", "many", type="shared", max_redeliveries=3, dead_letter_topic="dead")
    consumer = ns.consumer("orders", "many", name="one")
    messages = take(consumer, 4)
    consumer.negative_acknowledge(messages[0])
    ns.begin().acknowledge(messages[1])
    clock.advance(1_000)
    found = listed(ns, "subscriptions")
    assert [row["partition"] for row in found] == [0, 1]
    for row, lag, cursor in zip(
        found, ns.lag("orders", "many"), ns.subscription("orders", "many").cursors, strict=True
    ):
        assert (row["cursor"], row["end_offset"], row["lag_messages"]) == (lag.cursor, lag.end, lag.behind_messages)
        assert (row["lag_ms"], row["pending"], row["leased"]) == (lag.behind_ms, lag.pending, lag.leased)
        assert row["redelivered"] == cursor.redelivered
        assert (row["topic"], row["type"], row["dead_letter_topic"]) == ("orders", "shared", "dead")
    assert sum(row["redelivered"] for row in found) == 1


def test_producers_are_those_that_were_started_and_fenced(memory: Place) -> None:
    ns = memory.orders()
    begun(ns.producer("loader"), 1, flush=True)
    ns.producer("zombie")
    ns.fence("zombie", by="ann")
    assert [(row["producer"], row["open_transactions"], row["fenced_by"]) for row in listed(ns, "producers")] == [
        ("loader", 1, None),
        ("zombie", 0, "ann"),
    ]


def test_the_history_has_every_entry_and_all_that_was_committed(memory: Place) -> None:
    ns = memory.open()
    busy(ns, 1)
    compact(ns, "audit", [item.number for item in ns.snapshot().plan("audit").segments][:2], 0)
    newest = ns.snapshot().version
    assert newest > 40, "more than are read at once"
    entries = ns.history(limit=newest + 7)
    assert [item.version for item in entries] == list(range(newest, -1, -1))
    outcomes = ns._connection.follower.state.outcomes.values()
    assert sum(item.transactions_committed for item in entries) == sum(item.state == "COMMITTED" for item in outcomes)
    assert entries[-1].actions == {"namespace": 1, "protocol": 1}
    for limit in (0, 1, 20, 32, 33, newest, newest + 1):
        assert ns.history(limit) == entries[:limit], limit
    assert ns.history() == entries[:20]
    table = listed(ns, "history")
    assert [row["version"] for row in table] == [item.version for item in entries]
    assert [dict(row["actions"]) for row in table] == [item.actions for item in entries]
    assert {row["writer"] for row in table} == {item.writer for item in entries}
    assert [dict(row["rows"]) for row in table] == [item.rows for item in entries]


def test_the_history_says_which_rows_each_entry_commits_with_checkpoints_and_without(memory: Place) -> None:
    """Also rows that earlier entries logged, rows of merged segments, and rows of a topic that was dropped."""
    ns = memory.orders()
    ns.create_topic("audit", SCHEMA)
    wanted = {ns.produce("orders", rows(1, 2)).version: {"orders": 2}}
    long = begun(ns, 3, 4, 5, flush=True)
    begun(ns, 6, flush=True).abort()
    ns.checkpoint()
    long.produce("audit", rows(7))
    wanted[long.commit().version] = {"audit": 1, "orders": 3}
    compact(ns, "orders", [item.number for item in ns.snapshot().plan("orders").segments], 0)
    wanted[ns.produce("audit", rows(8, 9)).version] = {"audit": 2}
    ns.drop_topic("audit")
    for _ in range(2):
        for reader in (ns, memory.open(mode="r")):
            entries = reader.history(100)
            assert {item.version: item.rows for item in entries if item.rows} == wanted
            assert sum(item.transactions_committed for item in entries) == len(wanted) + 1, "and the merge"
        ns.checkpoint()


def test_a_history_without_a_limit_is_bounded(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnlog.api.tables.HISTORY_ROWS", 2)
    assert memory.orders(1).table("history").num_rows == 2


def test_files_are_all_objects_and_whether_the_log_needs_them(memory: Place) -> None:
    ns = memory.orders(1)
    store = ns._connection.store
    ns.create_subscription("orders", "kept", type="failover")
    ns.consumer("orders", "kept", name="first").receive(timeout_ms=0)
    ns.checkpoint()
    ns.produce("orders", rows(2))
    ns.checkpoint()
    unnamed = "orders/_txnlog_segment=999999/" + "0" * 32 + ".parquet"
    strangers = {unnamed, "notes.txt", "orders/notes.txt", keys.part_key("1" * 32), keys.heartbeat_key(10**6, 1)}
    for key in (*strangers, keys.mailbox_key("2" * 32), keys.delta_hint_key("orders")):
        store.put(key, b"x")
    found = {row["key"]: row for row in listed(ns, "files")}
    assert list(found) == [info.key for info in store.list("")]
    older, newer = (key for key in found if isinstance(keys.parse_key(key), keys.ManifestKey))
    assert found[newer]["referenced"]
    unknown = {keys.mailbox_key("2" * 32), keys.delta_hint_key("orders")}
    assert {key for key, row in found.items() if row["referenced"] is None} == unknown
    needless = {key for key, row in found.items() if row["referenced"] is False}
    assert {*strangers, older} <= needless
    assert {found[key]["kind"] for key in needless - strangers} == {"checkpoint"}, "parts that the newer one replaces"
    assert {row["kind"] for row in found.values()} >= {"entry", "segment", "checkpoint", "delta", "proposal", "other"}
    entries = [row for row in found.values() if row["kind"] == "entry"]
    assert len(entries) == ns.snapshot().version + 1
    assert all(row["referenced"] for row in entries)


def test_a_segment_is_needed_as_long_as_a_version_shows_it(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(1, clock=clock)
    ns.produce("orders", rows(2))
    compact(ns, "orders", [item.number for item in ns.snapshot().plan("orders").segments], 0)

    def needed() -> list[bool]:
        return [row["referenced"] for row in listed(ns, "files") if row["kind"] == "segment"]

    assert needed() == [True, True, True]
    store = ns._connection.store
    kept = {row["key"]: store.get(row["key"]) for row in listed(ns, "segments") if row["state"] == "replaced"}
    clock.advance(30 * 86_400_000)
    ns.vacuum()
    for key, data in kept.items():
        store.put(key, data)  # as where a vacuum was interrupted
    assert sorted(needed()) == [False, False, True]
    ns.drop_topic("orders")
    assert sorted(needed()) == [False, False, True], "older versions show it"


# --- as they were at a version ----------------------------------------------------------------------------------------


def test_history_and_segments_are_at_every_version_what_they_were_when_it_was_the_newest(
    memory: Place, clock: ManualClock
) -> None:
    """Also over pending rows, an abort, a merge, a topic that is dropped and made again, and checkpoints."""
    ns = memory.orders(1, clock=clock)
    seen = _seen(ns)

    def step(*calls: Any) -> None:
        for call in calls:
            clock.advance(1_000)
            call()
            seen.update(_seen(ns))

    clock.advance(1_000)
    long = begun(ns, 3, 4, flush=True)
    clock.advance(1_000)
    lost = begun(ns, 5, flush=True)
    step(lambda: ns.produce("orders", rows(2)), lost.abort)
    numbers = [item.number for item in ns.snapshot().plan("orders").segments]
    step(lambda: compact(ns, "orders", numbers, 0), ns.checkpoint, long.commit)
    step(lambda: ns.drop_topic("orders"), lambda: ns.create_topic("orders", SCHEMA))
    step(lambda: ns.produce("orders", rows(6)), ns.checkpoint, lambda: ns.produce("orders", rows(7)))
    assert len(seen) >= 8
    assert {row["state"] for found, _, _ in seen.values() for row in found} == {
        "aborted",
        "pending",
        "replaced",
        "visible",
    }
    for reader in (ns, memory.open(mode="r", clock=clock)):
        for version, (segments, history, time_ms) in seen.items():
            assert listed(reader, "segments", version=version) == segments, version
            entries = listed(reader, "history", version=version)
            assert [row["version"] for row in entries] == list(range(version, -1, -1))
            assert [row["size_bytes"] for row in entries] == [row["size_bytes"] for row in history]
            assert listed(reader, "segments", timestamp=time_ms) == segments
            assert listed(reader, "history", timestamp=time_ms, limit=1)[0]["version"] == version


def _seen(ns: Any) -> dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]], int]]:
    """By the newest version its two tables, and its time."""
    entries = listed(ns, "history")
    time_ms = int(entries[0]["timestamp"].timestamp() * 1_000)
    return {entries[0]["version"]: (listed(ns, "segments"), entries, time_ms)}


def test_a_version_that_cannot_be_read_and_a_table_without_versions_are_refused(memory: Place) -> None:
    ns = memory.orders(1)
    newest = ns.snapshot().version
    with raises(VersionNotAvailable, f"{newest + 1}"):
        ns.table("segments", version=newest + 1)
    with raises(InvalidInputError, "a version or a timestamp, not both"):
        ns.table("segments", version=newest, timestamp=0)
    for name in set(NAMES) - {"history", "segments"}:
        for options in ({"version": newest}, {"timestamp": "2026-11-21T12:00:00Z"}):
            with raises(InvalidInputError, f"'{name}' shows what is there now.*'segments' and 'history' have versions"):
                ns.table(name, **options)
