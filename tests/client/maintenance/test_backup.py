"""A backup is the namespace at one version, made while others write; restored, it goes on from there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import catalog as txn_catalog
import txnlog
from tests.by_hand import compact
from tests.client.backups import (
    all_shown,
    back_up,
    damaged,
    folder,
    objects,
    of_namespace,
    restore,
    shown,
    with_everything,
)
from tests.client.copies import remove
from tests.client.support import (
    SCHEMA,
    Place,
    begun,
    cursor,
    ids,
    raises,
    read,
    received,
    rows,
    take,
    unique_name,
    wait_for,
)
from tests.client.vacuums import HOUR_MS, WEEK_MS
from tests.faults import Once
from txnlog.api.internals import set_stream
from txnlog.errors import (
    CoordinatorFenced,
    CorruptionError,
    InvalidInputError,
    NamespaceNotFound,
    ProducerFenced,
    RetriableError,
    VersionNotAvailable,
)
from txnlog.format import keys
from txnlog.format.actions import StreamBatch
from txnlog.results import BackedUp, Restored
from txnlog.store import CountingStore, HookStore, PrefixStore, StoreCall, open_store
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


class Writer:
    """A thread that goes on with transactions over two topics, and remembers which version each has."""

    def __init__(self, ns: Any) -> None:
        self.ns = ns
        self.committed: dict[int, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 1_000
        while not self._ended.is_set():
            with self.ns.begin() as txn:
                txn.produce("orders", rows(number), partition=number % 2)
                txn.produce("audit", rows(number))
            self.committed[txn.result.version] = number
            number += 1

    def wait(self) -> None:
        """Until one more transaction is committed."""
        before = len(self.committed)
        wait_for(lambda: len(self.committed) > before)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_a_recovery_drill(place: Place, tmp_path: Path) -> None:
    """Backed up under a writer, destroyed, restored in its place, and used: compared with what was committed."""
    ns, known = with_everything(place)
    backups = str(tmp_path / "backups")
    first = txnlog.backup(f"{place.root}/sales", backups)
    writer = Writer(ns)
    waits = iter(range(5))

    def go_on(_call: StoreCall, key: str) -> None:
        if keys.kind_of(key) == "segment" and next(waits, None) is not None:
            writer.wait()

    writer.wait()
    made = txnlog.backup(f"{place.root}/sales", backups, store=HookStore(place.store(), before=go_on))
    writer.wait()
    writer.end()
    assert made.version >= first.version
    assert max(writer.committed) > made.version, "it was written to meanwhile"
    model = sorted(number for version, number in writer.committed.items() if version <= made.version)
    before = all_shown(place, made.version)
    ns.close()
    remove(place, "sales")
    with raises(NamespaceNotFound):
        place.open(create=False)

    restored = txnlog.restore(backups, f"{place.root}/sales")
    assert (restored.namespace, restored.version) == ("sales", made.version)
    assert all_shown(place, made.version) == before, "every version that could be read shows the same"
    again = place.open()
    assert again.snapshot().version == made.version + 1, "the log ended at the version of the backup"
    assert sorted(read(again, "audit")) == [0, 1, 2, 3, 4, 5, *model]
    assert sorted(read(again)) == [0, 1, 2, 3, *model]
    consumer = again.consumer("orders", "billing")
    left = take(consumer)
    assert len(left) == 4 - known["acknowledged"] + len(model)
    with again.begin() as txn:
        txn.acknowledge(left)
        txn.produce("audit", rows(9_999))
    again.complete(known["token"], commit=True)
    assert received(consumer) == [100]
    assert sorted(read(again, "audit")) == [0, 1, 2, 3, 4, 5, *model, 9_999]
    again.checkpoint()
    again.optimize("audit")
    again.vacuum()
    assert sorted(read(again, "audit")) == [0, 1, 2, 3, 4, 5, *model, 9_999]


def test_nothing_above_the_version_and_nothing_but_the_namespace_is_in_a_backup(memory: Place) -> None:
    ns, _ = with_everything(memory)
    consumer = ns.consumer("audit", "other", type="shared")  # leaves a sign of life
    take(consumer)
    store = memory.store()
    store.put("sales/_proposals/collector.json", b"{}")
    store.put("sales/audit/_delta_log/00000000000000000000.json", b"{}")
    store.put("sales/_delta/segments/_delta_log/00000000000000000000.json", b"{}")
    other = memory.open()
    version = ns.snapshot().version
    backups = folder()

    def write() -> None:
        other.produce("audit", rows(50))
        other.checkpoint()

    made = back_up(memory, HookStore(backups, before=Once(lambda call, _key: call is StoreCall.LIST, write)))
    assert isinstance(made, BackedUp)
    assert made.version == version < other.snapshot().version
    found = [keys.parse_key(info.key) for info in backups.list("") if not info.key.startswith(keys.BACKUP_FOLDER)]
    assert {type(key) for key in found} == {keys.EntryKey, keys.ManifestKey, keys.PartKey, keys.SegmentKey}
    assert sorted(key.version for key in found if isinstance(key, keys.EntryKey)) == list(range(version + 1))
    assert max(key.version for key in found if isinstance(key, keys.ManifestKey)) <= version
    assert [info.key for info in backups.list(keys.BACKUP_FOLDER)] == [keys.backup_key(version), keys.BACKUP_LOG_KEY]
    sizes = {info.key: info.size_bytes for info in backups.list("") if not info.key.startswith(keys.BACKUP_FOLDER)}
    assert made.size_bytes == made.copied_bytes == sum(sizes.values())
    assert made.copied_files == len(sizes)


def test_the_next_backup_copies_only_what_is_new_and_reads_nothing_else(memory: Place) -> None:
    ns, _ = with_everything(memory)
    backups = folder()
    back_up(memory, backups)
    ns.produce("audit", rows(7))
    source = CountingStore(memory.store(), keys.kind_of)
    made = back_up(memory, backups, store=source)
    assert made.copied_files == 2, "a segment and an entry"
    assert source.counts()["get", "segment"] == 1
    again = back_up(memory, backups)
    assert (again.copied_files, again.copied_bytes, again.size_bytes) == (0, 0, made.size_bytes)


@pytest.mark.parametrize("damage", ["missing", "short", "flipped"])
@pytest.mark.parametrize("kind", [keys.SegmentKey, keys.EntryKey, keys.PartKey, keys.ManifestKey])
def test_a_backup_with_verify_replaces_what_is_missing_or_damaged(
    memory: Place, kind: type, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with_everything(memory)
    backups = folder()
    made = back_up(memory, backups)
    whole = objects(backups)
    key = next(key for key in whole if isinstance(keys.parse_key(key), kind))
    damaged(backups, key, damage)
    again = back_up(memory, backups, verify=True)
    assert (again.version, again.copied_files) == (made.version, 1)
    assert objects(backups) == whole
    told = [line for line in caplog.messages if line.startswith(f"{key} is copied again: ")]
    assert bool(told) == (damage != "missing"), "of a missing one the folder does not say that it was there"


def test_every_backup_of_a_folder_can_be_restored(memory: Place) -> None:
    ns, _ = with_everything(memory)
    backups = folder()
    first = back_up(memory, backups)
    ns.produce("audit", rows(7))
    ns.create_topic("later", SCHEMA)
    second = back_up(memory, backups)
    restore(memory, backups, "old", version=first.version)
    restore(memory, backups, "new")
    assert all_shown(memory, first.version, "old") == all_shown(memory, first.version)
    assert all_shown(memory, second.version, "new") == all_shown(memory, second.version)
    assert "later" not in memory.open("old").topics()


def test_an_older_version_can_be_backed_up_with_what_was_pending_then(memory: Place) -> None:
    ns, _ = with_everything(memory)
    txn = begun(ns, 200, topic="audit", flush=True)
    version = ns.snapshot().version
    before = all_shown(memory, version)
    txn.commit()
    ns.produce("audit", rows(201))
    ns.optimize("audit")
    backups = folder()
    assert back_up(memory, backups, version=version).version == version
    restore(memory, backups, "old")
    assert all_shown(memory, version, "old") == before
    again = memory.open("old")
    assert again.transaction(txn.id).state == "OPEN"
    for wrong, error in (
        (ns.snapshot().version + 1, VersionNotAvailable),
        (-1, InvalidInputError),
        ("1", InvalidInputError),
    ):
        with raises(error):
            back_up(memory, backups, version=wrong)


@pytest.mark.parametrize(("source", "backups", "target"), [("memory", "local", "local"), ("local", "memory", "memory")])
def test_a_backup_goes_between_stores(
    request: pytest.FixtureRequest, tmp_path: Path, source: str, backups: str, target: str
) -> None:
    place: Place = request.getfixturevalue(source)
    with_everything(place)
    to = f"memory://{unique_name()}/deep/folder" if backups == "memory" else str(tmp_path / "deep" / "backups")
    root = f"memory://{unique_name()}" if target == "memory" else str(tmp_path / "other")
    made = txnlog.backup(f"{place.root}/sales", to)
    restored = txnlog.restore(to, f"{root}/copy")
    assert isinstance(restored, Restored)
    assert (restored.entries, restored.segments, restored.size_bytes) == (made.entries, made.segments, made.size_bytes)
    assert all_shown(Place(target, root), made.version, "copy") == all_shown(place, made.version)


@pytest.mark.long
def test_a_backup_goes_to_s3_and_back(memory: Place, s3: Place) -> None:
    with_everything(memory)
    options: dict[str, Any] = {"destination_storage_options": s3.storage_options}
    made = txnlog.backup(f"{memory.root}/sales", f"{s3.root}-backups", **options)
    assert txnlog.backup(f"{memory.root}/sales", f"{s3.root}-backups", verify=True, **options).copied_files == 0
    txnlog.restore(f"{s3.root}-backups", f"{s3.root}/sales", storage_options=s3.storage_options, **options)
    assert all_shown(s3, made.version) == all_shown(memory, made.version)
    with s3.open() as ns:
        ns.produce("audit", rows(77))


def test_progress_is_reported_and_grows(memory: Place) -> None:
    with_everything(memory)
    backups = folder()
    seen: list[tuple[str, int, int, int]] = []
    made = back_up(memory, backups, progress=lambda *step: seen.append(step))
    assert [step[:3] for step in seen if step[1] == step[2]] == [
        ("segments", made.segments, made.segments),
        ("checkpoints", 1, 1),
        ("entries", made.entries, made.entries),
    ]
    assert [step[3] for step in seen] == sorted(step[3] for step in seen)
    seen.clear()
    restore(memory, backups, "copy", progress=lambda *step: seen.append(step))
    assert [step[0] for step in seen if step[1] == step[2]] == ["segments", "checkpoints", "entries"]
    assert seen[-1][3] == made.size_bytes


# --- a vacuum at the same time ----------------------------------------------------------------------------------------


def replaced(ns: Any, number: int) -> None:
    """Two rows, whose segments are replaced by a merged one."""
    known = {item.number for item in ns.snapshot().plan("orders").segments}
    ns.produce("orders", rows(number))
    ns.produce("orders", rows(number + 1))
    new = [item.number for item in ns.snapshot().plan("orders").segments if item.number not in known]
    compact(ns, "orders", new, 0)


def vacuumed_during(memory: Place, clock: ManualClock, times: int) -> tuple[Any, Any]:
    """A namespace, and a folder: whoever looks into it finds that a vacuum has just deleted replaced segments."""
    ns = memory.orders(clock=clock)
    replaced(ns, 0)
    left = iter(range(times))

    def churn(call: StoreCall, _key: str) -> None:
        if call is StoreCall.LIST and next(left, None) is not None:
            clock.advance(WEEK_MS + 2 * HOUR_MS)
            assert ns.vacuum().replaced_files == 2
            replaced(ns, 10 * (1 + ns.snapshot().version))

    return ns, HookStore(folder(), before=churn)


@pytest.mark.parametrize("times", [1, 2])
def test_a_version_whose_files_are_vacuumed_meanwhile_gives_way_to_a_newer_one(
    memory: Place, clock: ManualClock, times: int
) -> None:
    ns, backups = vacuumed_during(memory, clock, times)
    first = ns.snapshot().version
    made = back_up(memory, backups)
    assert made.version == ns.snapshot().version > first
    assert back_up(memory, backups.inner).copied_files == 0
    restore(memory, backups.inner, "copy", clock=clock)
    assert all_shown(memory, made.version, "copy") == all_shown(memory, made.version)


def test_vacuums_that_never_let_a_backup_come_to_an_end_are_reported(memory: Place, clock: ManualClock) -> None:
    ns, backups = vacuumed_during(memory, clock, 10)
    with pytest.raises(RetriableError, match=r"vacuums deleted files of 3 versions.*let no vacuum run"):
        back_up(memory, backups)
    made = back_up(memory, backups.inner)
    assert made.version == ns.snapshot().version


def test_a_version_that_was_asked_for_and_is_vacuumed_is_refused(memory: Place, clock: ManualClock) -> None:
    ns, backups = vacuumed_during(memory, clock, 1)
    version = ns.snapshot().version
    with pytest.raises(VersionNotAvailable, match="a vacuum since then has deleted files"):
        back_up(memory, backups, version=version)
    with raises(VersionNotAvailable, match="a vacuum since then has deleted files|cannot be read"):
        back_up(memory, folder(), version=version)
    assert [key for key in objects(backups.inner) if keys.backup_version(key) is not None] == []


def test_a_segment_that_is_missing_in_the_original_is_damage(memory: Place) -> None:
    with_everything(memory)
    key = next(key for key in of_namespace(memory) if isinstance(keys.parse_key(key), keys.SegmentKey))
    damaged(PrefixStore(memory.store(), "sales"), key, "flipped")
    with pytest.raises(CorruptionError, match="its checksum differs from the one in the log; a backup"):
        back_up(memory, folder())
    damaged(PrefixStore(memory.store(), "sales"), key, "missing")
    with pytest.raises(CorruptionError, match=f"the segment {key} is missing"):
        back_up(memory, backups := folder())
    assert [key for key in objects(backups) if keys.backup_version(key) is not None] == []


def test_a_checkpoint_that_is_damaged_in_the_original_is_left_out(memory: Place) -> None:
    ns, _ = with_everything(memory)
    ns.checkpoint()
    key = max(key for key in of_namespace(memory) if isinstance(keys.parse_key(key), keys.ManifestKey))
    damaged(PrefixStore(memory.store(), "sales"), key, "flipped")
    backups = folder()
    made = back_up(memory, backups)
    assert key not in objects(backups)
    restore(memory, backups, "copy")
    assert shown(memory.open("copy"), made.version) == shown(ns, made.version)


# --- what a restored namespace is -------------------------------------------------------------------------------------


def test_subscriptions_transactions_and_producers_are_as_they_were(memory: Place) -> None:
    ns, known = with_everything(memory)
    before = ns.subscription("orders", "billing")
    backups = folder()
    back_up(memory, backups)
    consumer = ns.consumer("orders", "billing")
    consumer.acknowledge(take(consumer))
    ns.complete(known["token"], commit=True)
    ns.producer("loader").produce("audit", rows(6), partition=0, sequence=8)
    restored = restore(memory, backups, "copy")
    copy = memory.open("copy")
    assert copy.subscription("orders", "billing") == before
    assert cursor(copy, partition=1).cursor < cursor(ns, partition=1).cursor, (
        "what was acknowledged since is delivered again"
    )
    (token,) = copy.transactions(state="PREPARED")
    assert str(token.txn_id) == str(ns.transaction(token.txn_id).txn_id), "the TxnID keeps its meaning"
    copy.complete(known["token"], commit=False)
    assert copy.transaction(token.txn_id).state == "ABORTED"
    assert ns.transaction(token.txn_id).state == "COMMITTED", "each decides for itself"
    (left,) = copy.transactions(state="OPEN")
    copy.abort(left.txn_id)
    producer = copy.producer("loader")
    assert producer.epoch > known["epoch"]
    assert producer.last_sequence("audit", 0) == 7
    assert copy.begin().id.coordinator == restored.coordinator != ns.begin().id.coordinator
    assert read(ns) != read(copy)


def test_an_open_transaction_of_the_original_ends_by_its_timeout(memory: Place, clock: ManualClock) -> None:
    with_everything(memory, clock=clock)
    backups = folder()
    back_up(memory, backups)
    restore(memory, backups, "copy", clock=clock)
    copy = memory.open("copy", clock=clock)
    (left,) = copy.transactions(state="OPEN")
    clock.advance(HOUR_MS)
    copy.produce("audit", rows(8))
    assert copy.transaction(left.txn_id).state == "ABORTED"


def test_a_stream_goes_on_behind_its_last_batch_of_the_backup(memory: Place) -> None:
    """A batch that the backup has is skipped; of one behind it nothing is known, though the original has it."""
    ns = memory.orders()
    backups = folder()
    for number in range(3):
        txn = begun(ns, number)
        set_stream(txn, StreamBatch("carriers", "q", number, f"d{number}"))
        txn.commit()
        if number == 1:
            back_up(memory, backups)
    restore(memory, backups, "copy")
    copy = memory.open("copy")
    for number, is_there in ((0, True), (1, True), (2, False)):
        batch = StreamBatch("carriers", "q", number, f"d{number}")
        assert (copy._connection.committed_batch(batch) is not None) == is_there
    # A checkpoint of Spark names the newest entry that its query had seen: one that is ahead of the backup is refused.
    assert ns._connection.has_entry(*ns._connection.newest_entry)
    assert not copy._connection.has_entry(*ns._connection.newest_entry)


def test_delta_tables_are_published_anew(memory: Place) -> None:
    ns, _ = with_everything(memory)
    with txn_catalog.open(memory.root) as cat:
        cat.publish("sales", "audit")
        ns.produce("audit", rows(60))
        cat.publish("sales", "audit")
        backups = folder()
        made = back_up(memory, backups)
        restore(memory, backups, "copy")
        assert not any("_delta" in key for key in of_namespace(memory, "copy"))
        published = cat.publish("copy", "audit")
        assert (published.delta_version, published.created) == (0, True)
        assert published.version <= made.version


def test_a_writer_of_the_original_cannot_write_to_what_is_restored_in_its_place(memory: Place) -> None:
    """Its numbers are withdrawn, as with every adoption."""
    ns, _ = with_everything(memory)
    txn = begun(ns, 300, flush=True)
    producer = ns.producer("loader")
    backups = folder()
    made = back_up(memory, backups)
    remove(memory, "sales")
    restored = restore(memory, backups)
    with pytest.raises(CoordinatorFenced):
        ns.produce("orders", rows(301))
    again = memory.open()
    assert again.begin().id.coordinator == restored.coordinator
    again.producer("loader")
    with pytest.raises((ProducerFenced, CoordinatorFenced)):
        producer.produce("audit", rows(302), partition=0)
    again.abort(txn.id)
    assert shown(again, made.version)["orders"] == shown(again)["orders"]


def test_a_restored_namespace_can_be_backed_up_into_a_folder_of_its_own_and_into_the_one_it_came_from(
    memory: Place,
) -> None:
    with_everything(memory)
    backups = folder()
    first = back_up(memory, backups)
    restore(memory, backups, "copy")
    memory.open("copy").produce("audit", rows(400))
    again = back_up(memory, backups, "copy")
    assert again.version > first.version, "its log continues the one of the backup"
    assert again.copied_files == again.version - first.version + 1, "entries, and one segment"
    restore(memory, backups, "third")
    assert 400 in read(memory.open("third"), "audit")
    with raises(InvalidInputError, match="later or another history"):
        memory.open("sales").produce("audit", rows(401))
        memory.open("sales").produce("audit", rows(402))
        memory.open("sales").produce("audit", rows(403))
        back_up(memory, backups)


def test_the_folder_of_a_backup_is_named_by_a_path_or_a_url(local: Place, tmp_path: Path) -> None:
    ns = local.orders(1)
    txnlog.backup(Path(local.root) / "sales", tmp_path / "backups")
    found = open_store(tmp_path / "backups")
    assert keys.backup_key(ns.snapshot().version) in objects(found)
    with ns, txnlog.open(local.root, namespace="sales", mode="r") as reader:
        assert ids(reader.snapshot().read("orders")) == [1]
