"""``txnlog ROOT/NAMESPACE repair``: what it prints, and its exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import txnlog
from tests.cli.command_line import run
from txnlog.cli import target
from txnlog.format import keys
from txnlog.results import Repaired, RepairedObject
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


@pytest.fixture
def shop(tmp_path):
    with txnlog.open(tmp_path / "lake", namespace="shop", create=True, clock=ManualClock(START_MS)) as ns:
        ns.create_topic("orders")
        for value in (b"one", b"two", b"three"):
            ns.produce("orders", [{"value": value}])
        ns.checkpoint()
    shutil.copytree(tmp_path / "lake" / "shop", tmp_path / "copy")
    return tmp_path / "lake" / "shop"


@pytest.fixture
def copy(tmp_path, shop):
    return str(tmp_path / "copy")


def segments(path):
    return sorted(Path(path).glob("orders/*/*.parquet"))


def test_nothing_to_repair_is_said_to_be_so(shop):
    done = run(str(shop), "repair")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "version  4\ndry_run  false\nclean\n"


def test_a_namespace_that_cannot_be_opened_is_repaired_from_a_copy(shop, copy):
    lost = keys.entry_key(2)
    (shop / lost).unlink()
    (shop / keys.entry_key(3)).write_bytes(b"{")
    assert run(str(shop), "topics").returncode == 2
    foreseen = run(str(shop), "repair", "--source", copy, "--dry-run")
    assert (foreseen.returncode, foreseen.stdout.splitlines()[-1]) == (1, "would be clean")
    assert f"would be repaired: {lost}: brought back from the copy\n" in foreseen.stdout
    assert not (shop / lost).exists()
    done = run(str(shop), "repair", "--source", copy)
    assert done.returncode == 0
    assert f"repaired: {lost}: brought back from the copy\n" in done.stdout
    assert done.stdout.endswith("clean\n")
    assert run(str(shop), "fsck", "--level", "full").returncode == 0
    assert len(list((shop / "_log" / "replaced" / "entries").iterdir())) == 1


def test_what_is_left_is_named_with_what_to_do_and_exit_code_2(shop, copy):
    segment = segments(shop)[0]
    segment.write_bytes(b"?")
    done = run(str(shop), "repair")
    assert done.returncode == 2
    assert "damage: the segment orders/" in done.stdout
    assert "restore the object from a copy" in done.stdout
    assert "clean" not in done.stdout
    json_done = run(str(shop), "repair", "--source", copy, "--json")
    assert json_done.returncode == 0
    (record,) = map(json.loads, json_done.stdout.splitlines())
    assert (record["version"], record["dry_run"], record["clean"]) == (4, False, True)
    assert [(item["kind"], item["done"], item["left"]) for item in record["objects"]] == [
        ("segment", "brought back from the copy", "")
    ]


def test_warnings_that_are_left_are_exit_code_1(shop, copy):
    (shop / keys.entry_key(4)).unlink()
    done = run(str(shop), "repair", "--source", copy)
    assert done.returncode == 1
    assert "warning: the log ends at version 3, and the copy goes on behind it" in done.stdout


def test_what_could_not_be_written_is_exit_code_3(shop, monkeypatch):
    (segment,) = segments(shop)[:1]
    what = RepairedObject("segment", segment.name, "", "it could not be repaired: no right", "unchecked", "give it")
    monkeypatch.setattr(target, "repair_namespace", lambda *_, **__: Repaired(4, False, (what,)))
    done = run(str(shop), "repair")
    assert done.returncode == 3
    assert "unchecked: it could not be repaired: no right (give it)" in done.stdout


def test_a_wrong_source_is_refused(shop):
    done = run(str(shop), "repair", "--source", str(shop))
    assert done.returncode == 2
    assert "is the namespace itself" in done.stderr
    assert run(str(shop), "repair", "--source-storage-options", "{").returncode == 2
