"""Checkpoints of queries whose names are alike, whose bytes mean harm, or that are ahead of their namespace."""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txnlog
from spark_ext.streaming.batch_commit import ranges_of_batch
from spark_ext.streaming.offsets import StreamOffset
from spark_ext.streaming.query_checkpoint import BatchOffsets, Checkpoint
from spark_ext.streaming.source_plan import StreamPlan
from spark_ext.support import namespace_cache
from spark_ext.support.options import read_options
from spark_ext.support.paths import normal
from tests.spark.queries import ns
from txnlog.errors import InvalidInputError

__all__ = ["ns"]  # fixtures


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
        {"entry": [7]},
        {"entry": [-7, "0"]},
        {"start": {"orders": {"0": None}}},
        {"start": {"ordert": {"0": 0}}},
        {"offsets": {"ordert": {"0": 5}}},
        {"topic_ids": {"ordert": 1}},
        {"epochs": {"ordert": 7}},
        {"start": 1},
    ],
)
def test_a_damaged_offset_is_refused_and_never_rounded(change: dict[str, Any]) -> None:
    assert StreamOffset.from_dict(json.loads(json.dumps(GOOD))).to_dict() == GOOD
    with pytest.raises(InvalidInputError, match="a damaged offset"):
        StreamOffset.from_dict(json.loads(json.dumps({**GOOD, **change})))


class PutBack:
    """A namespace that is put back to a backup, and streams of it, each in a process of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._backup = folder / "lake", folder / "backup"
        self._monkeypatch = monkeypatch

    def write(self, ids: Iterable[int], topics: int = 1) -> None:
        with txnlog.open(self.root, "sales", create=True) as ns:
            for number in range(topics):
                ns.create_topic(f"orders{number}", IDS, if_not_exists=True)
            for number in ids:
                ns.produce("orders0", [{"id": number}])

    def save(self) -> None:
        shutil.copytree(self.root, self._backup)

    def put_back(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self._backup, self.root)

    def plan(self) -> StreamPlan:
        self._monkeypatch.setattr(namespace_cache, "_handles", OrderedDict())  # as in a process that starts now
        return StreamPlan(read_options({"path": f"{self.root}/sales/orders0"}, streaming=True), {}, None)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PutBack:
    return PutBack(tmp_path, monkeypatch)


@pytest.mark.some(3)
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("topics", [1, 30])
@pytest.mark.parametrize("limit", [None, 2])
def test_a_checkpoint_that_is_ahead_of_its_namespace_is_refused_and_passes_over_nothing(
    lake: PutBack, topics: int, limit: int | None, earlier: bool
) -> None:
    """As after a restored backup: the stream would wait, and go on behind what is new."""
    lake.write(range(3))
    lake.save()
    lake.write(range(5))
    first = lake.plan()
    end = first.latest(first.initial().to_dict(), None)
    if earlier:  # offsets of the version before this one say nothing of an entry
        del end["entry"]
    assert lake.plan().latest(end, limit) == end
    lake.put_back()
    lake.write([], topics)
    with pytest.raises(
        InvalidInputError, match=r"of version \d+, but it now reads a namespace 'sales' that ends before"
    ):
        lake.plan().latest(end, limit)


@pytest.mark.parametrize("limit", [None, 2])
def test_a_namespace_that_was_put_back_and_went_on_is_not_the_one_that_a_checkpoint_is_of(
    lake: PutBack, limit: int | None
) -> None:
    """It ends behind the checkpoint by now: what came since the older state would be passed over."""
    lake.write(range(3))
    lake.save()
    lake.write(range(3, 8))
    first = lake.plan()
    start = first.initial().to_dict()
    end = first.latest(start, limit)
    assert lake.plan().partitions(start, end)
    lake.put_back()
    lake.write(range(100, 112))
    for look in (lambda: lake.plan().latest(end, limit), lambda: lake.plan().partitions(start, end)):
        with pytest.raises(InvalidInputError, match="or was put back to an older state and went on"):
            look()


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
        ranges_of_batch(ns, checkpoint, BatchOffsets(0, {"0": DEEP}), "billing")
