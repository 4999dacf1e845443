"""The probe accepts what decides atomically and refuses what looks first and writes then."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from tests.effort import tries
from tools.servers import S3Server, unlocked_s3_server
from txnlog.errors import Durable, StoreError, UnsafeStore
from txnlog.store import (
    Created,
    Effort,
    ForwardingStore,
    FsspecStore,
    HookStore,
    LocalStore,
    MemoryStore,
    ObjectNotFound,
    Store,
    StoreCall,
    open_store,
)
from txnlog.store.fsspec_store import Backend
from txnlog.store.identity import make_identity
from txnlog.store.probe import FULL, Arena, probe, race_many

FOLDER = "_catalog/probe/"

OVERTAKING = Effort(
    threads=1, rounds=1, least_rounds=1, overtaking_rounds=60, least_overtaking_rounds=60, patience_seconds=3600
)
"""Sixty rounds with the full 16 MiB, however slow the machine: moto fails nine rounds of ten. Of many at once one only:
on a busy machine they would find moto out now and then, and hide whether a small body against a big one does."""


def fsspec_store(protocol: str, root: str, *, pretend: bool) -> FsspecStore:
    """Some file system of fsspec's behind our face, pretending or not that it leaves the decision to a service."""
    return FsspecStore(
        Backend(
            open_filesystem=lambda: fsspec.filesystem(protocol, skip_instance_cache=True),
            root=root,
            url=root,
            identity=make_identity(f"fsspec/{protocol}", "", root, sends_condition=pretend),
        )
    )


class Broken(ForwardingStore):
    """A memory store with one fault in its create."""

    def __init__(self, create: Callable[[Store, str, bytes], Created]) -> None:
        super().__init__(MemoryStore())
        self._create = create

    def create(self, key: str, data: bytes) -> Created:
        return self._create(self.inner, key, data)


# --- refused --------------------------------------------------------------------------------------------------------


def overwrites(store: Store, key: str, data: bytes) -> Created:
    store.put(key, data)
    return Created.CREATED


def overwrites_but_says_unknown(store: Store, key: str, data: bytes) -> Created:
    try:
        store.get(key)
    except ObjectNotFound:
        return store.create(key, data)
    store.put(key, data)
    return Created.UNKNOWN


def says_created_to_the_same_bytes(store: Store, key: str, data: bytes) -> Created:
    if store.create(key, data) is Created.CREATED or store.get(key) == data:
        return Created.CREATED
    return Created.UNKNOWN


def forgets(store: Store, key: str, data: bytes) -> Created:
    return Created.CREATED


@pytest.mark.parametrize("fault", [overwrites, overwrites_but_says_unknown, says_created_to_the_same_bytes, forgets])
def test_a_store_that_fails_in_sequence_is_refused(fault: Callable[[Store, str, bytes], Created]) -> None:
    with pytest.raises(UnsafeStore, match="use a store that honours create-if-absent"):
        probe(Broken(fault), FOLDER)


def test_a_store_that_answers_what_nobody_wrote_is_refused() -> None:
    class Inventive(ForwardingStore):
        def get(self, key: str) -> bytes:
            return b""

    with pytest.raises(UnsafeStore, match="never written"):
        probe(Inventive(MemoryStore()), FOLDER)


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_file_systems_of_fsspec_that_look_first_are_refused_by_name(protocol: str, tmp_path: Path) -> None:
    store = fsspec_store(protocol, str(tmp_path / "root"), pretend=False)
    with pytest.raises(UnsafeStore, match="look first and write then"):
        probe(store, FOLDER)


def test_fsspecs_local_files_lose_the_race_even_if_they_pretend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsspec looks first and writes then; who looks too fast for the others, on a busy machine, gives them time."""
    exists = LocalFileSystem.exists

    def unhurried(*arguments: Any, **options: Any) -> bool:
        found: bool = exists(*arguments, **options)
        time.sleep(0.002)
        return found

    monkeypatch.setattr(LocalFileSystem, "exists", unhurried)
    for attempt in range(5):
        root = tmp_path / str(attempt)
        root.mkdir()
        store = fsspec_store("file", str(root), pretend=True)
        # fsspec makes no folders by itself, and the sequence finds nothing wrong with it.
        arena = Arena(store, "")
        with pytest.raises(UnsafeStore, match="creates of one key as the one that made it"):
            race_many(arena, FULL)


def test_an_s3_server_without_a_lock_passes_in_sequence_and_is_overtaken() -> None:
    with unlocked_s3_server() as server:
        store = open_store(server.url("root"), server.storage_options)
        assert store.create("once", b"1") is Created.CREATED
        assert store.create("once", b"2") is Created.UNKNOWN
        assert store.get("once") == b"1"
        for _ in range(2):
            with pytest.raises(UnsafeStore, match="2 of 2 creates of one key as the one"):
                probe(store, FOLDER, effort=OVERTAKING)
        assert [info.key for info in store.list("")] == ["once"]


def test_a_race_with_two_winners_in_one_round_of_ten_is_found_in_full() -> None:
    losses = itertools.count()

    def sometimes_twice(store: Store, key: str, data: bytes) -> Created:
        answer = store.create(key, data)
        if answer is Created.UNKNOWN and "/" in key and next(losses) % 150 == 149:
            return Created.CREATED
        return answer

    with pytest.raises(UnsafeStore):
        probe(Broken(sometimes_twice), FOLDER, effort=FULL)


# --- accepted, and doubtful -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "local", "fallback"])
def test_our_own_stores_pass_in_full(kind: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if kind == "memory" else LocalStore(tmp_path / "root", use_tmpfile=kind == "local")
    verdict = probe(store, FOLDER, effort=FULL)
    assert verdict.rounds >= FULL.least_rounds
    assert verdict.overtaking_rounds >= FULL.least_overtaking_rounds
    assert list(store.list("")) == []


def test_an_s3_server_with_a_lock_passes_every_time(s3: S3Server) -> None:
    store = open_store(s3.url("probe"), s3.storage_options)
    short = Effort(rounds=16, overtaking_rounds=12, least_overtaking_rounds=10, seconds=0.2)
    for _ in range(tries(10, 1)):
        verdict = probe(store, FOLDER, effort=short)
        assert verdict.rounds >= 8
        assert verdict.overtaking_rounds >= 10
    assert list(store.list("")) == []


def test_lost_answers_are_resolved_by_reading_and_no_reason_to_refuse() -> None:
    calls = itertools.count()

    def loses_answers(store: Store, key: str, data: bytes) -> Created:
        answer = store.create(key, data)
        return Created.UNKNOWN if next(calls) % 3 == 0 else answer

    assert probe(Broken(loses_answers), FOLDER).rounds == 8


def test_requests_that_never_arrive_are_asked_again() -> None:
    calls = itertools.count()

    def drops(store: Store, key: str, data: bytes) -> Created:
        return Created.UNKNOWN if next(calls) % 4 == 0 else store.create(key, data)

    assert probe(Broken(drops), FOLDER).rounds == 8


def test_a_store_that_never_answers_definitely_is_neither_accepted_nor_called_unsafe() -> None:
    with pytest.raises(StoreError, match="no definite answer") as caught:
        probe(Broken(lambda store, key, data: Created.UNKNOWN), FOLDER)
    assert not isinstance(caught.value, UnsafeStore)


def test_a_refusal_of_the_store_comes_through_as_it_is() -> None:
    refusal = StoreError("no permission", durable=Durable.NOTHING)

    def refuse(call: StoreCall, key: str) -> None:
        if call is StoreCall.CREATE:
            raise refusal

    with pytest.raises(StoreError) as caught:
        probe(HookStore(MemoryStore(), before=refuse), FOLDER)
    assert caught.value is refusal


def test_probe_objects_stay_below_the_folder_and_what_may_not_be_deleted_is_no_failure() -> None:
    inner = MemoryStore()
    inner.put("mine", b"1")

    def deny(call: StoreCall, key: str) -> None:
        if call is StoreCall.DELETE:
            raise StoreError("no right to delete")

    probe(HookStore(inner, before=deny), FOLDER)
    left = {info.key for info in inner.list("")} - {"mine"}
    assert left
    assert all(key.startswith(FOLDER) for key in left)


def test_a_winner_whose_bytes_were_replaced_by_a_losers_is_no_winner() -> None:
    arena = Arena(MemoryStore(), FOLDER)
    key = arena.fresh_key()
    arena.store.put(key, b"second")
    answers = [Created.CREATED, Created.UNKNOWN]
    with pytest.raises(UnsafeStore, match="changed after its create"):
        arena.winner(key, [b"first", b"second"], answers)
    assert arena.winner(key, [b"second", b"first"], answers) == 0
    assert arena.winner(key, [b"first", b"second"], [Created.UNKNOWN] * 2) == 1


def test_two_probes_of_one_store_do_not_meet() -> None:
    seen: list[str] = []
    store = HookStore(MemoryStore(), before=lambda call, key: seen.append(key) if call is StoreCall.CREATE else None)
    probe(store, FOLDER)
    first = set(seen)
    seen.clear()
    probe(store, FOLDER)
    assert not first & set(seen)
