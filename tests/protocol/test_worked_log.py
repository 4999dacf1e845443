"""The worked log of PROTOCOL.md folds to the rows, the shared segment and the checkpoint that the document shows."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from tests.protocol.document import json_blocks, rows, section
from txnlog.data import scan_planner
from txnlog.fold.apply import apply_entry
from txnlog.fold.state import SegmentRecord, State
from txnlog.format.actions import Commit, Segment
from txnlog.format.codec import decode_entry, digest_of
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import Manifest, PartKind

LOG = section("## 15. A worked log")
SHARED = section("### 15.1 Its shared segment")
ROWS = section("### 15.2 Its rows")
CHECKPOINT = section("### 15.3 Its checkpoint")
ENTRIES = [block.encode() for block in json_blocks(LOG)]
TOPIC = 1
OWN = {1: ["ada", "bob", "eve"], 3: ["dan"], 8: ["kim"], 10: ["lea"]}
"""The names in the files, but for those of the shared segment 4, which has a table."""


@pytest.fixture(scope="module")
def state() -> State:
    state = State()
    for version, data in enumerate(ENTRIES):
        apply_entry(state, decode_entry(data, version))
    return state


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the table with a heading, without the marks of code."""
    found = re.search(re.escape(heading) + r".*\n(?:\|.*\|\n)+", text)
    assert found is not None, heading
    return [[cell.strip("`") for cell in row] for row in rows(found[0])]


@pytest.mark.clause("P-19", "P-21")
def test_the_entries_are_a_chain():
    for before, after in pairwise(ENTRIES):
        assert json.loads(after.splitlines()[0])["previous"] == digest_of(before)


def test_its_state_has_the_ends_and_the_cursor_that_are_described(state):
    ends, position = [state.end_of(TOPIC, p) for p in (0, 1)], state.cursors[TOPIC, 0].position
    assert f"partition 0 of the topic ends at {ends[0]}, partition 1 at {ends[1]}" in LOG
    assert f"the cursor of the subscription stands at {position} in partition 0" in LOG


@pytest.mark.clause("P-94", "P-95")
def test_the_rows_of_the_shared_segment_have_the_offsets_and_shares_of_the_table(state):
    entry = decode_entry(ENTRIES[4], 4)
    segment = next(action for action in entry.actions if isinstance(action, Segment))
    commits = [action for action in entry.actions if isinstance(action, Commit)]
    described = table(SHARED, "| row of the file | `name` | `_txn` | `_partition` | offset | claimed by the share |")
    expected = []
    row = 0
    for item in state.segments[segment.segment].slices:
        offset = item.offset
        for commit in commits:
            for share in (share for share in commit.shares if share.partition == item.partition):
                said = f"[{share.segment},{share.partition},{share.rows},null]"
                for _ in range(share.rows):
                    expected.append((row, commit.txn, item.partition, offset, said))
                    row, offset = row + 1, offset + 1
    found = [(int(r[0]), int(r[2]), int(r[3]), int(r[4]), r[5].partition("`")[0]) for r in described]
    assert found == expected


def names_of(record: SegmentRecord) -> list[tuple[str, int]]:
    """Of each row of a file its name and its transaction."""
    if record.number in OWN:
        txn = 0 if record.txn is None else record.txn  # the segment 1 has the rows of one transaction alone
        return [(name, txn) for name in OWN[record.number]]
    found = table(SHARED, "| row of the file | `name` | `_txn` | `_partition` | offset | claimed by the share |")
    return [(row[1], int(row[2])) for row in found]


def shown(state: State, version: int) -> list[list[str]]:
    """The rows that a reader gets at read_uncommitted, as the cells of the table."""
    segments = scan_planner.select(state.segments.values(), state.removals, version, "read_uncommitted")
    found = []
    for record, rows_state in segments:
        names = iter(names_of(record))
        visible = rows_state == "COMMITTED"
        for item in record.slices:
            for place in range(item.rows):
                name, txn = next(names)
                found.append(
                    [
                        name,
                        str(item.partition),
                        str(item.offset + place) if visible else "null",
                        str(record.timestamp_ms) if visible else "null",
                        str(state.txn_id(txn)),
                        str(record.ended_version) if visible else "null",
                        rows_state,
                    ]
                )
    return found


@pytest.mark.clause("P-99", "P-101", "P-144")
def test_the_rows_are_those_of_the_table(state):
    heading = "| `name` | `_partition` | `_offset` | `_timestamp` | `_txn_id` | `_version` | `_txn_state` |"
    described = table(ROWS, heading)
    assert sorted(described) == sorted(shown(state, 6))
    for partition in "01":
        offsets = [row[2] for row in described if row[1] == partition and row[2] != "null"]
        assert offsets == [str(offset) for offset in range(len(offsets))]


def test_the_rows_of_older_versions_are_as_described(state):
    assert [row[-1] for row in shown(state, 5)][-2:] == ["OPEN", "OPEN"]
    assert {row[-1] for row in shown(state, 4)} == {"COMMITTED"}
    assert {row[0] for row in shown(state, 2)} == {"ada", "bob", "eve"}


def made(state: State) -> tuple[Manifest, dict[PartKind, list[dict[str, Any]]]]:
    """The checkpoint of the state: its manifest, and the rows of its parts."""
    head = state.head
    part, data = checkpoint_codec.encode_hot(state, f"{10:032x}")
    parts, found = [part], {part.kind: checkpoint_codec.read_part(data, part).to_pylist()}
    for kind, rows_of_kind in checkpoint_codec.cold_rows(state).items():
        if rows_of_kind.num_rows:
            span = (0, head.version)
            part, data = checkpoint_codec.encode_part(
                kind, rows_of_kind, f"{10 + len(parts):032x}", span, head.timestamp_ms
            )
            parts.append(part)
            found[kind] = checkpoint_codec.read_part(data, part).to_pylist()
    return Manifest(1, head.version, head.digest, head.timestamp_ms, tuple(parts)), found


@pytest.mark.clause("P-125", "P-241")
def test_the_checkpoint_is_that_of_the_code(state):
    manifest, found = made(state)
    (block,) = json_blocks(CHECKPOINT)
    assert without_bytes(json.loads(block)) == without_bytes(json.loads(checkpoint_codec.encode_manifest(manifest)))
    hot = re.search(r"```text\n(.*?)```", CHECKPOINT, re.DOTALL)[1].splitlines()
    assert hot == [f"{row['table']} {row['row'].decode()}" for row in found["hot"]]
    outcomes = table(CHECKPOINT, "| `number` | `version` | `timestamp_ms` | `committed` | `reason` | `digest` |")
    assert outcomes == [[cell(value) for value in row.values()] for row in found["outcomes"]]
    described = table(CHECKPOINT, "| `number` | `slices` | `state` |")
    columns = ("number", "slices", "state", "logged_version", "txn", "ended_version", "timestamp_ms", "statistics")
    assert described == [[cell(row[name]) for name in columns] for row in found["segments"]]
    assert not any(row["compacted"] for row in found["segments"])
    assert set(found) == {"hot", "outcomes", "segments"}


def without_bytes(manifest: dict) -> dict:
    """A manifest without what depends on who wrote the parts."""
    for part in manifest["parts"]:
        del part["digest"], part["size_bytes"]
    return manifest


def cell(value: object) -> str:
    """A value of a cold run as the document writes it."""
    if isinstance(value, list):
        return json.dumps([list(item.values()) for item in value], separators=(",", ":"))
    return value if isinstance(value, str) and value else "empty" if value == "" else json.dumps(value)
