"""What every store promises (txnlog/store/base.py), asked of each of them in the same words."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.stores.subjects import RACERS, Subject, run_together
from txnlog.common.format_limits import MAX_ENTRY_BYTES
from txnlog.errors import Durable, StoreError
from txnlog.store import Created, ObjectNotFound, Store, identity_of
from txnlog.store.probe import probe

HOSTILE_KEYS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    ".",
    "../x",
    "a/../../x",
    "a/..",
    "a/./b",
    "a//b",
    "a/",
    "/a",
    "a\\..\\b",
    "a\0b",
    "a\nb",
    "a b",
    "a?versionId=1",
    "a#b",
    "a%2e%2e/b",
    "a*",
    "[a]",
    "{a,b}",
    "~/x/..",
    "s3://other/x",
    "file:///etc/passwd",
    "a:b",
    "caf\u00e9",
    "a\u2215b",
    "\udc80",
    ".txnlog-tmp-1",
    "a/.txnlog-tmp-1",
    "a/" + "b" * 256,
    "/".join(["a" * 100] * 8),
]


def keys(store: Store, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


# --- create ---------------------------------------------------------------------------------------------------------


def test_a_created_object_holds_exactly_the_bytes_given(store: Store) -> None:
    data = bytes(range(256)) * 5 + b"\r\n\0"
    assert store.create("_log/0000000000/00000000000000000001.json", data) is Created.CREATED
    assert store.get("_log/0000000000/00000000000000000001.json") == data


def test_a_second_create_is_unknown_and_changes_nothing(store: Store) -> None:
    store.create("a/1", b"first")
    assert store.create("a/1", b"second") is Created.UNKNOWN
    assert store.create("a/1", b"first") is Created.UNKNOWN, "the same bytes do not make it this caller's"
    assert store.create("a/1", b"") is Created.UNKNOWN
    assert store.get("a/1") == b"first"


def test_of_sixteen_racing_threads_exactly_one_sees_created_and_its_bytes_stay(subject: Subject) -> None:
    store = subject.store
    for number in range(subject.rounds):
        bodies = [b"%d" % racer * 500 for racer in range(RACERS)]
        answers = run_together([partial(store.create, f"race/{number}", body) for body in bodies])
        assert answers.count(Created.CREATED) == 1
        assert store.get(f"race/{number}") == bodies[answers.index(Created.CREATED)]


def test_of_racing_handles_on_one_root_exactly_one_sees_created(subject: Subject) -> None:
    handles = [subject.open() for _ in range(4)]
    for number in range(max(subject.rounds // 4, 5)):
        answers = run_together([partial(handle.create, f"r/{number}", b"x") for handle in handles])
        assert answers.count(Created.CREATED) == 1


def test_a_reader_racing_a_create_sees_nothing_or_the_whole_object(subject: Subject) -> None:
    store, reader = subject.store, subject.store
    data = random.Random(1).randbytes(300_000)
    for number in range(max(subject.rounds // 5, 5)):
        done = threading.Event()
        seen: list[bytes] = []

        def read(key: str = f"half/{number}", done: threading.Event = done, seen: list[bytes] = seen) -> None:
            while True:
                last = done.is_set()
                try:
                    seen.append(reader.get(key))
                except ObjectNotFound:
                    pass
                else:
                    assert reader.info(key).size_bytes == len(data)
                if last:
                    return

        thread = threading.Thread(target=read)
        thread.start()
        store.create(f"half/{number}", data)
        done.set()
        thread.join()
        assert seen
        assert all(found == data for found in seen)


def test_an_object_is_seen_by_every_handle_right_after_its_create(subject: Subject) -> None:
    writer, reader = subject.open(), subject.open()
    assert keys(reader) == []
    with pytest.raises(ObjectNotFound):
        reader.get("d/1")
    for number in range(5):
        writer.create(f"d/{number}", b"%d" % number)
        assert reader.get(f"d/{number}") == b"%d" % number
        assert reader.info(f"d/{number}").size_bytes == 1
        assert keys(reader, "d/") == [f"d/{n}" for n in range(number + 1)]


@pytest.mark.parametrize("size", [0, 1, MAX_ENTRY_BYTES])
def test_an_object_may_be_empty_and_as_large_as_an_entry_may_get(store: Store, size: int) -> None:
    data = random.Random(2).randbytes(size)
    assert store.create("sized", data) is Created.CREATED
    assert store.get("sized") == data
    assert store.info("sized").size_bytes == size


def test_keys_of_every_allowed_character_and_length_are_distinct_objects(store: Store) -> None:
    alphabet = "ABCZabcz0189_.~=-"
    long = "/".join(["k" * 255, "k" * 255, "k" * 200])
    names = [*(f"c/{character}x" for character in alphabet), "c/...", "c/a.b", "c/_x=1/y~2", long]
    for name in names:
        assert store.create(name, name.encode()) is Created.CREATED
    assert [store.get(name).decode() for name in names] == names
    assert keys(store) == sorted(names)


def test_sixteen_threads_creating_different_keys_do_not_disturb_each_other(store: Store) -> None:
    def work(racer: int) -> None:
        for number in range(8):
            assert store.create(f"w/{racer}/{number}", b"%d-%d" % (racer, number)) is Created.CREATED

    run_together([partial(work, racer) for racer in range(RACERS)])
    assert len(keys(store, "w/")) == RACERS * 8
    assert all(store.get(f"w/{racer}/7") == b"%d-7" % racer for racer in range(RACERS))


# --- put ------------------------------------------------------------------------------------------------------------


def test_put_makes_and_replaces_and_each_handle_sees_the_newest(subject: Subject) -> None:
    store, other = subject.open(), subject.open()
    for body in (b"one", b"", b"a longer third"):
        store.put("hints/tail", body)
        assert other.get("hints/tail") == body
        assert other.info("hints/tail").size_bytes == len(body)
        store.put_unsynced("hints/tail", body + b"!")
        assert other.get("hints/tail") == body + b"!"


def test_create_after_put_is_unknown(store: Store) -> None:
    store.put("p", b"put")
    assert store.create("p", b"create") is Created.UNKNOWN
    assert store.get("p") == b"put"


def test_readers_racing_puts_see_one_of_them_whole(subject: Subject) -> None:
    store = subject.store
    bodies = [bytes([letter]) * 100_000 for letter in b"abcd"]
    store.put("whole", bodies[0])
    done = threading.Event()

    def write(body: bytes) -> None:
        for _ in range(10):
            store.put("whole", body)

    def read() -> None:
        while True:
            ends = done.is_set()
            assert store.get("whole") in bodies
            if ends:
                return

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for writer in [pool.submit(write, body) for body in bodies]:
            writer.result()
        done.set()
        for reader in readers:
            reader.result()
    assert store.get("whole") in bodies
    assert keys(store) == ["whole"]


# --- read -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["absent", "absent/below", "there/not", "ther"])
def test_reading_an_absent_key_raises_object_not_found_with_the_key(store: Store, key: str) -> None:
    store.create("there/is", b"x")
    for call in (store.get, store.info, lambda key: store.get_range(key, 0, 1), lambda key: store.get_range(key, 0, 0)):
        with pytest.raises(ObjectNotFound) as caught:
            call(key)
        assert caught.value.key == key


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 10, b"0123456789"), (3, 6, b"345"), (9, 10, b"9"), (8, 99, b"89"), (10, 20, b""), (50, 60, b""), (4, 4, b"")],
)
def test_a_range_holds_what_there_is_between_its_bounds(store: Store, start: int, end: int, expected: bytes) -> None:
    store.create("ten", b"0123456789")
    assert store.get_range("ten", start, end) == expected


def test_a_range_of_an_empty_object_is_empty(store: Store) -> None:
    store.create("nothing", b"")
    assert store.get_range("nothing", 0, 5) == b""


def test_size_and_modification_time_are_the_objects_own(store: Store) -> None:
    before_ms = time.time_ns() // 1_000_000
    store.create("t/1", b"12345")
    after_ms = time.time_ns() // 1_000_000
    info = store.info("t/1")
    assert (info.key, info.size_bytes) == ("t/1", 5)
    # Services cut the time to seconds.
    assert before_ms - 1000 <= info.modified_ms <= after_ms + 1000
    (listed,) = store.list("t/")
    assert (listed.key, listed.size_bytes) == ("t/1", 5)
    assert abs(listed.modified_ms - info.modified_ms) <= 1000


# --- list -----------------------------------------------------------------------------------------------------------


def test_a_listing_is_sorted_by_key_whatever_the_folders(store: Store) -> None:
    names = ["b", "a/b", "a-b", "a.b", "a0", "a/b-c/d", "a/b0", "a/B", "a=b/c", "z/1", "z/10", "z/2", "_log/x", "a~b"]
    for name in names:
        store.create(name, b"")
    assert keys(store) == sorted(names)


def test_a_prefix_is_the_beginning_of_keys_and_a_folder_ends_in_a_slash(
    store: Store, subtests: pytest.Subtests
) -> None:
    for name in ("ab/1", "ab/2", "ab/sub/3", "abc", "b"):
        store.create(name, b"")
    wanted = {
        "": ["ab/1", "ab/2", "ab/sub/3", "abc", "b"],
        "ab/": ["ab/1", "ab/2", "ab/sub/3"],
        "ab": ["ab/1", "ab/2", "ab/sub/3", "abc"],
        "ab/s": ["ab/sub/3"],
        "ab/sub/": ["ab/sub/3"],
        "ab/sub/3": ["ab/sub/3"],
        "ab/sub/3/": [],
        "abc": ["abc"],
        "abc/": [],
        "nothing": [],
        "nothing/at/all/": [],
    }
    for prefix, expected in wanted.items():
        with subtests.test(prefix):
            assert keys(store, prefix) == expected


def test_listing_an_empty_root_gives_nothing(store: Store) -> None:
    assert keys(store) == []


def test_a_listing_of_many_objects_is_complete(subject: Subject) -> None:
    store = subject.store
    count = 1200  # above the thousand that S3 lists at a time

    def fill(part: int) -> None:
        for number in range(part, count, RACERS):
            store.put(f"many/{number:05d}", b"")

    run_together([partial(fill, part) for part in range(RACERS)])
    assert keys(store, "many/") == [f"many/{number:05d}" for number in range(count)]


# --- delete, sync, url ----------------------------------------------------------------------------------------------


def test_a_deleted_object_is_gone_for_everybody_and_may_be_deleted_again(subject: Subject) -> None:
    store, other = subject.open(), subject.open()
    store.create("x/1", b"")
    store.create("x/2", b"")
    store.delete("x/1")
    store.delete("x/1")
    store.delete("never/was")
    with pytest.raises(ObjectNotFound):
        other.get("x/1")
    assert keys(other) == ["x/2"]


def test_sync_of_what_another_handle_created_succeeds(subject: Subject) -> None:
    subject.open().create("_log/0000000000/1", b"x")
    subject.open().sync("_log/0000000000/1")


def test_an_address_ends_with_the_key(store: Store) -> None:
    assert store.url("a/b.parquet").endswith("/a/b.parquet")


def test_handles_on_one_root_have_one_identity(subject: Subject) -> None:
    first, second = identity_of(subject.open()), identity_of(subject.open())
    assert first == second
    assert len(first.endpoint_hash) == 16
    assert first.store_kind.split("/")[0] in {"memory", "local", "s3"}


# --- hostile input --------------------------------------------------------------------------------------------------


def test_a_hostile_key_is_refused_by_every_call_before_anything_happens(
    store: Store, subtests: pytest.Subtests
) -> None:
    store.create("innocent", b"1")
    calls: list[Callable[[str], object]] = [
        lambda key: store.create(key, b"x"),
        lambda key: store.put(key, b"x"),
        lambda key: store.put_unsynced(key, b"x"),
        store.get,
        lambda key: store.get_range(key, 0, 1),
        store.info,
        store.delete,
        store.url,
        store.sync,
    ]
    for key in HOSTILE_KEYS:
        with subtests.test(ascii(key)):
            for call in calls:
                with pytest.raises(StoreError) as caught:
                    call(key)
                assert caught.value.durable is Durable.NOTHING
            assert keys(store) == ["innocent"]


def test_a_hostile_prefix_is_refused(store: Store, subtests: pytest.Subtests) -> None:
    for prefix in ("/", "..", "../", "a/../", "/etc/", "a//", "a\\", "a*", "a\0", "s3://other/"):
        with subtests.test(ascii(prefix)), pytest.raises(StoreError):
            list(store.list(prefix))


# --- all together ---------------------------------------------------------------------------------------------------


def test_random_calls_agree_with_a_dictionary(subject: Subject) -> None:
    rng = random.Random(20261121)
    store = subject.store
    model: dict[str, bytes] = {}
    names = ["a", "b/1", "b/2", "b/c/3", "b-1", "d/e/f/4"]
    for step in range(subject.rounds * 4):
        key, body = rng.choice(names), rng.randbytes(rng.randrange(50))
        match rng.randrange(6):
            case 0:
                expected = Created.UNKNOWN if key in model else Created.CREATED
                assert store.create(key, body) is expected, step
                model.setdefault(key, body)
            case 1:
                store.put(key, body)
                model[key] = body
            case 2:
                store.delete(key)
                model.pop(key, None)
            case 3:
                start = rng.randrange(20)
                end = start + rng.randrange(20)
                if key in model:
                    assert store.get_range(key, start, end) == model[key][start:end], step
                else:
                    with pytest.raises(ObjectNotFound):
                        store.get_range(key, start, end)
            case 4:
                prefix = rng.choice(["", "b", "b/", "b/c/", "d/e", "nothing/"])
                found = {info.key: info.size_bytes for info in store.list(prefix)}
                assert list(found) == sorted(found), step
                assert found == {k: len(v) for k, v in model.items() if k.startswith(prefix)}, step
            case _:
                if key in model:
                    assert store.get(key) == model[key], step
                    assert store.info(key).size_bytes == len(model[key]), step
                else:
                    with pytest.raises(ObjectNotFound):
                        store.get(key)


def test_the_probe_accepts_the_store_and_cleans_up(subject: Subject) -> None:
    store = subject.store
    verdict = probe(store, "_catalog/probe/")
    assert verdict.identity == identity_of(store)
    assert verdict.rounds >= 8
    assert keys(store) == []
