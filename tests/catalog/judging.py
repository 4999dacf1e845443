"""What a published table in any store must be, judged without the code that publishes: as Delta's rules read it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq

from txnlog import keys
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
    commits = commits_of(store, folder)
    assert list(commits) == list(range(len(commits))), "no gap"
    files: dict[str, int] = {}
    told: dict[tuple[int, int], int] = {}
    stops = False
    shown: list[int] = []
    last_ms = -1
    at: dict[int, set[str]] = {}
    for version, data in commits.items():
        actions = actions_of(data)
        kind, info = actions[0]
        assert kind == "commitInfo"
        assert info["inCommitTimestamp"] > last_ms
        last_ms = info["inCommitTimestamp"]
        says = info["txnlog"]
        assert says["topic"] == record.id
        assert says["before"] == (shown[-1] if shown else -1)
        assert says["version"] >= says["before"]
        shown.append(says["version"])
        assert [item for item, _ in actions].count("protocol") == (version == 0)
        domains = [body for item, body in actions if item == "domainMetadata"]
        assert [item["domain"] for item in domains] == ["txnlog"]
        assert json.loads(domains[0]["configuration"])["version"] == says["version"]
        _carry_out(ns, topic, actions, files, told)
        changes = any(item == "remove" and body["dataChange"] is not False for item, body in actions)
        assert may_stop or not changes
        stops = stops or changes
        plan = ns.snapshot(version=says["version"]).plan(topic) if says["version"] >= record.id else None
        wanted = {item.key.removeprefix(f"{folder}/") for item in plan.segments} if plan else set()
        assert set(files) == wanted, f"version {version} shows {says['version']}"
        at[version] = set(files)
    if complete:
        newest = {item.key.removeprefix(f"{folder}/") for item in ns.snapshot().plan(topic).segments}
        assert set(files) == newest
        rows = ns.snapshot().read(topic, include_metadata=True).select(["_partition", "_offset"]).to_pylist()
        assert stops or told == {(row["_partition"], row["_offset"]): 1 for row in rows}
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
            files[body["path"]] = record.number
            if body["dataChange"]:
                for item in record.slices:
                    assert item.offset is not None
                    for offset in range(item.offset, item.offset + item.rows):
                        told[item.partition, offset] = told.get((item.partition, offset), 0) + 1
        elif kind == "remove":
            del files[body["path"]]


def _check_checkpoint(store: Store, folder: str, at: dict[int, set[str]]) -> None:
    found = [info.key for info in store.list(keys.delta_prefix(folder))]
    for key in found:
        name = key.rpartition("/")[2]
        if name.endswith(".checkpoint.parquet"):
            import io

            table = pq.read_table(io.BytesIO(store.get(key)))
            paths = {row["path"] for row in table.column("add").to_pylist() if row is not None}
            assert paths == at[int(name.split(".")[0])]
    if keys.delta_hint_key(folder) in found:
        hint = json.loads(store.get(keys.delta_hint_key(folder)))
        assert keys.delta_checkpoint_key(folder, hint["version"]) in found, "a hint names what is there"
