"""``txnlog ROOT/NAMESPACE fsck``: what it prints, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import txnlog
from tests.cli.command_line import lines, run
from txnlog.cli import target
from txnlog.errors import StoreError
from txnlog.format import keys
from txnlog.results import Finding, FsckReport
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

CLEAN = """\
version      3
level        full
slot         4
checkpoint   0
part         0
entry        4
segment      2
file         2
transaction  0
clean
"""


@pytest.fixture
def shop(tmp_path):
    with txnlog.open(tmp_path / "lake", namespace="shop", create=True, clock=ManualClock(START_MS)) as ns:
        ns.create_topic("orders")
        ns.produce("orders", [{"value": b"one"}])
        ns.produce("orders", [{"value": b"two"}])
    return str(tmp_path / "lake" / "shop")


def segments(path):
    return sorted(Path(path).glob("orders/*/*.parquet"))


def test_a_clean_namespace_is_said_to_be_so(shop):
    done = run(shop, "fsck", "--level", "full")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == CLEAN
    (found,) = lines(shop, "fsck", "--json")
    assert (found["version"], found["level"], found["clean"], found["findings"]) == (3, "quick", True, [])
    assert found["checked"]["segment"] == 2


def test_damage_is_named_with_what_to_do_and_exit_code_2(shop):
    lost, cut = segments(shop)
    lost.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    done = run(shop, "fsck")
    assert done.returncode == 2
    said = [line for line in done.stdout.splitlines() if line.startswith("damage: ")]
    assert len(said) == 2
    assert all(re.search(r"segment \S*orders/_txnlog_segment=\d+/[0-9a-f]{32}\.parquet", line) for line in said)
    assert all("restore the object from a copy" in line and "docs/operations/damage.md" in line for line in said)
    assert "clean" not in done.stdout.splitlines()
    done = run(shop, "fsck", "--json")
    assert done.returncode == 2
    assert [item["severity"] for item in json.loads(done.stdout)["findings"]] == ["damage", "damage"]


def test_a_namespace_that_cannot_be_opened_is_checked(shop):
    entry = Path(shop) / keys.entry_key(0)
    entry.write_bytes(entry.read_bytes()[:-5])
    assert run(shop, "topics").returncode == 2
    done = run(shop, "fsck", "--level", "deep", "--json")
    assert done.returncode == 2
    worst = json.loads(done.stdout)["findings"][0]
    assert (worst["severity"], worst["key"]) == ("damage", keys.entry_key(0))


def test_warnings_alone_have_exit_code_1_and_name_a_command(shop):
    with txnlog.open(shop, clock=ManualClock(START_MS)) as ns:
        txn = ns.begin(timeout_ms=1_000)
        txn.produce("orders", [{"value": b"open"}])
        txn.flush()
        done = run(shop, "fsck")
        assert done.returncode == 1
        assert f"warning: the transaction {txn.id} is open" in done.stdout
        assert "'transactions abort TXN_ID'" in done.stdout
        txn.abort()


@pytest.mark.parametrize(
    ("severities", "code"),
    [
        ((), 0),
        (("note",), 0),
        (("warning", "note"), 1),
        (("unchecked", "warning"), 3),
        (("damage", "unchecked", "warning"), 2),
    ],
)
def test_the_worst_finding_decides_the_exit_code(shop, monkeypatch, severities, code):
    findings = tuple(Finding(severity, "entry", "key", "what", "advice") for severity in severities)
    monkeypatch.setattr(target, "check_namespace", lambda *_, **__: FsckReport(1, "quick", {}, findings))
    assert run(shop, "fsck").returncode == code


def test_what_ends_it_is_never_taken_for_a_warning(shop, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    def away(*_arguments, **_options):
        raise StoreError("the store is away")

    monkeypatch.setattr(target, "check_namespace", interrupted)
    done = run(shop, "fsck")
    assert (done.returncode, "Interrupted" in done.stderr) == (3, True)
    monkeypatch.setattr(target, "check_namespace", away)
    assert run(shop, "fsck").returncode == 3


def test_a_namespace_that_is_not_there_is_refused_as_by_every_command(shop):
    done = run(f"{shop}s", "fsck")
    assert (done.returncode, done.stdout) == (2, "")
    assert "NamespaceNotFound" in done.stderr
    assert "shop" in done.stderr


def test_an_unknown_level_is_refused(shop):
    assert run(shop, "fsck", "--level", "all").returncode == 2
