"""docs/operations/retention.md: what is kept and for how long, each row by a moved clock and a listing of the store."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow as pa
import pytest

import catalog as txn_catalog
from catalog import Catalog
from catalog.publication import table_publisher
from tests.by_hand import compact
from tests.client.support import SCHEMA, Place, raises, read, rows, staged
from txnlog.errors import StoreError, VersionNotAvailable
from txnlog.fold.number_blocks import TOUCH_MS
from txnlog.format import keys
from txnlog.store import ForwardingStore, Store
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
PAGE = Path(__file__).parents[2] / "docs" / "operations" / "retention.md"


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at the first moment of 2026."""
    return ManualClock(START_MS)


@pytest.fixture
def lake(place: Place, clock: ManualClock) -> Any:
    """A namespace with the topic ``orders`` of one partition, and a clock to move."""
    handle = place.open(clock=clock)
    handle.create_topic("orders", SCHEMA)
    return handle


@pytest.fixture
def tables(place: Place, clock: ManualClock, lake: Any) -> Iterator[Catalog]:
    """The catalog, by the same clock."""
    with txn_catalog.open(place.root, clock=clock) as handle:
        yield handle


def stored(ns: Any, prefix: str = "") -> set[str]:
    """Keys that lie on the store."""
    return {info.key for info in ns._connection.store.list(prefix)}


def gone_after(ns: Any, clock: ManualClock, kept_ms: int, files: set[str], **options: Any) -> None:
    """Check that a vacuum keeps files for a time, to the millisecond, and then deletes them and nothing else."""
    clock.advance(kept_ms - 1)
    assert ns.vacuum(**options).deleted_files == 0
    before = stored(ns)
    assert files <= before
    clock.advance(1)
    dry = ns.vacuum(**options, dry_run=True)
    assert files <= stored(ns), "a dry run deletes nothing"
    found = ns.vacuum(**options)
    assert found.deleted_files == dry.deleted_files == len(files)
    assert before - stored(ns) == files
    assert ns.vacuum(**options).deleted_files == 0


def stays(ns: Any, clock: ManualClock, files: set[str]) -> None:
    """Check that files outlast years."""
    assert files
    for _ in range(3):
        clock.advance(400 * DAY_MS)
        ns.vacuum()
        assert files <= stored(ns)


def merged(ns: Any) -> set[str]:
    """Files of segments that were merged just now."""
    for number in (1, 2):
        ns.produce("orders", rows(number))
    files = stored(ns, "orders/")
    compact(ns, "orders", [item.number for item in ns.snapshot().plan("orders").segments], 0)
    return files


def committed_rows_of_a_topic(ns: Any, clock: ManualClock, **_: Any) -> None:
    ns.produce("orders", rows(1))
    stays(ns, clock, stored(ns, "orders/"))
    assert read(ns) == [1]


def merged_segments(ns: Any, clock: ManualClock, **_: Any) -> None:
    gone_after(ns, clock, WEEK_MS, merged(ns))
    assert read(ns) == [1, 2]


def segments_of_aborted_transactions(ns: Any, clock: ManualClock, **_: Any) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.flush()
    clock.advance(1_000)
    txn.abort()
    gone_after(ns, clock, WEEK_MS, stored(ns, "orders/"))


def segments_and_delta_table_of_a_dropped_topic(ns: Any, clock: ManualClock, tables: Catalog, **_: Any) -> None:
    ns.create_topic("audit", SCHEMA)
    ns.produce("audit", rows(7))
    for number in range(3):
        ns.produce("orders", rows(number))
        tables.publish("sales")
    clock.advance(WEEK_MS)
    ns.drop_topic("orders")
    tables.publish("sales")
    files = stored(ns, "orders/")
    assert len([key for key in files if "_delta_log" in key]) == 4
    gone_after(ns, clock, WEEK_MS, files)
    assert read(ns, "audit") == [7]


def any_of_these_three_with_a_short_retain_ms(ns: Any, clock: ManualClock, tables: Catalog, **_: Any) -> None:
    files = merged(ns)
    txn = ns.begin()
    txn.produce("orders", rows(3))
    txn.flush()
    files |= stored(ns, "orders/") - files - {item.key for item in ns.snapshot().plan("orders").segments}
    txn.abort()
    ns.create_topic("audit", SCHEMA)
    ns.produce("audit", rows(7))
    tables.publish("sales")
    ns.drop_topic("audit")
    gone_after(ns, clock, DAY_MS, files | stored(ns, "audit/"), retain_ms=2 * HOUR_MS)


def files_that_no_entry_names_of_writers_that_died(ns: Any, clock: ManualClock, place: Place, **_: Any) -> None:
    with place.open(clock=clock) as dying:
        txn = dying.begin()
        txn.produce("orders", rows(1))
        staged(txn)
    gone_after(ns, clock, DAY_MS + TOUCH_MS, stored(ns, "orders/"))


def segments_of_open_transactions(ns: Any, clock: ManualClock, **_: Any) -> None:
    txn = ns.begin(timeout_ms=10 * 60_000)
    txn.produce("orders", rows(1))
    txn.flush()
    files = stored(ns, "orders/")
    clock.advance(WEEK_MS)
    assert ns.vacuum().deleted_files == 0
    ns.create_topic("audit", SCHEMA)  # whoever appends ends it
    assert ns.transaction(txn.id).reason == "timeout"
    gone_after(ns, clock, WEEK_MS, files)


def segments_of_prepared_transactions(ns: Any, clock: ManualClock, **_: Any) -> None:
    txn = ns.begin()
    txn.produce("orders", rows(1))
    token = txn.prepare()
    stays(ns, clock, stored(ns, "orders/"))
    ns.complete(token, commit=True)
    assert read(ns) == [1]


def delta_log_of_a_topic_that_is_there(ns: Any, clock: ManualClock, tables: Catalog, **_: Any) -> None:
    ns.produce("orders", rows(1))
    tables.publish("sales")
    ns.alter_topic("orders", delta="off")
    stays(ns, clock, stored(ns, "orders/_delta_log/"))


def replaced_files_of_the_delta_table_delta_segments(
    ns: Any, clock: ManualClock, tables: Catalog, place: Place
) -> None:
    folder = Path(place.root) / "sales" / keys.SEGMENTS_TABLE
    known: set[Path] = set()

    def file_of(number: int) -> Path:
        """The file that replaces the others, of the time of the clock."""
        ns.produce("orders", rows(number))
        tables.publish("sales")
        (new,) = set(folder.glob("*.parquet")) - known
        known.add(new)
        have_time(new)
        return new

    def have_time(file: Path) -> None:
        os.utime(file, ns=(0, clock.now_ms() * 1_000_000))

    old = file_of(1)
    clock.advance(DAY_MS)
    file_of(2)
    clock.advance(WEEK_MS)
    newest = file_of(3)
    tables.repair("sales")
    assert old.exists()
    clock.advance(1)
    have_time(newest)
    tables.repair("sales")
    assert not old.exists()


def entries_of_the_log_and_checkpoints(ns: Any, clock: ManualClock, **_: Any) -> None:
    for number in range(3):
        ns.produce("orders", rows(number))
        ns.checkpoint()
    stays(ns, clock, stored(ns, "_log/"))


def heartbeats_of_consumers(ns: Any, clock: ManualClock, **_: Any) -> None:
    ns.create_subscription("orders", "billing", type="failover")
    ns.consumer("orders", "billing")
    (hint,) = stored(ns, keys.HEARTBEAT_FOLDER)
    stays(ns, clock, {hint})
    ns.drop_subscription("orders", "billing")
    ns.vacuum()
    assert not stored(ns, keys.HEARTBEAT_FOLDER)


def mailboxes_of_writers(ns: Any, clock: ManualClock, **_: Any) -> None:
    ns._connection.store.put(keys.mailbox_key("1" * 32), b"rows")
    clock.advance(400 * DAY_MS)
    ns.produce("orders", rows(1))
    assert stored(ns, keys.PROPOSAL_FOLDER)
    ns.vacuum()
    assert not stored(ns, keys.PROPOSAL_FOLDER)


def temporary_files_on_local_files_txnlog_tmp_of_processes_that_were_killed_amid_a_write(
    ns: Any, clock: ManualClock, place: Place, **_: Any
) -> None:
    if place.kind != "local":
        return
    ns.produce("orders", rows(1))
    left = Path(place.root) / "sales" / "orders" / f".txnlog-tmp-{'0' * 32}"
    left.write_bytes(b"rows")
    written_ms = clock.now_ms() - DAY_MS + HOUR_MS
    os.utime(left, (written_ms / 1_000, written_ms / 1_000))
    ns.vacuum()
    assert left.exists(), "its process may be at work"
    clock.advance(2 * HOUR_MS)
    ns.vacuum()
    assert not left.exists()


def folder_of_a_dropped_namespace(ns: Any, clock: ManualClock, tables: Catalog, place: Place) -> None:
    ns.produce("orders", rows(1))
    ns.close()
    with place.open("other", clock=clock) as other:
        tables.drop_namespace("sales")
        before = {info.key for info in place.store().list("sales/")}
        clock.advance(400 * DAY_MS)
        other.vacuum()
        assert before == {info.key for info in place.store().list("sales/")}


ROWS: Final[dict[str, Callable[..., None]]] = {
    check.__name__: check
    for check in (
        committed_rows_of_a_topic,
        merged_segments,
        segments_of_aborted_transactions,
        segments_and_delta_table_of_a_dropped_topic,
        any_of_these_three_with_a_short_retain_ms,
        files_that_no_entry_names_of_writers_that_died,
        segments_of_open_transactions,
        segments_of_prepared_transactions,
        delta_log_of_a_topic_that_is_there,
        replaced_files_of_the_delta_table_delta_segments,
        entries_of_the_log_and_checkpoints,
        heartbeats_of_consumers,
        mailboxes_of_writers,
        temporary_files_on_local_files_txnlog_tmp_of_processes_that_were_killed_amid_a_write,
        folder_of_a_dropped_namespace,
    )
}


@pytest.mark.clause("P-130", "P-131", "P-133", "P-147", "P-149")
@pytest.mark.parametrize("row", ROWS)
def test_what_the_page_says_is_kept_so_long(
    row: str, lake: Any, place: Place, clock: ManualClock, tables: Catalog
) -> None:
    ROWS[row](ns=lake, clock=clock, tables=tables, place=place)


def test_the_page_has_these_rows() -> None:
    table, *_ = re.findall(r"(?:^\|.*\|\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert [re.sub(r"[^a-z]+", "_", text.strip().lower()).strip("_") for text in first] == list(ROWS)


# --- what stays in the log --------------------------------------------------------------------------------------------


def test_the_log_keeps_the_extremes_of_simple_columns_for_ever_and_of_no_others(
    place: Place, clock: ManualClock, lake: Any
) -> None:
    person = pa.struct([("mail", pa.string())])
    lake.create_topic("people", pa.schema([("mail", pa.string()), ("sealed", pa.binary()), ("person", person)]))
    row = {"mail": "ann@example.org", "sealed": b"bob@example.org", "person": {"mail": "cyd@example.org"}}
    lake.produce("people", [row])
    lake.drop_topic("people")
    clock.advance(WEEK_MS)
    assert lake.vacuum().deleted_files == 1
    assert not stored(lake, "people/")
    entries = [lake._connection.store.get(key) for key in stored(lake, "_log/") if key.endswith(".json")]
    lines = [json.loads(line) for entry in entries for line in entry.splitlines()]
    (found,) = (line["statistics"] for line in lines if line.get("action") == "segment")
    assert found == {"mail": ["ann@example.org", "ann@example.org", 0], "sealed": [None, None, 0]}


# --- dropped topics ---------------------------------------------------------------------------------------------------


VERSIONS: Final = 6


@pytest.fixture
def url(lake: Any, clock: ManualClock, tables: Catalog, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the Delta table of a topic that was dropped a week ago, with a checkpoint among its versions."""
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 3)
    address = tables.publish("sales", "orders").url
    for number in range(VERSIONS):
        lake.produce("orders", rows(number))
        tables.publish("sales", "orders")
    lake.drop_topic("orders")
    tables.publish("sales")
    names = {key.rpartition("/")[2] for key in stored(lake, "orders/_delta_log/")}
    checkpoints = [int(name[:20]) for name in names if "checkpoint.parquet" in name]
    assert "_last_checkpoint" in names
    assert 1 < max(checkpoints) < VERSIONS, "it shows fewer rows than the newest version"
    clock.advance(WEEK_MS)
    return address


class Watching(ForwardingStore):
    """Calls something before each deletion, one after another."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.before: Callable[[str], object] = lambda _key: None

    def delete(self, key: str) -> None:
        with self._lock:
            self.before(key)
            super().delete(key)


def watched(place: Place, clock: ManualClock) -> tuple[Any, Watching]:
    """Another handle, whose deletions are seen."""
    return place.wrapped(Watching, clock=clock)


@pytest.mark.clause("P-132", "P-150")
def test_of_two_dropped_topics_the_later_one_stays_while_the_earlier_one_goes(lake: Any, clock: ManualClock) -> None:
    lake.create_topic("audit", SCHEMA)
    lake.produce("audit", rows(1))
    lake.drop_topic("audit")
    clock.advance(WEEK_MS // 2)
    version = lake.produce("orders", rows(2)).version
    lake.drop_topic("orders")
    clock.advance(WEEK_MS // 2)
    assert lake.vacuum().dropped_files == 1
    assert not stored(lake, "audit/")
    assert lake.snapshot(version=version).read("orders").column("id").to_pylist() == [2]


@pytest.mark.clause("P-130", "P-132", "P-150")
def test_a_dropped_topic_goes_with_its_published_table(
    lake: Any, place: Place, clock: ManualClock, tables: Catalog
) -> None:
    version = lake.produce("orders", rows(1)).version
    url = tables.publish("sales", "orders").url
    lake.drop_topic("orders")
    dropped = lake.snapshot().version
    tables.publish("sales")
    lake.create_topic("orders", SCHEMA)
    lake.produce("orders", rows(2))
    clock.advance(WEEK_MS - 1)
    assert lake.vacuum().dropped_files == 0
    snapshot = lake.snapshot(version=version)
    assert snapshot.read("orders").num_rows == 1
    assert deltalake.DeltaTable(url).to_pyarrow_table().num_rows == 1
    clock.advance(1)
    ns, store = watched(place, clock)
    order: list[str] = []

    def note(key: str) -> None:
        order.append("log" if "_delta_log" in key else "segment")
        state = place.open(mode="r")._connection.follower.state
        assert state.head.oldest_readable == dropped, "it is announced before anything is deleted"

    store.before = note
    found = ns.vacuum()
    assert (found.dropped_files, found.oldest_readable, order) == (3, dropped, ["log", "log", "segment"])
    assert stored(ns, "orders/") == set()
    lake.snapshot()
    with raises(VersionNotAvailable):
        snapshot.read("orders")
    assert read(ns) == [2]
    tables.publish("sales")
    tables.repair("sales")
    assert ns.maintain().failures == {}
    assert stored(ns, "orders/") == set(), "nobody publishes it again"


def test_whoever_opens_the_delta_table_of_a_dropped_topic_meanwhile_finds_all_of_it_or_none(
    url: str, place: Place, clock: ManualClock
) -> None:
    ns, store = watched(place, clock)
    answers: list[int | None] = []

    def look(_key: str) -> None:
        try:
            answers.append(deltalake.DeltaTable(url).to_pyarrow_table().num_rows)
        except Exception:  # noqa: BLE001 - whatever the engine says of what is no table
            answers.append(None)

    store.before = look
    ns.vacuum()
    assert answers[0] == VERSIONS
    assert answers == sorted(answers, key=lambda found: found is None), "no table comes back"
    assert set(answers) == {VERSIONS, None}


@pytest.mark.parametrize("point", [0, 1, 2, 3, 5, 10, 15])
def test_a_vacuum_of_a_dropped_topic_that_stops_anywhere_is_finished_by_the_next(
    url: str, lake: Any, place: Place, clock: ManualClock, tables: Catalog, point: int
) -> None:
    ns, store = watched(place, clock)
    left = iter(range(point))

    def stop(_key: str) -> None:
        if next(left, None) is None:
            raise StoreError("gone")

    store.before = stop
    with pytest.raises(StoreError):
        ns.vacuum()
    before = stored(lake, "orders/")
    tables.publish("sales")
    assert stored(lake, "orders/") == before, "publishing repairs nothing of it"
    try:
        assert deltalake.DeltaTable(url).to_pyarrow_table().num_rows == VERSIONS
    except (deltalake.exceptions.DeltaError, FileNotFoundError):
        assert point
    store.before = lambda _key: None
    ns.vacuum()
    assert stored(ns, "orders/") == set()


@pytest.mark.parametrize("whose", ["a table of somebody else", "a version of somebody else"])
def test_a_table_that_somebody_else_wrote_stays_in_the_folder_of_a_dropped_topic(
    lake: Any, place: Place, clock: ManualClock, tables: Catalog, whose: str
) -> None:
    lake.produce("orders", rows(1))
    if whose == "a version of somebody else":
        tables.publish("sales")
    lake._connection.store.put(keys.delta_commit_key("orders", 1), b'{"commitInfo":{"operation":"WRITE"}}\n')
    lake._connection.store.put("orders/part-00000.parquet", b"theirs")
    lake._connection.store.put("orders/_delta_log/00000000000000000001.crc", b"theirs")
    lake.drop_topic("orders")
    foreign = {key for key in stored(lake, "orders/") if keys.SEGMENT_COLUMN not in key}
    clock.advance(WEEK_MS)
    assert lake.vacuum().dropped_files == 1
    assert stored(lake, "orders/") == foreign


def test_a_damaged_version_keeps_the_table_of_a_dropped_topic_from_nothing(
    lake: Any, clock: ManualClock, tables: Catalog
) -> None:
    for number in range(3):
        lake.produce("orders", rows(number))
        tables.publish("sales")
    lake.drop_topic("orders")
    for version in (0, 2):
        lake._connection.store.put(keys.delta_commit_key("orders", version), b"{")
    clock.advance(WEEK_MS)
    lake.vacuum()
    assert stored(lake, "orders/") == set()


def test_an_empty_dropped_topic_leaves_no_table(lake: Any, clock: ManualClock, tables: Catalog) -> None:
    tables.publish("sales")
    lake.drop_topic("orders")
    clock.advance(WEEK_MS)
    assert lake.vacuum().dropped_files == 1
    assert stored(lake, "orders/") == set()
