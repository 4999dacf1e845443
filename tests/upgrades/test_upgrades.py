"""Clients of older states of this project and of the newest one on one namespace: docs/operations/upgrade.md by trial.

Each push runs one story with one of the older states; ``make test-all`` runs all of them with both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.upgrades.versions import NEW, OLD, RECENT, Failed, NotInThisClone, Process, tree
from txnlog.format.codec import digest_of
from txnlog.format.keys import entry_key

Start = Callable[[str], Process]

_PAIRS = [
    pytest.param(first, second, id=f"{_first}-{_second}")
    for first, second, _first, _second in (
        (OLD, NEW, "old", "new"),
        (NEW, OLD, "new", "old"),
        (RECENT, NEW, "recent", "new"),
        (NEW, RECENT, "new", "recent"),
    )
]
_BEFORE = [pytest.param(OLD, id="old"), pytest.param(RECENT, id="recent")]
_ALL = [*_BEFORE, pytest.param(NEW, id="new")]


def opened(client: Start, version: str, path: str, **options: Any) -> Process:
    """A client that has the namespace open."""
    process = client(version)
    process.call("open", path, **options)
    return process


def next_version(path: str) -> int:
    version = 0
    while (Path(path) / entry_key(version)).exists():
        version += 1
    return version


def forge(path: str, *lines: dict[str, Any]) -> int:
    """The next entry of a log, with lines that no client writes; its version."""
    version = next_version(path)
    before = (Path(path) / entry_key(version - 1)).read_bytes()
    header = json.loads(before.splitlines()[0])
    header.pop("checkpoint", None)
    fields = {"version": version, "previous": digest_of(before), "timestamp_ms": header["timestamp_ms"] + 1}
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [header | fields, *lines])
    (Path(path) / entry_key(version)).write_bytes(text.encode())
    return version


# --- one after the other ----------------------------------------------------------------------------------------------


@pytest.mark.clause("P-250")
@pytest.mark.some(1)
@pytest.mark.parametrize(("first", "second"), _PAIRS)
def test_each_reads_what_the_other_wrote_and_both_go_on_in_turns(
    client: Start, path: str, first: str, second: str
) -> None:
    one = opened(client, first, path, create=True)
    one.call("create", "orders", "paid")
    one.call("subscribe", "orders", "work", "exclusive")
    one.call("produce", "orders", 0, 6, each=3)
    one.call("everything", "orders")
    two = opened(client, second, path)
    expected = [*range(18), 9_001, 9_002, 9_003]
    assert two.call("ids", "orders") == one.call("ids", "orders") == expected
    half, token = one.call("leave_open", "orders")
    assert {state for txn, state in two.call("states").items() if txn in {half, token}} == {"OPEN", "PREPARED"}
    for turn, process in enumerate((two, one, two, one)):
        process.call("produce", "orders", 100 + 10 * turn, 2, each=2)
        expected += [100 + 10 * turn + place for place in range(4)]
        done = process.call("work", "orders", "work", "paid", 5, limit=6)
        assert done
    two.call("complete", token)
    assert two.call("abort", half) == "ABORTED"
    expected = sorted([*expected, 9_004])
    assert one.call("ids", "orders") == two.call("ids", "orders") == expected
    one.call("work", "orders", "work", "paid", 50)
    for process in (one, two):
        assert process.call("ids", "paid") == expected, "each message once"
        assert process.call("lag", "orders", "work") == one.call("lag", "orders", "work")
    assert one.call("rows", "orders") == two.call("rows", "orders")
    judged = opened(client, NEW, path, mode="r")
    assert judged.call("damage") == []
    clients = {writer: name for _, writer, name in judged.call("history")}
    assert len(clients) >= 3
    assert sum(name is not None for name in clients.values()) == 1, "the new one alone says who it is"


# --- at once ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.clause("P-250")
@pytest.mark.parametrize("before", _BEFORE)
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_both_append_at_once_and_nothing_is_lost_or_doubled(client: Start, path: str, before: str, kind: str) -> None:
    first = opened(client, NEW, path, create=True)
    first.call("create", "orders", "paid")
    first.call("subscribe", "orders", "work", kind)
    others = [opened(client, version, path) for version in (before, before, NEW)]
    writers = [first, *others]
    for place, process in enumerate(writers):
        process.begin("produce", "orders", 1_000 * place, 40, each=2)
    for process in writers:
        process.end()
    expected = [1_000 * place + number for place in range(4) for number in range(80)]
    assert all(process.call("ids", "orders") == expected for process in writers)
    if kind == "shared":
        for process in writers:
            process.begin("work", "orders", "work", "paid", 7)
        done = [process.end() for process in writers]
    else:
        done = [process.call("work", "orders", "work", "paid", 7, limit=100) for process in writers]
        done.append(writers[1].call("work", "orders", "work", "paid", 50))
    assert sorted(number for part in done for number in part) == expected
    assert all(process.call("ids", "paid") == expected for process in writers)
    assert opened(client, NEW, path, mode="r").call("damage") == []


# --- checkpoints, maintenance, backups --------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), _PAIRS)
def test_each_starts_from_a_checkpoint_of_the_other_and_keeps_what_it_maintained(
    client: Start, path: str, first: str, second: str
) -> None:
    one = opened(client, first, path, create=True)
    one.call("create", "orders", "paid", partitions=1)
    one.call("subscribe", "orders", "work", "shared")
    one.call("produce", "orders", 0, 12)
    one.call("everything", "orders")
    one.call("work", "orders", "work", "paid", 3, limit=6)
    _, token = one.call("leave_open", "orders")
    version = one.call("checkpoint")
    one.call("produce", "orders", 50, 3)
    rows, states, lag = one.call("rows", "orders"), one.call("states"), one.call("lag", "orders", "work")
    two = opened(client, second, path)
    assert (two.call("base") or 0) >= version, "it did not begin with entry 0"
    assert two.call("rows", "orders") == rows
    assert {txn: state for txn, state in two.call("states").items() if state in {"OPEN", "PREPARED"}} == {
        txn: state for txn, state in states.items() if state in {"OPEN", "PREPARED"}
    }
    assert two.call("lag", "orders", "work") == lag
    two.call("maintain")
    two.call("complete", token)
    two.call("produce", "orders", 60, 3)
    version = two.call("checkpoint")
    two.call("produce", "orders", 70, 1)  # its header names the checkpoint
    again = opened(client, first, path)
    assert (again.call("base") or 0) >= version
    assert again.call("rows", "orders") == two.call("rows", "orders") == one.call("rows", "orders")
    again.call("work", "orders", "work", "paid", 50)
    assert two.call("ids", "paid") == two.call("ids", "orders")
    assert opened(client, NEW, path, mode="r").call("damage") == []


@pytest.mark.long
def test_a_backup_of_an_older_version_is_restored_by_the_new_one(client: Start, path: str, tmp_path: Path) -> None:
    """The oldest state here has no backups."""
    one, two = opened(client, RECENT, path, create=True), client(NEW)
    one.call("create", "orders", "paid")
    one.call("subscribe", "orders", "work", "exclusive")
    one.call("produce", "orders", 0, 8)
    one.call("everything", "orders")
    one.call("checkpoint")
    one.call("work", "orders", "work", "paid", 3, limit=3)
    one.call("backup", path, str(tmp_path / "backup"))
    one.call("produce", "orders", 20, 2)
    two.call("open", path)
    two.call("backup", path, str(tmp_path / "backup"))
    for name in ("mine", "theirs"):
        restorer = client(NEW if name == "mine" else RECENT)
        copy = str(tmp_path / name / "sales")
        restorer.call("restore", str(tmp_path / "backup"), copy)
        older, newer = opened(client, RECENT, copy), opened(client, NEW, copy)
        for restored in (older, newer):
            there = {tuple(row) for row in restored.call("rows", "orders")}
            assert there.issuperset(tuple(row) for row in one.call("rows", "orders"))
            restored.call("produce", "orders", 40 if restored is newer else 50, 1)
        done = newer.call("work", "orders", "work", "paid", 50)
        assert len(done) == len(newer.call("ids", "orders")) - 3
        assert newer.call("ids", "paid") == newer.call("ids", "orders") == older.call("ids", "paid")
        assert newer.call("damage") == []


# --- features ---------------------------------------------------------------------------------------------------------

PROTOCOL: dict[str, Any] = {"action": "protocol", "reader_version": 1, "writer_version": 1}


@pytest.mark.long
@pytest.mark.clause("P-134", "P-135", "P-136")
@pytest.mark.parametrize("version", _ALL)
def test_a_feature_that_a_client_does_not_know_stops_it_before_anything_is_read_wrong(
    client: Start, path: str, version: str
) -> None:
    writer = opened(client, version, path, create=True)
    writer.call("create", "orders")
    writer.call("produce", "orders", 0, 3)
    reader = opened(client, version, path, mode="r")
    forge(path, PROTOCOL | {"writer_features": ["ledger"]})
    count = next_version(path)
    with pytest.raises(Failed) as caught:
        writer.call("produce", "orders", 3, 1)
    assert (caught.value.kind, caught.value.durable) == ("UnsupportedFeature", "Durable.NOTHING")
    assert "ledger" in str(caught.value)
    with pytest.raises(Failed, match=r"^UnsupportedFeature.*ledger"):
        client(version).call("open", path)
    assert next_version(path) == count, "nothing was written"
    assert reader.call("ids", "orders") == opened(client, version, path, mode="r").call("ids", "orders") == [0, 1, 2]
    forge(path, PROTOCOL | {"writer_features": ["ledger"], "reader_features": ["wings"]})
    forge(path, {"action": "fly", "topic": 1})
    for call in (
        lambda: reader.call("ids", "orders"),
        lambda: client(version).call("open", path, mode="r"),
        lambda: client(version).call("open", path),
    ):
        with pytest.raises(Failed, match=r"^UnsupportedFeature") as caught:
            call()
        assert "wings" in str(caught.value)
        assert "newer" in f"{caught.value} {caught.value.advice}"
    with pytest.raises(Failed, match=r"^UnsupportedFeature"):
        writer.call("produce", "orders", 3, 1)
    assert next_version(path) == count + 2


@pytest.mark.long
@pytest.mark.clause("P-15")
@pytest.mark.parametrize("version", _ALL)
def test_an_action_that_a_client_does_not_know_stops_it(client: Start, path: str, version: str) -> None:
    writer = opened(client, version, path, create=True)
    writer.call("create", "orders")
    forge(path, {"action": "fly", "topic": 1})
    for mode in ("r", "rw"):
        with pytest.raises(Failed, match=r"^UnsupportedFeature.*fly"):
            client(version).call("open", path, mode=mode)
    count = next_version(path)
    with pytest.raises(Failed, match=r"fly.*use a newer txnlog") as caught:
        writer.call("produce", "orders", 0, 1)
    assert caught.value.kind in {"UnsupportedFeature", "OutcomeUnknown"}, "in its slot it may be its own entry, damaged"
    assert next_version(path) == count


# --- the history of the project ---------------------------------------------------------------------------------------


def test_a_clone_without_the_history_fails_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotInThisClone, match="git fetch --unshallow"):
        tree("0123456789ab", tmp_path)
    with pytest.raises(NotInThisClone, match="git fetch --unshallow"):
        tree(OLD, tmp_path, repository=tmp_path)
