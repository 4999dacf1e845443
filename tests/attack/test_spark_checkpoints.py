"""What a query's checkpoint holds, and where it is: bytes and names that are made to be taken for others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txnlog
from spark_ext import handles
from spark_ext.options import read_options
from spark_ext.paths import normal
from spark_ext.query_checkpoint import BatchOffsets, Checkpoint
from spark_ext.stream_batches import taken_by
from spark_ext.stream_offsets import StreamOffset
from spark_ext.stream_plan import StreamPlan
from txnlog.errors import InvalidInputError

IDS = pa.schema([("id", pa.int64())])
GOOD = StreamOffset("sales", 4, 7, "billing", {"orders": 1}, {"orders": {0: 5}}, {"orders": {0: 0}}, "q").to_dict()


@pytest.mark.parametrize("url", [True, False])
@pytest.mark.parametrize("name", ["a%20b", "a#b", "a?b", "a b", "a b ", " a b", "~", "a%2Fb"])
def test_a_checkpoint_is_never_another_one_whose_name_is_alike(tmp_path: Path, name: str, url: bool) -> None:
    """Spark takes every character of a local location for itself. Another query's id would skip what it committed."""
    for other in {"a b", "a", name}:
        (tmp_path / other).mkdir()
        (tmp_path / other / "metadata").write_text(json.dumps({"id": other}))
    given = f"{tmp_path}/{name}"
    assert Checkpoint(f"file://{given}" if url else given).query_id() == name


def test_a_checkpoint_in_a_folder_called_tilde_is_not_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Checkpoint("~/c").location == str(tmp_path / "~" / "c")


@pytest.mark.parametrize("location", ["", " ", "file:", "file://host/c", "file:c", "file:////c"])
def test_a_location_that_means_nothing_is_refused(location: str) -> None:
    with pytest.raises(InvalidInputError):
        Checkpoint(location)


@pytest.mark.parametrize("path", ["file:///lake/sales#old", "file:///lake/sales?old"])
def test_a_namespaces_url_is_not_cut_short(path: str) -> None:
    with pytest.raises(InvalidInputError, match="plain path"):
        normal(path)


@pytest.mark.parametrize(
    "change",
    [
        {"version": float("inf")},
        {"version": True},
        {"version": "7"},
        {"coordinator": -1},
        {"coordinator": 4.5},
        {"namespace": None},
        {"namespace": ["sales"]},
        {"subscription": 3},
        {"query": 3},
        {"topic_ids": {"orders": 1.5}},
        {"topic_ids": []},
        {"offsets": {"orders": {"0": float("inf")}}},
        {"offsets": {"orders": {"0": float("nan")}}},
        {"offsets": {"orders": {"0": 5.9}}},
        {"offsets": {"orders": {"0": -1}}},
        {"offsets": {"orders": {"zero": 1}}},
        {"offsets": {"orders": [5]}},
        {"start": {"orders": {"0": None}}},
        {"start": 1},
    ],
)
def test_a_damaged_offset_is_refused_and_never_rounded(change: dict[str, Any]) -> None:
    assert StreamOffset.from_dict(json.loads(json.dumps(GOOD))).to_dict() == GOOD
    with pytest.raises(InvalidInputError, match="a damaged offset"):
        StreamOffset.from_dict(json.loads(json.dumps({**GOOD, **change})))


@pytest.mark.parametrize("topics", [1, 30])
@pytest.mark.parametrize("limit", [None, 2])
def test_a_checkpoint_that_is_ahead_of_its_namespace_is_refused_and_passes_over_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int, limit: int | None
) -> None:
    """As after a restored backup, or a namespace made again: the stream would wait, and go on behind what is new."""
    monkeypatch.setattr(handles, "_LOOK_S", 0.0)
    root = tmp_path / "lake"

    def made(count: int, rows: int) -> None:
        with txnlog.open(root, "sales", create=True) as ns:
            for number in range(count):
                ns.create_topic(f"orders{number}", IDS)
            for number in range(rows):
                ns.produce("orders0", [{"id": number}])

    def plan() -> StreamPlan:
        return StreamPlan(read_options({"path": f"{root}/sales/orders0"}, streaming=True))

    made(1, 8)
    first = plan()
    end = first.latest(first.initial().to_dict(), None)
    assert plan().latest(end, limit) == end
    shutil.rmtree(root)
    made(topics, 3)
    with pytest.raises(InvalidInputError, match="of version 9, but it now reads a namespace 'sales' that ends before"):
        plan().latest(end, limit)


DEEP = "[" * 200_000


@pytest.mark.parametrize("option", ["startingOffsets", "storageOptions"])
def test_an_option_nested_too_deep_is_a_bad_value(option: str) -> None:
    with pytest.raises(InvalidInputError, match=f"the option '{option}' is "):
        read_options({"path": "/lake/sales/orders", option: DEEP}, streaming=False)


def test_metadata_and_offsets_nested_too_deep_are_nobodys(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(DEEP)
    checkpoint = Checkpoint(str(tmp_path))
    with pytest.raises(InvalidInputError, match="holds no query id"):
        checkpoint.query_id()
    with (
        txnlog.open(tmp_path / "lake", "sales", create=True) as ns,
        pytest.raises(InvalidInputError, match="no source of the query reads"),
    ):
        taken_by(ns, checkpoint, BatchOffsets(0, {"0": DEEP}), "billing")
