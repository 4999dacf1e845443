"""What only a folder can get wrong: the order of fsyncs, unfinished files, symbolic links, full and read-only disks."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import os
import resource
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.descriptors import descriptors
from tests.effort import every
from tests.forks import in_child
from tests.interrupts import interrupted, is_in_finalizer
from tests.lines import before_line
from txnlog.errors import AccessDenied, Durable, StoreError
from txnlog.store import Created, LocalStore, ObjectNotFound, local, posix
from txnlog.store.key_guard import TEMPORARY_PREFIX

KEY = "_log/0000000000/00000000000000000000.json"
NEXT = "_log/0000000000/00000000000000000001.json"


@pytest.fixture(params=[True, False], ids=["tmpfile", "fallback"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStore:
    """A store either way."""
    return LocalStore(tmp_path / "root", use_tmpfile=request.param)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the kernel, in order."""
    seen: list[str] = []

    def note(name: str, describe: Callable[..., str]) -> None:
        real = getattr(os, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            seen.append(describe(*arguments, **options))
            return result

        monkeypatch.setattr(os, name, noted)

    def synced(descriptor: int) -> str:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        return f"fsync {os.path.basename(os.readlink(f'/proc/self/fd/{descriptor}'))}" if folder else "fsync file"

    note("fsync", synced)
    note("write", lambda *_: "write")
    note("link", lambda source, target, **_: f"link {_final(target)}")
    note("replace", lambda source, target, **_: f"replace {_final(target)}")
    note("mkdir", lambda name, *_, **__: f"mkdir {os.path.basename(name)}")
    return seen


def used_twice(store: LocalStore) -> None:
    """The folder of KEY is remembered, as all are that are come back to."""
    store.create(KEY, b"x")
    store.put(KEY, b"x")


def _final(name: str) -> str:
    return "temporary" if name.startswith(TEMPORARY_PREFIX) else name


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- the order in which things become durable -----------------------------------------------------------------------


def test_a_create_syncs_the_bytes_then_links_then_syncs_the_folder(store: LocalStore, events: list[str]) -> None:
    used_twice(store)
    events.clear()
    store.create(NEXT, b"y")
    name = NEXT.rpartition("/")[2]
    assert events == ["write", "fsync file", f"link {name}", "fsync 0000000000"]


def test_folders_on_the_way_are_on_disk_before_the_first_create_is_acknowledged(
    store: LocalStore, events: list[str], tmp_path: Path
) -> None:
    assert store.create(KEY, b"x") is Created.CREATED
    # A folder is on disk when the folder above it was synced after it was made.
    for folder, above in (("root", tmp_path.name), ("_log", "root"), ("0000000000", "_log")):
        made = events.index(f"mkdir {folder}")
        assert f"fsync {above}" in events[made:], (folder, events)


def test_folders_that_another_process_made_are_synced_once(tmp_path: Path, events: list[str]) -> None:
    (tmp_path / "root" / "_log" / "0000000000").mkdir(parents=True)
    store = LocalStore(tmp_path / "root")
    events.clear()
    store.create(KEY, b"x")
    assert {f"fsync {tmp_path.name}", "fsync root", "fsync _log", "fsync 0000000000"} <= set(events)
    events.clear()
    store.create(NEXT, b"x")
    assert [event for event in events if event.startswith("fsync")] == ["fsync file", "fsync 0000000000"]


def test_a_folder_that_was_removed_and_made_again_is_synced_again(tmp_path: Path, events: list[str]) -> None:
    store = LocalStore(tmp_path / "root")
    for _ in range(2):
        store.put("a/b/1", b"x")
    os.unlink(tmp_path / "root/a/b/1")
    os.rename(tmp_path / "root/a/b", tmp_path / "elsewhere")
    events.clear()
    assert store.create("a/b/1", b"x") is Created.CREATED
    assert events.index("mkdir b") < events.index("fsync a") < events.index("link 1")
    store.put("a/b/1", b"x")
    events.clear()
    store.put("a/b/1", b"x")
    assert "fsync a" not in events, "the new one is known by then"


def test_a_folder_made_again_by_others_is_synced_again_whatever_its_inode(tmp_path: Path, events: list[str]) -> None:
    store = LocalStore(tmp_path / "root")
    folder = tmp_path / "root/a/b"
    for name in "123":
        store.create(f"a/b/{name}", b"x")
        os.unlink(folder / name)
    known = folder.stat().st_ino
    for _ in range(20):  # ext4 gives the number of a folder that is gone to the next one, if nobody has it open
        folder.rmdir()
        folder.mkdir()
        if folder.stat().st_ino == known:
            break
    events.clear()
    assert store.create("a/b/1", b"x") is Created.CREATED
    assert events.index("fsync a") < events.index("link 1")


def test_a_known_folder_that_became_a_link_out_of_the_root_is_refused(store: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for _ in range(2):
        store.put("a/b/1", b"x")
    os.rename(tmp_path / "root/a/b", tmp_path / "elsewhere")
    os.symlink(outside, tmp_path / "root/a/b")
    for write in (store.create, store.put):
        with pytest.raises(StoreError, match="symbolic link"):
            write("a/b/2", b"x")
    assert files_below(outside) == []


def test_folders_are_remembered_up_to_a_bound_and_let_go_with_the_store(
    tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_KNOWN_FOLDERS", 4)
    before = descriptors(tmp_path)
    store = LocalStore(tmp_path / "root")
    for number in range(40):
        store.put(f"a/{number // 2}/x", b"x")
        assert descriptors(tmp_path) - before <= 4
    assert descriptors(tmp_path) - before == 4
    events.clear()
    store.put("a/0/y", b"y")
    assert events.index("fsync a") < events.index("link y"), "what was forgotten is synced again"
    del store
    assert descriptors(tmp_path) == before


def test_a_folder_that_is_used_once_takes_no_descriptor(tmp_path: Path, events: list[str]) -> None:
    store = LocalStore(tmp_path / "root")
    store.put("topic/0/x", b"x")
    store.put("topic/1/x", b"x")
    before = descriptors(tmp_path)
    for number in range(2, 20):
        events.clear()
        store.put(f"topic/{number}/x", b"x")
        assert [item for item in events if item.startswith("fsync")] == ["fsync topic", "fsync file", f"fsync {number}"]
    assert descriptors(tmp_path) == before


def test_without_a_descriptor_to_spare_a_folder_is_synced_again_and_nobody_fails(
    tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    store = LocalStore(tmp_path / "root")
    monkeypatch.setattr(os, "dup", none_left)
    for name in "123":
        events.clear()
        assert store.create(f"a/{name}", b"x") is Created.CREATED
        assert events.index("fsync root") < events.index(f"link {name}")


def test_a_closed_store_keeps_no_folder_open_and_answers_as_before(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    used_twice(store)
    listing = store.list("_log/")
    assert descriptors(tmp_path)
    store.close()
    assert not descriptors(tmp_path)
    assert store.get(KEY) == b"x"
    assert [info.key for info in listing] == [info.key for info in store.list("")]
    for _ in range(3):
        store.put(NEXT, b"y")
    assert store.get_range(NEXT, 0, 1) == b"y"
    assert not descriptors(tmp_path)


def _interrupted_before_line(call: Callable[[], object], place: int) -> bool:
    came = False

    def interrupt() -> None:
        nonlocal came
        came = True
        if not is_in_finalizer(sys._getframe()):
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt), before_line(posix.__file__, place, interrupt):
        call()
    return came


@pytest.mark.filterwarnings("ignore:unclosed scandir iterator:ResourceWarning")  # Python closes it, and says so
def test_an_interrupt_anywhere_in_a_request_leaves_no_descriptor(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEAK: Ctrl-C behind the system call that opened one, before the number of it was noted anywhere."""
    monkeypatch.setattr("txnlog.engine.main_thread.program_has_ended", lambda: True)
    names = itertools.count()
    store.put(KEY, b"x")
    requests: list[Callable[[], object]] = [
        lambda: store.create(f"a/{next(names)}", b"x"),
        lambda: store.put(KEY, b"x"),
        lambda: store.get(KEY),
        lambda: store.get_range(KEY, 0, 1),
        lambda: store.info(KEY),
        lambda: list(store.list("")),
        lambda: store.delete(f"a/{next(names)}"),
        lambda: store.sync(KEY),
    ]
    store.close()  # else it keeps some, as it should
    first, step = every(5)
    for request in requests:
        places = lines = 1 + first
        while interrupted(request, (local, posix), places):
            places += step
        while _interrupted_before_line(request, lines):
            lines += step
        assert max(places, lines) > 1 + first
        gc.collect()  # of an ExitStack the error refers to itself
        assert not descriptors(tmp_path)


def test_a_put_syncs_the_bytes_then_replaces_then_syncs_the_folder(store: LocalStore, events: list[str]) -> None:
    used_twice(store)
    events.clear()
    store.put(KEY, b"y")
    kept = [event for event in events if event not in {"write", "link temporary"}]
    assert kept == ["fsync file", f"replace {KEY.rpartition('/')[2]}", "fsync 0000000000"]


def test_a_put_under_a_free_name_takes_it_at_once(store: LocalStore, events: list[str]) -> None:
    used_twice(store)
    events.clear()
    store.put(NEXT, b"y")
    assert store.get(NEXT) == b"y"
    assert events == ["write", "fsync file", f"link {NEXT.rpartition('/')[2]}", "fsync 0000000000"]


def test_sync_covers_the_folder_and_those_above_it(tmp_path: Path, events: list[str]) -> None:
    LocalStore(tmp_path / "root").create(KEY, b"x")
    reader = LocalStore(tmp_path / "root")
    events.clear()
    reader.sync(KEY)
    assert {"fsync root", "fsync _log", "fsync 0000000000"} <= set(events)
    events.clear()
    reader.sync(KEY)
    assert events == ["fsync 0000000000"], "a second time only the folder itself"


# --- failures: what they leave, what they say -----------------------------------------------------------------------


def _failing_fsync(monkeypatch: pytest.MonkeyPatch, *, folders: bool) -> None:
    real = os.fsync

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) is folders:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail)


def test_after_a_failed_sync_of_the_folder_the_object_may_be_durable_and_the_handle_is_closed_for_writes(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    used_twice(store)
    with monkeypatch.context() as patch:
        _failing_fsync(patch, folders=True)
        with pytest.raises(StoreError) as caught:
            store.create(NEXT, b"y")
    assert caught.value.durable is Durable.MAYBE
    for call in (store.create, store.put):
        with pytest.raises(StoreError, match="open again") as caught:
            call("other", b"z")
        assert caught.value.durable is Durable.MAYBE
    # Reading the slot would show it without proving anything, so the handle must not vouch for it either.
    with pytest.raises(StoreError, match="open again"):
        store.sync(NEXT)
    assert store.get(KEY) == b"x"
    assert LocalStore(tmp_path / "root").create("other", b"z") is Created.CREATED


def test_after_a_failed_sync_of_the_bytes_there_is_no_object_and_the_handle_is_closed_for_writes(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store.create(KEY, b"x")
    with monkeypatch.context() as patch:
        _failing_fsync(patch, folders=False)
        with pytest.raises(StoreError) as caught:
            store.create(NEXT, b"y")
    assert caught.value.durable is Durable.NOTHING
    assert files_below(tmp_path / "root") == [KEY]
    with pytest.raises(StoreError, match="open again"):
        store.create(NEXT, b"y")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_a_disk_that_cannot_take_the_bytes_leaves_nothing_and_says_so(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    store.create(KEY, b"x")

    def fail(descriptor: int, data: bytes) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        for call in (store.create, store.put):
            with pytest.raises(StoreError, match=os.strerror(code)) as caught:
                call(NEXT, b"y")
            assert caught.value.durable is Durable.NOTHING
            assert ("ulimit -f" in caught.value.advice) == (code == errno.EFBIG)
            assert ("df -i" in caught.value.advice) == (code == errno.ENOSPC), "the system says the same of inodes"
    assert files_below(tmp_path / "root") == [KEY]
    assert store.create(NEXT, b"y") is Created.CREATED


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM, errno.EMLINK])
def test_a_link_that_was_refused_stored_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    store.create(KEY, b"x")

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError) as caught:
        store.create(NEXT, b"y")
    assert caught.value.durable is Durable.NOTHING
    assert caught.value.advice != StoreError._default_advice
    assert files_below(tmp_path / "root") == [KEY]


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_a_link_that_failed_after_it_was_made_leaves_the_outcome_unknown(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store.create(KEY, b"x")
    real = os.link

    def lose_the_answer(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", lose_the_answer)
    assert store.create(NEXT, b"y") is Created.UNKNOWN
    assert store.get(NEXT) == b"y"


def test_without_nameless_files_or_proc_the_store_finds_the_other_way_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open, real_link = os.open, os.link

    def open_without_tmpfile(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real_open(path, flags, *arguments, **options)

    def link_without_proc(source: str, *arguments: Any, **options: Any) -> None:
        if source.startswith("/proc/"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        real_link(source, *arguments, **options)

    for name, replacement in (("open", open_without_tmpfile), ("link", link_without_proc)):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, replacement)
            patch.setattr(posix, "has_proc", lambda file: False)
            store = LocalStore(tmp_path / name)
            assert store.create(KEY, b"x") is Created.CREATED
            assert store.create(KEY, b"y") is Created.UNKNOWN
            store.put(NEXT, b"z")
        assert (store.get(KEY), store.get(NEXT)) == (b"x", b"z")
        assert files_below(tmp_path / name) == [KEY, NEXT]


# --- what lies about in the folder ----------------------------------------------------------------------------------


def test_no_call_leaves_a_temporary_file_behind(store: LocalStore, tmp_path: Path) -> None:
    store.create(KEY, b"x")
    store.create(KEY, b"lost the race")
    store.put(KEY, b"y")
    store.put(NEXT, b"z")
    assert files_below(tmp_path / "root") == [KEY, NEXT]


def test_unfinished_and_foreign_files_are_not_listed(store: LocalStore, tmp_path: Path) -> None:
    store.create("a/1", b"x")
    folder = tmp_path / "root" / "a"
    for name in (f"{TEMPORARY_PREFIX}{'0' * 32}", "with space", "back\\slash", "b\u00e9", "#x#"):
        (folder / name).write_bytes(b"?")
    (folder / os.fsdecode(b"not-utf-8-\xff")).write_bytes(b"?")
    os.mkfifo(folder / "pipe")
    assert [info.key for info in store.list("")] == ["a/1"]


def test_a_symbolic_link_below_the_root_is_never_followed(store: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.create("a/1", b"x")
    os.symlink(outside, tmp_path / "root" / "linked")
    os.symlink(outside / "secret", tmp_path / "root" / "a" / "file")
    os.symlink(tmp_path / "nowhere", tmp_path / "root" / "a" / "dangling")
    os.symlink(tmp_path / "root" / "a", tmp_path / "root" / "inside")

    calls: list[Callable[[], object]] = [
        lambda: store.get("linked/secret"),
        lambda: store.info("linked/secret"),
        lambda: store.create("linked/new", b"x"),
        lambda: store.put("linked/secret", b"x"),
        lambda: store.delete("linked/secret"),
        lambda: store.sync("linked/secret"),
        lambda: list(store.list("linked/")),
        lambda: store.get("a/file"),
        lambda: store.info("a/file"),
        lambda: store.get("inside/1"),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="symbolic link"):
            call()
    assert [info.key for info in store.list("")] == ["a/1"]
    # A link in the place of an object keeps its name taken; a put replaces the link, never what it leads to.
    for key in ("a/file", "a/dangling"):
        with pytest.raises(StoreError, match="symbolic link") as refused:
            store.create(key, b"x")
        assert refused.value.durable is Durable.NOTHING
    store.put("a/file", b"mine")
    store.delete("a/dangling")
    assert files_below(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert store.get("a/file") == b"mine"
    assert not (tmp_path / "nowhere").exists()


def test_the_root_itself_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "link")
    assert LocalStore(tmp_path / "link").create("a/1", b"x") is Created.CREATED
    assert files_below(tmp_path / "real") == ["a/1"]


@pytest.mark.parametrize("call", ["get", "info"])
def test_a_folder_or_a_pipe_in_the_place_of_an_object_is_an_error_and_no_absence(
    store: LocalStore, tmp_path: Path, call: str
) -> None:
    # Absence would make an appender try to create the slot for ever, and a doubt ask until it gives up: nothing helps.
    (tmp_path / "root" / "slot").mkdir(parents=True)
    os.mkfifo(tmp_path / "root" / "pipe")
    for key in ("slot", "pipe"):
        with pytest.raises(StoreError, match="is no file") as refused:
            store.create(key, b"x")
        assert refused.value.durable is Durable.NOTHING
        with pytest.raises(StoreError):
            getattr(store, call)(key)


def test_a_file_in_the_place_of_a_folder_is_absence_for_readers_and_an_error_for_writers(store: LocalStore) -> None:
    store.create("a", b"x")
    with pytest.raises(ObjectNotFound):
        store.get("a/b")
    with pytest.raises(StoreError) as caught:
        store.create("a/b", b"x")
    assert caught.value.durable is Durable.NOTHING
    assert list(store.list("a/")) == []


def test_reading_never_makes_the_root(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    assert list(store.list("")) == []
    with pytest.raises(ObjectNotFound):
        store.get("a")
    store.delete("a/b")
    assert not (tmp_path / "root").exists()


def test_files_get_the_rights_that_the_umask_leaves(store: LocalStore, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        store.create("a/1", b"x")
        store.put("a/2", b"x")
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / "root/a" / name).stat().st_mode) for name in "12"} == {0o640}


# --- real limits, in a process of its own ---------------------------------------------------------------------------


def test_a_file_too_large_for_the_process_leaves_nothing(store: LocalStore, tmp_path: Path) -> None:
    store.create(KEY, b"x")

    def beyond_the_limit() -> object:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        return store.create(NEXT, bytes(10_000))

    with pytest.raises(StoreError) as caught:
        in_child(beyond_the_limit)
    assert caught.value.durable is Durable.NOTHING
    assert files_below(tmp_path / "root") == [KEY]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="txnlog-rights-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def _give_up_root() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def test_a_root_without_the_right_to_write_can_be_read_and_refuses_writes(open_folder: Path) -> None:
    store = LocalStore(open_folder / "root")
    store.create(KEY, b"x")
    os.chmod(open_folder / "root/_log/0000000000", 0o555)

    def as_somebody_else() -> object:
        _give_up_root()
        results: list[object] = [store.get(KEY), [info.key for info in store.list("")]]
        for call in (lambda: store.create(NEXT, b"y"), lambda: store.put(KEY, b"y"), lambda: store.delete(KEY)):
            try:
                results.append(call())
            except StoreError as error:
                results.append(error)
        return results

    results = in_child(as_somebody_else)
    os.chmod(open_folder / "root/_log/0000000000", 0o755)
    assert isinstance(results, list)
    assert results[:2] == [b"x", [KEY]]
    for error in results[2:]:
        assert isinstance(error, AccessDenied)
        assert error.durable is Durable.NOTHING
        assert error.right in {"write", "delete"}
        assert error.url in error.message
    assert files_below(open_folder / "root") == [KEY]


def test_a_root_without_the_right_to_read_is_an_error_and_not_empty(open_folder: Path) -> None:
    store = LocalStore(open_folder / "root")
    store.create(KEY, b"x")
    os.chmod(open_folder / "root/_log", 0o000)

    def as_somebody_else() -> object:
        _give_up_root()
        return [info.key for info in store.list("_log/0000000000/")]

    with pytest.raises(StoreError):
        in_child(as_somebody_else)
    os.chmod(open_folder / "root/_log", 0o755)
