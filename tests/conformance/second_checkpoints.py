"""The second reader: checkpoints (section 12), and the log at its newest version (section 11)."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conformance.second_cursors import Cursor
from tests.conformance.second_entries import DIGITS, Damaged, decode_entry, digest_of, get, newest_version, refuse_if
from tests.conformance.second_log import Log

# --- section 12: checkpoints ------------------------------------------------------------------------------------------


class Unusable(Exception):
    pass


def restore(home, version):
    """The log as a checkpoint holds it. Raises Unusable."""
    try:
        manifest = json.loads((home / "_log" / "checkpoints" / f"{version:020d}.json").read_bytes())
        if manifest["format"] != 1 or manifest["version"] != version:
            raise Unusable("another format or version")
        if manifest["digest"] != digest_of(get(home, version) or b""):
            raise Unusable("of another log")
        tables: dict[str, list[Any]] = {}
        for part in manifest["parts"]:
            if not DIGITS.fullmatch(part["unique"]):
                raise Unusable("no name of a part")
            data = (home / "_log" / "checkpoints" / "parts" / f"{part['unique']}.parquet").read_bytes()
            if len(data) != part["size_bytes"] or digest_of(data) != part["digest"]:
                raise Unusable("a damaged part")
            tables.setdefault(part["kind"], []).extend(pq.read_table(io.BytesIO(data)).to_pylist())
        return restored(tables)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise Unusable(str(error)) from None


def restored(tables):
    log = Log()
    rows: dict[str, dict[Any, Any]] = {}
    for row in tables["hot"]:
        key, value = json.loads(row["row"])
        rows.setdefault(row["table"], {})[tuple(key) if isinstance(key, list) else key] = value
    head = rows["heads"]["head"]
    log.version, log.digest, log.time = head["version"], head["digest"], head["timestamp_ms"]
    log.name, log.next_number = head["name"], head.get("next_number", 0)
    log.oldest = head.get("oldest_readable", 0)
    log.coordinators = [(0, head.get("coordinator", 0)), *map(tuple, head.get("adoptions", []))]
    log.versions = (head["reader_version"], head["writer_version"])
    log.features = (set(head.get("reader_features", [])), set(head.get("writer_features", [])))
    for number, topic in rows.get("topics", {}).items():
        log.topics[number] = {name: topic[name] for name in ("id", "name", "folder", "partitions")} | {
            "schemas": [(item["version"], item["schema"]) for item in topic["schemas"]],
            "key": topic.get("key"),
            "dropped": topic.get("dropped_version"),
        }
    log.ends, log.starts = rows.get("ends", {}), rows.get("starts", {})
    log.next_coordinator = head.get("next_coordinator", 0)
    for number, item in rows.get("namespaces", {}).items():
        kept = {name: item[name] for name in ("name", "coordinator")}
        log.namespaces[number] = kept | {"log": item.get("log", ""), "dropped": item.get("dropped_version") is not None}
    log.subscriptions = rows.get("subscriptions", {})
    log.blocks = {number: block["count"] for number, block in rows.get("blocks", {}).items()}
    for chunk, bits in rows.get("used", {}).items():
        log.used |= {256 * chunk + place for place in range(256) if int(bits, 16) >> place & 1}
    log.producers = {name: item["epoch"] for name, item in rows.get("producers", {}).items()}
    for number, item in rows.get("transactions", {}).items():
        kept = {"state": item["state"], "segments": item.get("segments", []), "producer": item.get("producer")}
        log.transactions[number] = kept | {"epoch": item.get("epoch"), "claimed": bool(item.get("held"))}
    for (subscription, partition), cursor in rows.get("cursors", {}).items():
        cumulative = [cursor["cumulative"]] if cursor.get("cumulative") is not None else []
        holds = [(hold["txn"], item) for hold in cursor.get("holds", []) for item in hold["ranges"]]
        below = (cumulative[0]["txn"], cumulative[0]["end"]) if cumulative else None
        position, acknowledged = cursor["position"], cursor.get("acknowledged", [])
        log.cursors[subscription, partition] = Cursor(position, acknowledged, holds, below)
        for hold in cursor.get("holds", []) + cumulative:
            log.holds.setdefault(hold["txn"], set()).add(subscription)
    for item in [*rows.get("segments", {}).values(), *tables.get("segments", [])]:
        kept = {name: item[name] for name in ("number", "topic", "file", "rows", "size_bytes", "checksum", "state")}
        slices = [list(s.values() if isinstance(s, dict) else s)[:3] for s in item["slices"]]
        log.segments[item["number"]] = kept | {
            "txn": item.get("txn"),
            "compacted": item.get("compacted", False),
            "extent": item.get("extent"),
            "logged": item["logged_version"],
            "ended": item.get("ended_version"),
            "time": item.get("timestamp_ms"),
            "slices": slices,
        }
    log.removals = {item["number"]: item["version"] for item in tables.get("removals", [])}
    return log


def check_first(home):
    """P-114: entry 0 is the one that entry 1 continues, unless entry 2 shows that entry 1 is damaged."""
    first, second, third = (get(home, version) for version in range(3))
    if second is not None and decode_entry(second, 1)[0]["previous"] != digest_of(first):
        refuse_if(third is None or decode_entry(third, 2)[0]["previous"] == digest_of(second), "entry 0 is damaged")


def open_log(home):
    """The log applied up to its newest version, from the newest usable checkpoint that a header leads to."""
    newest = newest_version(home)
    check_first(home)
    at = newest
    log = Log()
    while True:
        data = get(home, at)
        if data is None:
            raise Damaged(f"entry {at} is missing")
        named = decode_entry(data, at)[0]["checkpoint"]
        if named is None:
            break
        if named >= at:
            raise Damaged("a checkpoint of the future")
        try:
            log = restore(home, named)
            break
        except Unusable:
            at = named
    while log.version < newest:
        data = get(home, log.version + 1)
        if data is None:
            raise Damaged(f"entry {log.version + 1} is missing")
        log.apply(data, log.version + 1)
    return log
