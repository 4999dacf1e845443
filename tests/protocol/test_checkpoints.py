"""A checkpoint is the fold: whoever starts from it goes on as if from entry 0."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.memory_log import Log, tables_of
from tests.unit.random_entries import append, entries
from txnlog.errors import CorruptionError, UnsupportedFeature
from txnlog.fold.apply import apply_entry
from txnlog.fold.state import State
from txnlog.format.codec import decode_entry
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import COLD_KINDS, Manifest, Part

UNIQUE = "0123456789abcdef" * 2


def stored(state: State) -> tuple[Manifest, dict[str, bytes]]:
    """A checkpoint of a state as its bytes: the manifest, and the parts by kind."""
    head = state.head
    part, data = checkpoint_codec.encode_hot(state, UNIQUE)
    parts, blobs = [part], {"hot": data}
    for kind, table in checkpoint_codec.cold_rows(state).items():
        run, blobs[kind] = checkpoint_codec.encode_part(kind, table, UNIQUE, (0, head.version), head.timestamp_ms)
        parts.append(run)
    return Manifest(1, head.version, head.digest, head.timestamp_ms, tuple(parts)), blobs


def restored(manifest: Manifest, blobs: dict[str, bytes]) -> State:
    """The hot state that a checkpoint holds."""
    (part,) = manifest.runs("hot")
    return checkpoint_codec.decode_hot(checkpoint_codec.read_part(blobs["hot"], part))


def hot_tables(state: State) -> dict[str, dict[Any, Any]]:
    """What must be the same wherever the fold began."""
    tables = tables_of(state)
    tables["segments"] = {n: item for n, item in tables["segments"].items() if item.state == "pending"}
    for name in ("outcomes", "removals", "batches"):
        tables[name] = {}
    return tables


@pytest.mark.clause("P-125", "P-128")
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(entries, st.integers(0, 40))
def test_going_on_from_a_checkpoint_leads_to_the_same_state(todo, when):
    log = Log()
    log.topic("orders", 2)
    for steps in todo:
        append(log, steps)
    when = min(when, log.version)
    past = State()
    for version, data in enumerate(log.stored[: when + 1]):
        apply_entry(past, decode_entry(data, version))
    manifest, blobs = stored(past)
    manifest = checkpoint_codec.decode_manifest(checkpoint_codec.encode_manifest(manifest), when)
    state = restored(manifest, blobs)
    assert hot_tables(state) == hot_tables(past) == tables_of(state)
    for version in range(when + 1, log.version + 1):
        apply_entry(state, decode_entry(log.stored[version], version))
    assert hot_tables(state) == hot_tables(log.state)
    everything = cold_records(manifest, blobs)
    for name in ("segments", "removals", "batches"):
        assert everything[name] | tables_of(state)[name] == tables_of(log.state)[name]
    for number, outcome in log.state.outcomes.items():
        found = state.outcomes.get(number) or everything["outcomes"][number]
        digest = outcome.digest if outcome.prepared else ""
        assert found in (outcome, msgspec.structs.replace(outcome, digest=digest, offsets=None))


def cold_records(manifest: Manifest, blobs: dict[str, bytes]) -> dict[str, dict[Any, Any]]:
    """The cold rows of a checkpoint as the state's records."""
    tables = {kind: checkpoint_codec.read_part(blobs[kind], manifest.runs(kind)[0]) for kind in COLD_KINDS}
    numbers = tables["outcomes"].column("number").to_pylist()
    places = [
        row.values() for row in tables["batches"].select(["producer", "topic", "partition", "sequence"]).to_pylist()
    ]
    return {
        "segments": {record.number: record for record in checkpoint_codec.segments_of(tables["segments"])},
        "removals": checkpoint_codec.removals_in(tables["removals"]),
        "outcomes": {number: checkpoint_codec.outcome_in(tables["outcomes"], number) for number in numbers},
        "batches": {
            (producer, topic, partition, sequence): batch
            for producer, topic, partition, sequence in places
            for batch in checkpoint_codec.batches_in(tables["batches"], producer, topic, partition, sequence, sequence)
        },
    }


@pytest.fixture
def log() -> Log:
    log = Log()
    topic = log.topic(partitions=2)
    log.produce(topic, {0: 3, 1: 1})
    return log


@pytest.mark.clause("P-125")
def test_trimming_lets_go_of_cold_rows_only(log):
    whole = tables_of(log.state)
    checkpoint_codec.trim(log.state, log.version)
    assert hot_tables(log.state) == tables_of(log.state)
    assert tables_of(log.state)["ends"] == whole["ends"]


@pytest.mark.clause("P-127")
@pytest.mark.parametrize("kind", ["hot", *COLD_KINDS])
def test_a_part_that_is_not_what_its_manifest_names_is_damage(log, kind):
    manifest, blobs = stored(log.state)
    (part,) = manifest.runs(kind)
    data = blobs[kind]
    checkpoint_codec.read_part(data, part)
    for damaged in (b"", data[:-1], data + b"\0", bytes([data[0] ^ 1]) + data[1:], data[:-9] + b"\1" + data[-8:]):
        with pytest.raises(CorruptionError, match=UNIQUE):
            checkpoint_codec.read_part(damaged, part)


@pytest.mark.clause("P-127")
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_flipped_bit_in_a_part_is_found(log, data):
    manifest, blobs = stored(log.state)
    (part,) = manifest.runs("hot")
    damaged = bytearray(blobs["hot"])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptionError):
        checkpoint_codec.read_part(bytes(damaged), part)


MANIFESTS = {
    "nothing": b"",
    "no JSON": b"manifest",
    "an unknown field": b'{"format":1,"version":7,"digest":"","timestamp_ms":0,"parts":[],"more":1}',
    "no hot part": b'{"format":1,"version":7,"digest":"","timestamp_ms":0,"parts":[]}',
    "another version": b'{"format":1,"version":8,"digest":"","timestamp_ms":0,"parts":[]}',
    "deep": b"[" * 100_000,
    "invalid UTF-8": b'{"format":1,"version":7,"digest":"\xff"}',
}


@pytest.mark.clause("P-127")
@pytest.mark.parametrize("data", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_a_manifest_that_is_not_as_described_is_damage(data):
    with pytest.raises(CorruptionError, match="manifest 7"):
        checkpoint_codec.decode_manifest(data, 7)


def test_a_manifest_with_two_hot_parts_is_damage():
    part = Part("hot", UNIQUE, "", 1, 1, 7, 7, 0)
    with pytest.raises(CorruptionError, match="contradicts"):
        checkpoint_codec.decode_manifest(checkpoint_codec.encode_manifest(Manifest(1, 7, "", 0, (part, part))), 7)


def test_a_manifest_of_a_later_format_asks_for_a_newer_client():
    part = Part("hot", UNIQUE, "", 1, 1, 7, 7, 0)
    with pytest.raises(UnsupportedFeature):
        checkpoint_codec.decode_manifest(checkpoint_codec.encode_manifest(Manifest(2, 7, "", 0, (part,))), 7)


@pytest.mark.clause("P-66", "P-125")
def test_merged_runs_hold_every_row_once_but_outcomes_past_their_retention(log):
    first = checkpoint_codec.cold_rows(log.state)
    split = log.now_ms
    checkpoint_codec.trim(log.state, log.version)
    log.produce(1, 5)
    second = checkpoint_codec.cold_rows(log.state)
    for kind in COLD_KINDS:
        merged = checkpoint_codec.merge_runs(kind, [second[kind], first[kind]], expired_before_ms=0)
        assert sorted(map(str, merged.to_pylist())) == sorted(
            map(str, [*first[kind].to_pylist(), *second[kind].to_pylist()])
        )
    kept = checkpoint_codec.merge_runs("outcomes", [first["outcomes"], second["outcomes"]], expired_before_ms=split + 1)
    assert kept.num_rows == second["outcomes"].num_rows == 1
