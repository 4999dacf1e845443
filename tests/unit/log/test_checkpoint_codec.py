"""Bytes of checkpoints and back: hot state, cold runs, merging, trimming."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.memory_log import Log, individually, tables_of
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.errors import CorruptionError, UnsupportedFeature
from txnlog.fold.state import TABLES, Batch, Draft, Outcome, State
from txnlog.format.actions import (
    Abort,
    Acknowledge,
    Begin,
    Commit,
    DropSubscription,
    DropTopic,
    Prepare,
    Subscription,
    Verdict,
)
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import Manifest, Part

UNIQUE = "0" * 32


@pytest.fixture
def log() -> Log:
    """A log with something in every table."""
    log = Log()
    topic = log.topic(partitions=2)
    subscription = log.subscription(topic)
    log.entry(Subscription(topic, "shipping", "shared", (0, 0), 1_000, max_redeliveries=3, dead_letter_topic="dead"))
    epoch = log.producer()
    log.produce(topic, {0: 5, 1: 3}, producer="loader", epoch=epoch, sequences={0: 10, 1: 0})
    log.produce(topic, 2, app_id="nightly", app_version=-(1 << 63))
    open_one, prepared, aborted = log.number(), log.number(), log.number()
    log.entry(
        Begin(open_one, 60_000, "loader", epoch, "hourly", 7),
        log.segment(topic, {0: 2, 1: 1}, txn=open_one, statistics={"name": ("a", "z", 0), "amount": (None, 3.5, 1)}),
        Acknowledge(open_one, individually(subscription, {0: [(1, 3)]})),
    )
    log.entry(Begin(prepared), log.segment(topic, {0: 1}, txn=prepared), Prepare(prepared, "d" * 32))
    log.entry(Begin(aborted), log.segment(topic, {1: 1}, txn=aborted))
    log.entry(Abort(aborted, "admin", "ada", "why"))
    log.entry(Commit(log.number(), acknowledgements=(individually(subscription, {0: [(0, 1), (4, 5)]}),)))
    passing, gone = log.topic("passing"), log.subscription(topic, "gone")
    decided, bare, without = log.number(), log.number(), log.number()
    for number, offset in ((decided, 1), (without, 2)):
        taken = individually(gone, {0: [(offset, offset + 1)]})
        log.entry(Begin(number), log.segment(passing, {0: 1}, txn=number), Acknowledge(number, taken))
    log.entry(Begin(bare), Prepare(bare, ""), Prepare(decided, "e" * 32))
    log.entry(DropTopic(passing), DropSubscription(gone))
    log.entry(Commit(decided), Commit(bare), Commit(without, "f" * 32, dropped_subscriptions=(gone,)))
    log.state.verdicts["s3", "x"] = Verdict("s3", "x", 9)  # a row of the root log, for the bytes
    return log


def hot_of(state: State) -> dict[str, dict[Any, Any]]:
    found = {name: table for name, table in tables_of(state).items() if name not in checkpoint_codec.COLD_KINDS}
    return found | {"segments": {n: item for n, item in state.segments.items() if item.state == "pending"}}


@pytest.mark.clause("P-125")
def test_a_checkpoint_holds_every_table_of_a_state() -> None:
    """One that is forgotten would be empty after the first restore."""
    assert set(checkpoint_codec._HOT) | set(checkpoint_codec.COLD_KINDS) == set(TABLES)
    assert set(checkpoint_codec._HOT) & set(checkpoint_codec.COLD_KINDS) == {"segments"}


def test_a_draft_has_every_table_of_a_state() -> None:
    assert tuple(Draft.__annotations__) == (*TABLES, "unclaimed")


@pytest.mark.clause("P-125", "P-128")
def test_hot_state_survives_its_bytes(log: Log) -> None:
    part, data = checkpoint_codec.encode_hot(log.state, UNIQUE)
    assert (part.kind, part.size_bytes, part.first_version, part.last_version) == (
        "hot",
        len(data),
        log.version,
        log.version,
    )
    restored = checkpoint_codec.decode_hot(checkpoint_codec.read_part(data, part))
    assert hot_of(restored) == hot_of(log.state)
    assert all(not getattr(restored, name) for name in ("outcomes", "removals", "batches"))
    again = checkpoint_codec.encode_hot(restored, UNIQUE)
    assert again == (part, data), "the same state has the same bytes"


@pytest.mark.clause("P-125")
def test_cold_rows_survive_their_bytes(log: Log) -> None:
    state = log.state
    state.removals[3] = 9
    tables = {}
    for kind, table in checkpoint_codec.cold_rows(state).items():
        part, data = checkpoint_codec.encode_part(kind, table, UNIQUE, (0, log.version), 5)
        tables[kind] = checkpoint_codec.read_part(data, part)
    ended = {n: item for n, item in state.segments.items() if item.state != "pending"}
    assert {item.number: item for item in checkpoint_codec.segments_of(tables["segments"])} == ended
    assert {item.number for item in checkpoint_codec.segments_of(tables["segments"], 99)} == set()
    without = min(ended)
    assert {item.number for item in checkpoint_codec.segments_of(tables["segments"], None, {without, 10**9})} == set(
        ended
    ) - {without}
    for number, outcome in state.outcomes.items():
        found = checkpoint_codec.outcome_in(tables["outcomes"], number)
        assert found == msgspec.structs.replace(
            outcome, digest=outcome.digest if outcome.prepared else "", offsets=None
        )
    assert {item.digest for item in state.outcomes.values() if item.prepared} == {"e" * 32, ""}
    assert len([item for item in state.outcomes.values() if item.dropped_topics and item.dropped_subscriptions]) == 2
    assert checkpoint_codec.outcome_in(tables["outcomes"], 10**9) is None
    assert checkpoint_codec.removals_in(tables["removals"]) == {3: 9}
    for batch in state.batches.values():
        place = (batch.producer, batch.topic, batch.partition)
        for sequence in range(batch.sequence, batch.sequence + batch.rows):
            assert checkpoint_codec.batches_in(tables["batches"], *place, sequence, sequence) == [batch]
        end = batch.sequence + batch.rows
        assert checkpoint_codec.batches_in(tables["batches"], *place, end, end) == []
        assert checkpoint_codec.batches_in(tables["batches"], "other", *place[1:], batch.sequence, end) == []


def test_a_batch_that_ends_with_the_greatest_number_is_found(log: Log) -> None:
    """Earlier writers appended such batches: what follows them has no place in 64 bits."""
    batches = [Batch("other", 1, 0, sequence, rows, 7, 3, 9) for sequence, rows in ((0, 2), (MAX_NUMBER - 1, 3))]
    for batch in batches:
        log.state.batches[batch.producer, batch.topic, batch.partition, batch.sequence] = batch
    table = checkpoint_codec.cold_rows(log.state)["batches"]
    for batch in batches:
        assert checkpoint_codec.batches_in(table, "other", 1, 0, batch.sequence, batch.sequence) == [batch]
    assert checkpoint_codec.batches_in(table, "other", 1, 0, MAX_NUMBER, MAX_NUMBER + 1) == [batches[1]]
    assert checkpoint_codec.batches_in(table, "other", 1, 0, 1, MAX_NUMBER) == batches
    assert checkpoint_codec.batches_in(table, "other", 1, 0, 2, 5) == []


def test_trimming_lets_go_of_what_a_checkpoint_holds_and_of_nothing_else(log: Log) -> None:
    before = hot_of(log.state)
    topic = next(iter(log.state.topics))
    version = log.version
    late = log.produce(topic, 1)
    checkpoint_codec.trim(log.state, version)
    assert set(log.state.outcomes) == {late}
    assert [item.logged_version for item in log.state.segments.values() if item.state != "pending"] == [version + 1]
    assert log.state.batches == {}
    after = hot_of(log.state)
    assert {n: after[n] for n in ("cursors", "transactions", "segments", "producers")} == {
        n: before[n] for n in ("cursors", "transactions", "segments", "producers")
    }
    log.entry(Commit(next(n for n, item in log.state.transactions.items() if item.state == "PREPARED"), "d" * 32))


def test_merged_runs_are_sorted_and_forget_outcomes_of_long_ago(log: Log) -> None:
    first = checkpoint_codec.cold_rows(log.state)
    checkpoint_codec.trim(log.state, log.version)
    log.produce(next(iter(log.state.topics)), 1)
    second = checkpoint_codec.cold_rows(log.state)
    for kind in checkpoint_codec.COLD_KINDS:
        merged = checkpoint_codec.merge_runs(kind, [second[kind], first[kind]], expired_before_ms=0)
        assert merged.num_rows == first[kind].num_rows + second[kind].num_rows
        key = {
            "outcomes": ["number"],
            "removals": ["number"],
            "segments": ["topic", "number"],
            "batches": ["producer", "topic", "partition", "sequence"],
        }[kind]
        rows = [tuple(row[name] for name in key) for row in merged.to_pylist()]
        assert rows == sorted(rows)
    last = max(second["outcomes"].column("timestamp_ms").to_pylist())
    kept = checkpoint_codec.merge_runs("outcomes", [first["outcomes"], second["outcomes"]], expired_before_ms=last)
    assert kept.num_rows == 1
    everything = checkpoint_codec.merge_runs(
        "segments", [first["segments"], second["segments"]], expired_before_ms=1 << 62
    )
    assert everything.num_rows == first["segments"].num_rows + second["segments"].num_rows, "files are never forgotten"


# --- the manifest ---------------------------------------------------------------------------------------------------


def manifest(**changes: Any) -> Manifest:
    part = Part("hot", UNIQUE, "d" * 32, 10, 1, 5, 5, 5_000)
    run = Part("outcomes", "1" * 32, "e" * 32, 10, 1, 0, 5, 5_000)
    fields: dict[str, Any] = {
        "format": 1,
        "version": 5,
        "digest": "a" * 32,
        "timestamp_ms": 5_000,
        "parts": (part, run),
    }
    return Manifest(**(fields | changes))


def test_a_manifest_survives_its_bytes() -> None:
    made = manifest()
    assert checkpoint_codec.decode_manifest(checkpoint_codec.encode_manifest(made), 5) == made
    assert [part.unique for part in made.runs("outcomes")] == ["1" * 32]


@pytest.mark.clause("P-127", "P-138", "P-139")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
        checkpoint_codec.encode_manifest(manifest())[:-5],
        checkpoint_codec.encode_manifest(manifest(version=6)),
        checkpoint_codec.encode_manifest(manifest(parts=())),
        checkpoint_codec.encode_manifest(manifest(parts=(manifest().parts[0],) * 2)),
        checkpoint_codec.encode_manifest(manifest()).replace(UNIQUE.encode(), b"../../etc/passwd"),
        checkpoint_codec.encode_manifest(manifest()).replace(b'"format"', b'"extra": 1, "format"'),
    ],
)
def test_a_manifest_that_is_none_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="manifest 5"):
        checkpoint_codec.decode_manifest(data, 5)


def test_a_later_format_is_said_to_be_one() -> None:
    with pytest.raises(UnsupportedFeature, match="format 2"):
        checkpoint_codec.decode_manifest(checkpoint_codec.encode_manifest(manifest(format=2)), 5)


@pytest.mark.clause("P-127")
def test_a_part_that_is_not_the_one_named_is_damage(log: Log) -> None:
    part, data = checkpoint_codec.encode_hot(log.state, UNIQUE)
    for wrong in (b"", data[:-1], data + b"x", bytes([data[0] ^ 1]) + data[1:]):
        with pytest.raises(CorruptionError, match=UNIQUE):
            checkpoint_codec.read_part(wrong, part)
    other = msgspec.structs.replace(part, rows=part.rows + 1)
    with pytest.raises(CorruptionError, match="other rows"):
        checkpoint_codec.read_part(data, other)
    run, run_data = checkpoint_codec.encode_part(
        "removals", checkpoint_codec.cold_rows(log.state)["removals"], UNIQUE, (0, 1), 1
    )
    with pytest.raises(CorruptionError):
        checkpoint_codec.read_part(run_data, msgspec.structs.replace(run, kind="hot"))


@pytest.mark.clause("P-138")
@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("nothing", b"[1,2]"),
        ("topics", b"[1,2]"),
        ("topics", b"\xff"),
        ("ends", b'[["x",1],2]'),
        ("used", b'[1,"xyz"]'),
        ("heads", b"[" * 100_000),
        ("cursors", b"[[1,2],{}]"),
        ("producers", b'["p",{"name":"p","epoch":1,"more":2}]'),
    ],
)
def test_a_row_of_hot_state_that_is_none_is_damage(table: str, row: bytes) -> None:
    found = pa.table({"table": [table], "row": pa.array([row], pa.binary())})
    with pytest.raises(CorruptionError, match="checkpoint"):
        checkpoint_codec.decode_hot(found)


# --- outcomes -------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-125")
def test_what_few_outcomes_have_costs_the_others_next_to_nothing() -> None:
    """Columns of nulls: a run of many plain commits is no longer than it was without them."""
    state = State()
    for number in range(20_000):
        state.outcomes[number] = Outcome(number, "COMMITTED", number, number, digest=f"{number:032x}")
    table = checkpoint_codec.cold_rows(state)["outcomes"]
    sizes = [
        len(checkpoint_codec.encode_part("outcomes", found, UNIQUE, (0, 1), 1)[1])
        for found in (table, table.drop_columns(["digest", "dropped_topics", "dropped_subscriptions"]))
    ]
    assert sizes[0] - sizes[1] < 2_000, sizes
