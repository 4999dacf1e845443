"""Damaged bytes give one documented error that names them, and never a row (PROTOCOL.md, "Security")."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.client.support import FakeRuntime, Place, begun, ids, raises, read, rows
from tests.faults import failing
from txnlog.api.adoption import adopt_namespace
from txnlog.common.format_limits import MAX_ENTRY_ACTIONS, MAX_ENTRY_BYTES
from txnlog.data import segment_file
from txnlog.errors import (
    CorruptionError,
    Durable,
    NamespaceNotFound,
    RetriableError,
    StoreError,
    TxnLogError,
    UnsupportedFeature,
)
from txnlog.format import keys
from txnlog.format.codec import decode_entry, digest_of, encode_entry
from txnlog.format.keys import entry_key
from txnlog.store import HookStore, Store, StoreCall
from txnlog.store.base import ObjectNotFound

# --- entries --------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(memory: Place) -> tuple[Any, Store, int]:
    """A namespace with some entries, the raw store, and a version in the middle."""
    ns = memory.orders()
    for number in range(6):
        ns.produce("orders", rows(number))
    return ns, memory.store(), 4


def key_of(version: int) -> str:
    return f"sales/{entry_key(version)}"


def lines_of(store: Store, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.get(key_of(version)).splitlines()]


def as_entry(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


Harm = Callable[[bytes], bytes]

HARM: dict[str, Harm] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "a byte more": lambda data: data + b"x",
    "a blank line": lambda data: data + b"\n",
    "no json": lambda data: b"PAR1" + data,
    "not utf-8": lambda data: data.replace(b"commit", b"\xff\xfe"),
    "null bytes": lambda data: b"\0" * len(data),
    "a list": lambda data: b"[1,2,3]\n",
    "two headers": lambda data: data.splitlines(keepends=True)[0] + data,
    "no header": lambda data: b"".join(data.splitlines(keepends=True)[1:]),
    "the last line twice": lambda data: data + data.splitlines(keepends=True)[-1],
    "the lines turned around": lambda data: b"".join(
        [data.splitlines(keepends=True)[0], *data.splitlines(keepends=True)[:0:-1]]
    ),
    "an unknown field": lambda data: data.replace(b'"txn":', b'"txm":'),
    "a fraction": lambda data: data.replace(b'"rows":1', b'"rows":1.0'),
    "a text for a number": lambda data: data.replace(b'"rows":1', b'"rows":"1"'),
    "a huge number": lambda data: data.replace(b'"rows":1', b'"rows":' + b"9" * 400),
    "a negative number": lambda data: data.replace(b'"rows":1', b'"rows":-1'),
    "deep nesting": lambda data: data[:-1] + b"\n" + b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "deep objects": lambda data: data + b'{"action":' * 50_000 + b"\n",
    "too many lines": lambda data: data + b'{"action":"forget_app","app_id":"x"}\n' * (MAX_ENTRY_ACTIONS + 1),
    "too many bytes": lambda data: data + b" " * MAX_ENTRY_BYTES + b"\n",
    "another digest": lambda data: data.replace(b'"previous":"', b'"previous":"f'),
    "another version": lambda data: data.replace(b'"version":', b'"version":1'),
    "a path": lambda data: data.replace(b'.parquet"', b'.parquet/../../../etc/passwd"'),
    "another file name": lambda data: data.replace(b'"file":"', b'"file":"../'),
}


@pytest.mark.clause("P-12", "P-13", "P-14", "P-20", "P-21", "P-25", "P-138")
@pytest.mark.parametrize("harm", HARM.values(), ids=HARM.keys())
def test_a_damaged_entry_is_named_and_nothing_is_read(stored: Any, memory: Place, harm: Harm) -> None:
    ns, store, version = stored
    good = store.get(key_of(version))
    bad = harm(good)
    assert bad != good
    store.put(key_of(version), bad)
    with raises(CorruptionError, match=rf"entr(y|ies) {version}|entry {version + 1}") as caught:
        memory.open()
    assert len(str(caught.value)) < 600
    assert read(ns) == [0, 1, 2, 3, 4, 5], "who has folded it already goes on"


@pytest.mark.clause("P-25", "P-138")
@pytest.mark.parametrize("harm", ["truncated", "deep nesting", "another digest", "empty"])
def test_a_damaged_entry_at_the_tail_stops_everybody(stored: Any, memory: Place, harm: str) -> None:
    ns, store, _ = stored
    other = memory.open()
    version = ns.produce("orders", rows(9)).version
    store.put(key_of(version), HARM[harm](store.get(key_of(version))))
    with raises(CorruptionError, match=f"entry {version}"):
        other.snapshot()
    with raises(
        RetriableError, match=f"cannot be read, its own or another's: entry {version}", durable=Durable.NOTHING
    ):
        other.produce("orders", rows(1))  # the entry would have reserved TxnIDs
    for call in (other.snapshot, lambda: other.consumer("orders", "billing"), memory.open):
        with raises(CorruptionError, match=f"entry {version}"):
            call()
    assert other._connection.follower.version == version - 1


@pytest.mark.clause("P-138")
def test_no_flipped_bit_goes_unnoticed_or_gives_another_error(stored: Any, memory: Place) -> None:
    _, store, version = stored
    good = store.get(key_of(version))
    for position in range(0, len(good), 3):
        for bit in (0, 3, 6):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            store.put(key_of(version), bytes(bad))
            with pytest.raises((CorruptionError, UnsupportedFeature), match=r"entry \d"):
                memory.open()
            memory.opened.clear()


@pytest.mark.clause("P-114")
def test_a_missing_entry_is_damage_wherever_the_search_for_the_tail_meets_it(stored: Any, memory: Place) -> None:
    ns, store, _ = stored
    for number in range(6, 30):
        ns.produce("orders", rows(number))
    for version in range(ns.snapshot().version):  # of the newest nobody can know
        data = store.get(key_of(version))
        store.delete(key_of(version))
        with pytest.raises((CorruptionError, NamespaceNotFound)):
            memory.open()
        store.put(key_of(version), data)
        memory.opened.clear()
    assert len(read(memory.open())) > 24


@pytest.mark.clause("P-25", "P-114", "P-134")
@pytest.mark.parametrize("faults", list(itertools.permutations(["missing", "unsupported", "damaged"], 2)))
def test_of_two_faults_of_a_log_the_lower_one_is_reported_wherever_the_search_for_the_tail_comes_by(
    stored: Any, memory: Place, faults: tuple[str, str]
) -> None:
    ns, store, _ = stored
    for number in range(6, 16):
        ns.produce("orders", rows(number))
    newest = ns.snapshot().version
    good = {version: store.get(key_of(version)) for version in range(newest + 1)}
    # Two missing neighbours at the end are no part of the log to anybody, and entry 0 has tests of its own.
    for pair in itertools.combinations(range(1, newest), 2):
        for version, fault in zip(pair, faults, strict=True):
            if fault == "missing":
                store.delete(key_of(version))
            else:
                line = b'{"action":"teleport"}\n' if fault == "unsupported" else b"nonsense\n"
                store.put(key_of(version), good[version] + line)
        with raises(UnsupportedFeature if faults[0] == "unsupported" else CorruptionError, match=rf"entry {pair[0]}\b"):
            memory.open()
        memory.opened.clear()
        for version in pair:
            store.put(key_of(version), good[version])
    assert len(read(memory.open())) == 16


def test_two_entries_swapped_are_damage(stored: Any, memory: Place) -> None:
    _, store, version = stored
    one, two = store.get(key_of(version)), store.get(key_of(version + 1))
    store.put(key_of(version), two)
    store.put(key_of(version + 1), one)
    with raises(CorruptionError, match=f"entry {version} says that it is entry {version + 1}"):
        memory.open()


@pytest.mark.clause("P-15", "P-134")
def test_an_action_of_a_newer_version_stops_the_reader_and_says_so(stored: Any, memory: Place) -> None:
    _, store, version = stored
    lines = lines_of(store, version)
    lines.append({"action": "teleport", "to": "mars"})
    store.put(key_of(version), as_entry(lines))
    with raises(UnsupportedFeature, match=f"entry {version}.*'teleport'") as caught:
        memory.open()
    assert "newer txnlog" in caught.value.advice


@pytest.mark.clause("P-134", "P-135")
@pytest.mark.parametrize(
    ("change", "reading", "words"),
    [
        ({"reader_version": 2, "writer_version": 2}, False, "version 2"),
        ({"reader_features": ["teleport"]}, False, "teleport"),
        ({"writer_version": 2}, True, "version 2"),
        ({"writer_features": ["teleport"]}, True, "teleport"),
    ],
)
def test_a_log_that_asks_for_more_is_refused(memory: Place, change: Any, reading: bool, words: str) -> None:
    memory.open("other")
    store = memory.store()
    lines = (
        lines_of(store, 0) if False else [json.loads(line) for line in store.get(f"other/{entry_key(0)}").splitlines()]
    )
    lines[1].update(change)
    store.put(f"sales/{entry_key(0)}", as_entry(lines))
    with raises(UnsupportedFeature, match=words) as caught:
        memory.open()
    if reading:
        assert 'mode="r"' in caught.value.advice
        assert memory.open(mode="r").topics() == ()
    else:
        with raises(UnsupportedFeature, match=words):
            memory.open(mode="r")


@pytest.mark.clause("P-142")
def test_what_a_hostile_entry_says_is_shown_escaped_and_short(stored: Any, memory: Place) -> None:
    _, store, version = stored
    lines = lines_of(store, version)
    lines.append({"action": "drop_topic\x1b[31m" + "x" * 5_000, "topic": 1})
    store.put(key_of(version), as_entry(lines))
    with pytest.raises(TxnLogError) as caught:
        memory.open()
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.clause("P-141")
def test_stored_bytes_are_never_unpickled(stored: Any, memory: Place) -> None:
    import pickle

    class Bomb:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("code was run",))

    _, store, version = stored
    for data in (pickle.dumps(Bomb()), base64.b64encode(pickle.dumps(Bomb())) + b"\n"):
        store.put(key_of(version), data)
        with raises(CorruptionError):
            memory.open()


def test_a_root_log_that_is_damaged_is_named_when_it_is_needed(memory: Place) -> None:
    memory.orders()
    store = memory.store()
    store.put(f"_catalog/{entry_key(0)}", b"nonsense\n")
    assert memory.open(mode="r").topics() == ("orders",), "a reader of a namespace does not ask it"
    with raises(CorruptionError, match="entry 0"):
        memory.open("other")
    with raises(CorruptionError, match="entry 0"):
        memory.open().produce("orders", rows(1))


@pytest.mark.clause("P-3", "P-114")
def test_a_root_log_that_lost_its_first_entry_is_not_begun_again(memory: Place) -> None:
    """A new first entry would take the place of the lost one, and all that follow would continue another log."""
    memory.orders()
    store = memory.store()
    first = f"_catalog/{entry_key(0)}"
    data = store.get(first)
    store.delete(first)
    for call in (lambda: memory.open("other"), lambda: memory.open().produce("orders", rows(1))):
        with raises(CorruptionError, match="the first entry of the root log is missing"):
            call()
        with pytest.raises(ObjectNotFound):
            store.get(first)
    assert memory.open(mode="r").topics() == ("orders",)
    store.put(first, data)
    assert memory.open().produce("orders", rows(1)).version > 0


# --- segments -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["shared", "owned", "owned in several partitions"])
def segment(request: pytest.FixtureRequest, memory: Place) -> tuple[Any, Store, str]:
    """A namespace with three segments of a kind; the raw store; the key of the one in the middle."""
    ns = memory.orders(partitions=2)
    for number in range(3):
        txn = begun(ns, *range(number * 10, number * 10 + 5), partition=0)
        if request.param != "owned":
            txn.produce("orders", rows(number * 10 + 5), partition=1)
        if request.param != "shared":
            txn.flush()
        txn.commit()
    return ns, memory.store(), f"sales/{ns.snapshot().plan('orders').segments[1].key}"


def no_rows(memory: Place, words: str) -> None:
    """A fresh reader and a fresh consumer get an error that names the segment, and no row at all of it.

    The consumer receives what lies before it.
    """
    ns = memory.open()
    with raises(CorruptionError, match=words):
        ns.snapshot().read("orders")
    stream = ns.snapshot().scan("orders")
    seen: list[int] = []
    with raises(CorruptionError, match=words):
        seen.extend(n for batch in stream for n in batch.column("id").to_pylist())
    assert not {10, 11, 12, 13, 14, 15} & set(seen)
    consumer = ns.consumer("orders", "billing")
    assert set(ids(consumer.receive(timeout_ms=0).table)) <= {0, 1, 2, 3, 4, 5}
    with raises(CorruptionError, match=words):
        consumer.receive(timeout_ms=0)
    with raises(CorruptionError, match=words):
        consumer.receive(timeout_ms=0)


@pytest.mark.clause("P-103")
def test_a_missing_segment_is_damage(segment: Any, memory: Place) -> None:
    _, store, key = segment
    store.delete(key)
    no_rows(memory, "missing")


@pytest.mark.clause("P-106", "P-107")
@pytest.mark.parametrize(
    "harm", ["empty", "half", "one byte short", "one byte more", "another file", "rubbish", "swapped"]
)
def test_a_segment_of_another_size_is_damage(segment: Any, memory: Place, harm: str) -> None:
    ns, store, key = segment
    data = store.get(key)
    other = next(item.key for item in ns.snapshot().plan("orders").segments if f"sales/{item.key}" != key)
    store.put(
        key,
        {
            "empty": b"",
            "half": data[: len(data) // 2],
            "one byte short": data[:-1],
            "one byte more": data + b"\0",
            "another file": b"hello",
            "rubbish": b"\0" * len(data),
            "swapped": store.get(f"sales/{other}"),
        }[harm],
    )
    no_rows(memory, "bytes|damaged")


@pytest.mark.clause("P-106")
def test_one_flipped_bit_anywhere_in_a_segment_is_damage(segment: Any, memory: Place) -> None:
    _, store, key = segment
    data = store.get(key)
    for position in range(0, len(data), 97):
        bad = bytearray(data)
        bad[position] ^= 1 << (position % 8)
        store.put(key, bytes(bad))
        with raises(CorruptionError, match="damaged"):
            memory.open(mode="r").snapshot().read("orders")
    store.put(key, data)
    assert len(read(memory.open())) >= 15


def test_what_does_not_touch_the_damage_is_read(segment: Any, memory: Place) -> None:
    _, store, key = segment
    store.delete(key)
    fresh = memory.open()
    assert ids(fresh.snapshot().read("orders", offsets={0: (0, 5)})) == [0, 1, 2, 3, 4]
    fresh.produce("orders", rows(99), partition=0)
    assert fresh.snapshot().end_offsets("orders")[0] == 16
    assert digest_of(b"") != digest_of(b"x")


@pytest.mark.clause("P-144")
def test_a_shared_segment_whose_rows_name_no_transaction_is_damage(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum is right: a writer with a fault, not a disk."""
    encode = segment_file.encode

    def forgetful(table: Any) -> Any:
        position = table.column_names.index("_txn")
        nothing = pa.nulls(table.num_rows, pa.int64())
        return encode(table.set_column(position, pa.field("_txn", pa.int64()), nothing))

    ns = memory.orders()
    with monkeypatch.context() as patch:
        patch.setattr(segment_file, "encode", forgetful)
        ns.produce("orders", rows(1, 2))
    with raises(CorruptionError, match="'_txn' holds null"):
        memory.open().snapshot().read("orders", include_metadata=True)


# --- a log that lies about itself, or could still be taken back -------------------------------------------------------


def _namespace(place: Place, produced: int) -> Any:
    """A namespace with a topic and some entries."""
    ns = place.open()
    ns.create_topic("orders")
    for number in range(produced):
        ns.produce("orders", [{"value": str(number).encode()}])
    return ns


@pytest.mark.clause("P-23", "P-127")
def test_a_header_that_names_a_checkpoint_of_the_future_is_damage(memory: Place) -> None:
    """The manifest is there (a copy that was not made at one moment): the log would go on behind its own end."""
    ns = _namespace(memory, 6)
    version = ns.checkpoint()
    store = memory.store()
    entries = [store.get(f"sales/{keys.entry_key(number)}") for number in range(version + 1)]
    for number in range(4, version + 1):
        store.delete(f"sales/{keys.entry_key(number)}")
    lines = entries[3].splitlines()
    header = msgspec.structs.replace(decode_entry(entries[3], 3).header, checkpoint=version)
    store.put(f"sales/{keys.entry_key(3)}", encode_entry(header, lines[1:]))
    with pytest.raises(CorruptionError, match="entry 3"):
        memory.open(mode="r")


@pytest.mark.clause("P-125", "P-127")
def test_a_checkpoint_of_another_history_is_not_adopted(memory: Place) -> None:
    """A live folder that was copied, checkpoints last: the copy goes on by itself and comes to the same version."""
    ns = _namespace(memory, 3)
    store = memory.store()
    for info in list(store.list("sales/")):
        store.put(info.key.replace("sales/", "copy/", 1), store.get(info.key))
    for _ in range(3):
        ns.produce("orders", [{"value": b"theirs"}])
    version = ns.checkpoint()
    for info in list(store.list("sales/_log/checkpoints/")):
        store.put(info.key.replace("sales/", "copy/", 1), store.get(info.key))
    adopt_namespace(memory.root, "copy")
    copy = memory.open("copy", create=False)
    while copy._connection.follower.version < version:
        copy.produce("orders", [{"value": b"ours"}])
    theirs = store.get(f"copy/{keys.manifest_key(version)}")
    assert copy.checkpoint() == version + 1, "the slot of this version is taken"
    assert store.get(f"copy/{keys.manifest_key(version)}") == theirs
    copy.produce("orders", [{"value": b"ours"}])
    copy.produce("orders", [{"value": b"ours"}])
    again = memory.open("copy", mode="r")
    assert again.snapshot().read("orders") == copy.snapshot().read("orders")


@pytest.mark.clause("P-121")
def test_nothing_is_reported_of_an_entry_whose_sync_failed(memory: Place) -> None:
    writer = _namespace(memory, 1)
    synced: list[str] = []

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.SYNC and keys.kind_of(key) == "entry":
            synced.append(key)
            if len(synced) == 2:
                raise StoreError("the disk does not answer")

    reader = memory.open(wrap=lambda store: HookStore(store, before=before))
    assert len(synced) == 1
    writer.produce("orders", [{"value": b"new"}])
    with pytest.raises(StoreError):
        reader.snapshot()
    version = reader.snapshot().version
    assert synced[2:] == [f"sales/{keys.entry_key(version)}"], "told without having been made durable"


@pytest.mark.clause("P-121")
def test_an_entry_is_made_durable_though_the_next_slot_could_not_be_read(memory: Place) -> None:
    writer = _namespace(memory, 1)
    synced: list[str] = []
    failing: list[str] = []

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.SYNC and keys.kind_of(key) == "entry":
            synced.append(key)
        if call is StoreCall.GET and key in failing:
            failing.remove(key)
            raise StoreError("read timed out")

    reader = memory.open(wrap=lambda store: HookStore(store, before=before))
    version = writer.produce("orders", [{"value": b"new"}]).version
    failing.append(f"sales/{keys.entry_key(version + 1)}")
    synced.clear()
    with pytest.raises(StoreError):
        reader.snapshot()
    assert reader.snapshot().version == version
    assert synced == [f"sales/{keys.entry_key(version)}"]


@pytest.mark.clause("P-114")
def test_a_missing_entry_is_reported_within_a_second_with_the_way_out(
    stored: Any, memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, store, version = stored
    for number in range(6, 30):
        ns.produce("orders", rows(number))
    slept: list[float] = []
    monkeypatch.setattr(FakeRuntime, "sleep_ms", lambda _, milliseconds: slept.append(milliseconds))
    for missing in (version, ns.snapshot().version - 1):
        data = store.get(key_of(missing))
        store.delete(key_of(missing))
        with raises(CorruptionError, match=f"entry {missing} is missing") as caught:
            memory.open()
        assert "network file system" in caught.value.advice
        assert 0 < sum(slept) < 1_000
        store.put(key_of(missing), data)
        slept.clear()
    assert len(read(memory.open())) > 24
    assert slept == []


def test_an_entry_that_is_seen_late_is_waited_for(stored: Any, memory: Place) -> None:
    """A network file system may believe for a while that a name is not there, and show a newer one."""
    _, _, version = stored
    key = key_of(version)
    looks = [key] * 3
    late = failing(
        lambda: ObjectNotFound(looks.pop()), StoreCall.GET, where=lambda wanted: wanted == key and bool(looks)
    )
    ns = memory.open(mode="r", wrap=late)
    assert ns.snapshot().version > version
    assert looks == []
