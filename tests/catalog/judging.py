"""What a published table in any store must be, judged without the code that publishes: as Delta's rules read it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from txnlog import keys
from txnlog.ids import TxnId
from txnlog.namespace import Namespace
from txnlog.store.base import Store


def commits_of(store: Store, folder: str) -> dict[int, bytes]:
    """The commits of a table in a namespace's store, by version."""
    found: dict[int, bytes] = {}
    for info in store.list(keys.delta_prefix(folder)):
        name = info.key.rpartition("/")[2]
        if name.endswith(".json"):
            found[int(name.removesuffix(".json"))] = store.get(info.key)
    return dict(sorted(found.items()))


def actions_of(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The actions of a commit."""
    found: list[tuple[str, dict[str, Any]]] = []
    assert data.endswith(b"\n")
    for line in data.splitlines():
        ((kind, body),) = json.loads(line).items()
        found.append((kind, body))
    return found


def check_table(
    ns: Namespace, topic: str, *, folder: str | None = None, complete: bool = True, may_stop: bool = False
) -> list[int]:
    """Every version of a topic's table shows the segments of a snapshot. Returns what its versions show.

    Also: rows that stream readers see are new, and each is seen once; times grow; the newest checkpoint has the same
    files. ``complete``: the newest version shows what the topic is now. ``may_stop``: streams may stop at a version
    that is marked as a change, as where versions before a merge were damaged, and end elsewhere now.
    """
    store = ns.connection.store
    record = ns.connection.topic_record(topic)
    folder = folder or record.folder
    ns.connection.follower.refresh()
    files: dict[str, int] = {}
    told: dict[tuple[int, int], int] = {}
    stops = False
    shown: list[int] = []
    at: dict[int, dict[str, int]] = {}
    for version, says, actions in _chain(store, folder):
        assert says["topic"] == record.id
        shown.append(says["version"])
        _carry_out(ns, topic, actions, files, told)
        changes = any(item == "remove" and body["dataChange"] is not False for item, body in actions)
        assert may_stop or not changes
        stops = stops or changes
        plan = ns.snapshot(version=says["version"]).plan(topic) if says["version"] >= record.id else None
        wanted = {item.key.removeprefix(f"{folder}/") for item in plan.segments} if plan else set()
        assert set(files) == wanted, f"version {version} shows {says['version']}"
        at[version] = dict(files)
    if complete:
        newest = {item.key.removeprefix(f"{folder}/") for item in ns.snapshot().plan(topic).segments}
        assert set(files) == newest
        rows = ns.snapshot().read(topic, include_metadata=True).select(["_partition", "_offset"]).to_pylist()
        assert stops or told == {(row["_partition"], row["_offset"]): 1 for row in rows}
    _check_checkpoint(store, folder, at)
    return shown


def _chain(store: Store, folder: str) -> Iterator[tuple[int, dict[str, Any], list[tuple[str, dict[str, Any]]]]]:
    """By version what each commit of a table says of itself, and its actions: each goes on behind the one before."""
    commits = commits_of(store, folder)
    assert list(commits) == list(range(len(commits))), "no gap"
    before, last_ms = -1, -1
    for version, data in commits.items():
        actions = actions_of(data)
        kind, info = actions[0]
        assert kind == "commitInfo"
        assert info["inCommitTimestamp"] > last_ms
        last_ms = info["inCommitTimestamp"]
        says = info["txnlog"]
        assert says["before"] == before
        assert says["version"] >= says["before"]
        before = says["version"]
        assert [item for item, _ in actions].count("protocol") == (version == 0)
        domains = [body for item, body in actions if item == "domainMetadata"]
        assert [item["domain"] for item in domains] == ["txnlog"]
        assert json.loads(domains[0]["configuration"])["version"] == says["version"]
        yield version, says, actions


SEGMENT_COLUMNS = ("segment", "topic", "topic_id", "partition", "base_offset", "first_row", "rows", "version", "txn_id")


def segment_rows(ns: Namespace, version: int) -> list[tuple[Any, ...]]:
    """What the log says, in SEGMENT_COLUMNS, of the segments that were visible at a version or before."""
    follower = ns.connection.follower
    found: list[tuple[Any, ...]] = []
    for topic in follower.state.topics.values():
        for record in follower.segments(topic.id)[0]:
            if record.state != "visible" or record.ended_version is None or record.ended_version > version:
                continue
            first = 0
            for item in record.slices:
                own = record.txn is not None and not record.compacted
                txn = str(TxnId(ns.connection.coordinator, record.txn)) if own and record.txn is not None else None
                ended = None if record.compacted else record.ended_version
                place = (record.number, topic.name, topic.id, item.partition, item.offset, first, item.rows)
                found.append((*place, ended, txn))
                first += item.rows
    return sorted(found, key=segment_place)


def segment_place(row: tuple[Any, ...]) -> Any:
    """What such rows are sorted by: all columns but those that may be null."""
    return row[:7]


def check_segments_table(ns: Namespace, *, complete: bool = True) -> list[int]:
    """Every version of the table of segments says what the log says, the newest one all of it where it is ``complete``.

    Returns what its versions show.
    """
    store, folder = ns.connection.store, keys.SEGMENTS_TABLE
    ns.connection.follower.refresh()
    files: dict[str, int] = {}
    shown: list[int] = []
    at: dict[int, dict[str, int]] = {}
    for version, says, actions in _chain(store, folder):
        shown.append(says["version"])
        for kind, body in actions:
            if kind == "add":
                assert body["path"] not in files
                files[body["path"]] = body["size"]
            elif kind == "remove":
                del files[body["path"]]
        told: list[tuple[Any, ...]] = []
        for path, size in files.items():
            content = store.get(f"{folder}/{path}")
            assert len(content) == size
            told += [
                tuple(row[name] for name in SEGMENT_COLUMNS) for row in pq.read_table(io.BytesIO(content)).to_pylist()
            ]
        assert sorted(told, key=segment_place) == segment_rows(ns, shown[-1]), f"version {version}"
        at[version] = dict(files)
    assert not complete or segment_rows(ns, shown[-1]) == segment_rows(ns, ns.connection.follower.state.head.version)
    _check_checkpoint(store, folder, at)
    return shown


def _carry_out(
    ns: Namespace,
    topic: str,
    actions: list[tuple[str, dict[str, Any]]],
    files: dict[str, int],
    told: dict[tuple[int, int], int],
) -> None:
    segments = ns.connection.follower.segments(ns.connection.topic_record(topic).id)[0]
    records = {keys.relative_segment_key(item.number, item.file): item for item in segments}
    for kind, body in actions:
        if kind == "add":
            record = records[body["path"]]
            assert body["path"] not in files
            assert body["partitionValues"] == {keys.SEGMENT_COLUMN: str(record.number)}
            assert body["size"] == record.size_bytes
            assert json.loads(body["stats"])["numRecords"] == record.rows
            files[body["path"]] = body["size"]
            if body["dataChange"]:
                for item in record.slices:
                    assert item.offset is not None
                    for offset in range(item.offset, item.offset + item.rows):
                        told[item.partition, offset] = told.get((item.partition, offset), 0) + 1
        elif kind == "remove":
            del files[body["path"]]


def _check_checkpoint(store: Store, folder: str, at: dict[int, dict[str, int]]) -> None:
    """A checkpoint names the files that the table has by its commits, ``at`` each version, and their sizes."""
    found = [info.key for info in store.list(keys.delta_prefix(folder))]
    for key in found:
        name = key.rpartition("/")[2]
        if name.endswith(".checkpoint.parquet"):
            table = pq.read_table(io.BytesIO(store.get(key)))
            sizes = {row["path"]: row["size"] for row in table.column("add").to_pylist() if row is not None}
            assert sizes == at[int(name.split(".")[0])]
    if keys.delta_hint_key(folder) in found:
        hint = json.loads(store.get(keys.delta_hint_key(folder)))
        assert keys.delta_checkpoint_key(folder, hint["version"]) in found, "a hint names what is there"
