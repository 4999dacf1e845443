"""Who did what: what a client says of itself in the log, where it is shown, and that it can say nothing."""

from __future__ import annotations

import getpass
import os
import pickle
import re
import socket
from typing import Any

import pytest

from tests.by_hand import append
from tests.client.support import Place, begun, close_blocks, committed, raises, read, rows
from tests.forks import in_child
from txnlog.client import client_text
from txnlog.common.format_limits import MAX_WRITER_CHARACTERS
from txnlog.errors import InvalidInputError, NameNotAllowed
from txnlog.format.actions import Reserve
from txnlog.testing import ManualClock

PROCESS = re.compile(r"(?:(.+) )?(\S+):(\d+) txnlog/\S+")


def reserved(ns: Any) -> list[str]:
    """The texts of all blocks that were ever reserved."""
    log = ns._connection.follower.log
    entries = [log.entry(version) for version in range(ns.snapshot().version + 1)]
    return [action.writer for entry in entries for action in entry.actions if isinstance(action, Reserve)]


def said(ns: Any, version: int) -> tuple[str | None, int] | None:
    """Name and process id of who wrote an entry, as the history shows it."""
    (entry,) = [entry for entry in ns.history(1_000) if entry.version == version]
    match = None if entry.client is None else PROCESS.fullmatch(entry.client)
    return None if match is None else (match[1], int(match[3]))


def all_bytes(place: Place) -> bytes:
    store = place.store()
    return b"".join(store.get(info.key) for info in store.list("sales/_log/"))


@pytest.mark.clause("P-253")
def test_entries_and_transactions_have_the_client_that_the_log_names(memory: Place) -> None:
    ns = memory.orders(client_name="nightly")
    other = memory.open()
    mine, theirs = committed(ns, 1), committed(other, 2)
    half = begun(other, 3, flush=True)
    pid = os.getpid()
    assert said(ns, mine.result.version) == ("nightly", pid)
    assert said(ns, theirs.result.version) == (None, pid)
    assert said(ns, 0) is None, "the first entry reserves nothing"
    shown = {item.txn_id: item.client for item in memory.open(mode="r").transactions()}
    assert shown[mine.id].startswith("nightly ")
    assert shown[half.id] == ns.transaction(half.id).client == ns.transaction(theirs.id).client != shown[mine.id]
    rows_of_table = ns.table("history").to_pylist()
    assert [row["client"] for row in rows_of_table] == [entry.client for entry in ns.history(100)]
    listed = {row["txn_id"]: row["client"] for row in ns.table("transactions").to_pylist()}
    assert listed == {str(txn): client for txn, client in shown.items()}
    half.abort()


@pytest.mark.clause("P-253")
def test_a_block_costs_the_text_once_and_a_commit_no_byte(memory: Place) -> None:
    ns = memory.orders(client_name="x" * 64)
    versions = [committed(ns, number).result.version for number in range(3)]
    log = ns._connection.follower.log
    assert [log.get(version).count(b"x" * 64) for version in versions] == [0, 0, 0]
    assert all_bytes(memory).count(b"x" * 64) == len(reserved(ns)) == 1
    assert max(map(len, reserved(ns))) <= MAX_WRITER_CHARACTERS


@pytest.mark.clause("P-253")
def test_a_client_that_says_nothing_is_not_in_the_log(memory: Place) -> None:
    ns = memory.orders(client_info=False)
    done = committed(ns, 1)
    assert (said(ns, done.result.version), ns.transaction(done.id).client) == (None, None)
    assert reserved(ns) == [ns._connection.appender.writer]
    pickled = pickle.loads(pickle.dumps(ns))
    memory.opened.append(pickled)
    committed(pickled, 2)
    assert {len(text) for text in reserved(ns)} == {32}
    assert socket.gethostname().encode() + b":" not in all_bytes(memory)


@pytest.mark.clause("P-253")
def test_nothing_secret_is_said(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXNLOG_SECRET_OF_A_TEST", "hunter2")
    monkeypatch.setattr(socket, "gethostname", lambda: "a host\n\x1b[31m of \u00e4nne" + "x" * 90)
    monkeypatch.setattr(client_text, "installed_version", lambda _: "1.0.0+g1234567.d20261129.and.more")
    ns = memory.orders(client_name="y" * 64)
    committed(ns, 1)
    (text,) = reserved(ns)
    _, name, process, library = text.split(" ")
    assert (name, process) == ("y" * 64, f"a_host___31m_of__nne{'x' * 28}:{os.getpid()}")
    assert library == "txnlog/1.0.0+g1234567.d2026"
    assert len(text) <= MAX_WRITER_CHARACTERS
    stored = all_bytes(memory)
    assert b"hunter2" not in stored
    assert not re.search(rb"\b" + re.escape(getpass.getuser().encode()) + rb"\b", text.encode())


@pytest.mark.clause("P-253", "P-46")
def test_forked_and_unpickled_a_handle_says_its_own_process_and_keeps_its_name(local: Place) -> None:
    ns = local.orders(client_name="nightly")
    committed(ns, 1)

    def child() -> tuple[int, int]:
        return os.getpid(), committed(ns, 2).result.version

    pid, version = in_child(child)
    assert said(ns, version) == ("nightly", pid) != ("nightly", os.getpid())
    other = pickle.loads(pickle.dumps(ns))
    local.opened.append(other)
    assert said(ns, committed(other, 3).result.version) == ("nightly", os.getpid())
    assert read(ns) == [1, 2, 3]


@pytest.mark.clause("P-253")
def test_of_a_closed_block_only_the_entry_that_reserved_it_says_the_client(memory: Place) -> None:
    ns, rival = memory.orders(client_name="nightly"), memory.open(client_name="rival")
    done = committed(ns, 1)
    close_blocks(rival, ns._connection.appender.writer)
    versions = [entry.version for entry in rival.history(100) if (entry.client or "").startswith("nightly ")]
    assert done.result.version in versions, "the entry that reserved the block was read"
    newest = ns.snapshot().version - done.result.version + 1
    assert said_of_newest(rival, newest, done.result.version) is None
    assert rival.transaction(done.id).client is None


def said_of_newest(ns: Any, limit: int, version: int) -> str | None:
    (entry,) = [entry for entry in ns.history(limit) if entry.version == version]
    client: str | None = entry.client
    return client


@pytest.mark.clause("P-253")
def test_a_vacuum_knows_its_own_block_by_the_digits(memory: Place, clock: ManualClock) -> None:
    """The entry of a vacuum shows that its own writer is alive, so what is foreseen leaves its block open."""
    ns = memory.orders(clock=clock, client_name="nightly")
    committed(ns, 1)
    clock.advance(48 * 3_600_000)
    foreseen = ns.vacuum(dry_run=True)
    done = ns.vacuum()
    assert foreseen.closed_blocks == done.closed_blocks == 0
    assert [block.writer for block in ns._connection.follower.state.blocks.values()] == [ns._connection.appender.writer]


@pytest.mark.clause("P-253")
def test_a_writer_whose_numbers_another_one_reserved_says_its_client_with_its_first_entry(memory: Place) -> None:
    ns, rival = memory.orders(client_name="nightly"), memory.open()
    other = memory.open(client_name="other")
    writer = other._connection.appender.writer
    committed(rival, 0)
    append(rival, Reserve(writer, rival._connection.next_number, 1024))  # as who collects does
    other._connection.follower.refresh()
    numbers = other._connection.appender.numbers
    numbers.add(other._connection.follower.state.blocks[other._connection.next_number - 1024])
    assert not numbers.wants()
    done = committed(other, 1)
    assert said(ns, done.result.version) == ("other", os.getpid())
    assert [text.partition(" ")[0] for text in reserved(ns)].count(writer) == 2, "and only with the first one"
    committed(other, 2)
    assert [text.partition(" ")[0] for text in reserved(ns)].count(writer) == 2


@pytest.mark.clause("P-253", "P-46")
def test_the_numbers_of_a_job_say_the_client_as_well(memory: Place) -> None:
    ns = memory.orders(client_name="nightly")
    block = ns._connection.reserve_block(256)
    (found,) = [item for item in ns._connection.follower.state.blocks.values() if item.first == block.start]
    assert found.writer == ns._connection.appender.writer
    assert found.writer_text.startswith(f"{found.writer} nightly ")


def test_after_a_checkpoint_the_clients_are_still_known(memory: Place) -> None:
    ns = memory.orders(client_name="nightly")
    done = committed(ns, 1)
    ns.checkpoint()
    reader = memory.open(mode="r")
    assert said_of_newest(reader, 1, done.result.version).startswith("nightly ")
    committed(ns, 2)
    assert read(memory.open()) == [1, 2]


@pytest.mark.parametrize(
    ("options", "kind", "said_by"),
    [
        ({"client_name": ""}, NameNotAllowed, "name of the client"),
        ({"client_name": 5}, NameNotAllowed, "name of the client"),
        ({"client_name": "two\nlines"}, NameNotAllowed, "name of the client"),
        ({"client_name": "x" * 65}, InvalidInputError, "65 characters"),
        ({"client_info": "no"}, InvalidInputError, "client_info"),
        ({"client_name": "nightly", "client_info": False}, InvalidInputError, "client_name needs client_info=True"),
    ],
)
def test_a_client_name_is_a_short_label_that_is_said(memory: Place, options: Any, kind: Any, said_by: str) -> None:
    memory.orders()
    with raises(kind, said_by):
        memory.open(**options)


def test_a_client_that_only_reads_says_nothing(memory: Place) -> None:
    ns = memory.orders(1)
    before = all_bytes(memory)
    reader = memory.open(mode="r", client_name="dashboard")
    assert read(reader) == [1]
    assert all_bytes(memory) == before
    ns.produce("orders", rows(2))
