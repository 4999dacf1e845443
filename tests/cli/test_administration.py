"""What an administrator does: ending transactions, checkpoints, fencing, adopting a copy."""

from __future__ import annotations

import json
import pathlib
import re
import shutil

import pytest

import txnlog
from tests.cli.command_line import lines, run
from txnlog.fold import apply


def test_an_administrator_ends_a_transaction_and_gets_the_true_outcome(lake):
    path, open_one = lake
    done = run(path, "transactions", "abort", str(open_one.id), "--why", "hanging", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "ABORTED")
    (committed,) = lines(path, "transactions", "list", "--state", "COMMITTED", "--json")
    done = run(path, "transactions", "abort", committed["txn_id"], "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (1, "COMMITTED")


def test_an_administrator_brings_the_decision_of_an_outside_system(lake):
    path, open_one = lake
    token = open_one.prepare()
    refused = run(path, "transactions", "abort", token)
    assert (refused.returncode, "or abort it by force" in refused.stderr) == (2, True)
    assert "transactions complete TOKEN --commit" in refused.stderr
    undecided = run(path, "transactions", "complete", token)
    assert (undecided.returncode, "give --commit or --abort" in undecided.stderr) == (2, True)
    for both in (("--commit", "--abort"), ("--abort", "--commit")):
        assert run(path, "transactions", "complete", token, *both).returncode == 2
    (still,) = lines(path, "transactions", "describe", token, "--json")
    assert still["state"] == "PREPARED"
    done = run(path, "transactions", "complete", token, "--commit")
    assert done.stdout.startswith("committed at version ")
    assert run(path, "transactions", "complete", token, "--commit").stdout == done.stdout
    assert run(path, "transactions", "complete", token, "--abort").returncode == 2


def test_a_checkpoint_is_made_where_the_newest_one_is_damaged(lake, caplog):
    path, _ = lake
    with txnlog.open(path) as ns:
        ns.checkpoint()
        ns.produce("orders", [{"value": b"three"}])
    (manifest,) = (pathlib.Path(path) / "_log" / "checkpoints").glob("*.json")
    manifest.chmod(0o644)
    manifest.write_bytes(manifest.read_bytes()[:40])
    assert run(path, "topics").returncode == 0
    assert manifest.name in caplog.text
    assert run(path, "checkpoint").returncode == 0
    caplog.clear()
    assert lines(path, "topics", "--json") == [{"topic": "orders", "partitions": 2, "messages": 3}]
    assert caplog.text == ""


def test_a_checkpoint_and_a_fence_are_appended(lake):
    path, _ = lake
    assert run(path, "checkpoint").stdout.startswith("checkpoint at version ")
    assert "which nobody owns" in run(path, "producers", "fence", "loader").stdout
    assert run(path, "topic", "create", "audit", "--partitions", "3").stdout == "topic audit with 3 partitions\n"
    dropped = run(path, "topic", "drop", "audit", "--yes")
    assert (dropped.returncode, dropped.stdout) == (0, "")
    (way_back,) = re.findall(r"txnlog ROOT/NAMESPACE (read audit --version \d+)$", dropped.stderr.strip())
    assert run(path, *way_back.split()).returncode == 0


def test_a_copy_is_adopted(lake, tmp_path):
    path, open_one = lake
    shutil.copytree(path, tmp_path / "copies" / "sales")
    copy = str(tmp_path / "copies" / "sales")
    assert lines(copy, "topics", "--json") == [{"topic": "orders", "partitions": 2, "messages": 2}]
    refused = run(copy, "topic", "create", "more")
    assert refused.returncode == 2
    assert f"of the root: txnlog '{copy}' adopt; " in refused.stderr
    assert lines(copy, "adopt", "--json") == [{"namespace": "sales", "coordinator": 1}]
    assert run(copy, "topic", "create", "more").returncode == 0
    (found,) = lines(copy, "transactions", "list", "--state", "open", "--json")
    assert found["txn_id"] == str(open_one.id)
    again = run(copy, "adopt")
    assert (again.returncode, "adopt it all the same: --force; " in again.stderr) == (2, True)
    assert lines(copy, "adopt", "--force", "--json") == [{"namespace": "sales", "coordinator": 2}]
    missing = run(str(tmp_path / "copies" / "slaes"), "adopt")
    assert missing.returncode == 2
    assert "did you mean 'sales'" in missing.stderr


def test_a_checkpoint_of_a_command_is_found_by_those_who_open_the_namespace_later(lake):
    """The command ends behind it, and only headers of entries name checkpoints."""
    path, _ = lake
    made = int(run(path, "checkpoint").stdout.split()[-1])
    with txnlog.open(path, mode="r") as ns:
        assert ns._connection.follower.newest_usable_checkpoint == made
        newest = ns.snapshot().version
    assert newest == made + 1
    again = run(path, "checkpoint")
    with txnlog.open(path, mode="r") as ns:
        assert (again.returncode, ns.snapshot().version) == (0, newest), "entries that name entries would never end"


@pytest.fixture
def newer(monkeypatch):
    """A txnlog that knows two features."""
    monkeypatch.setattr(apply, "READER_FEATURES", frozenset({"columns"}))
    monkeypatch.setattr(apply, "WRITER_FEATURES", frozenset({"columns", "archive"}))


@pytest.mark.usefixtures("newer")
def test_a_feature_is_enabled_after_a_question_and_shown_by_doctor(lake):
    path, _ = lake
    asked = run(path, "enable", "archive")
    assert (asked.returncode, "Enable 'archive' in 'sales', for ever?" in asked.stdout) == (1, True)
    (enabled,) = lines(path, "enable", "archive", "--yes", "--json")
    assert enabled == {"reader_features": [], "writer_features": ["archive"]}
    again = run(path, "enable", "archive")
    assert (again.returncode, again.stdout) == (0, 'reader_features  []\nwriter_features  ["archive"]\n')
    (enabled,) = lines(path, "enable", "columns", "--yes", "--json")
    assert enabled == {"reader_features": ["columns"], "writer_features": ["archive", "columns"]}
    assert "version 1; readers need 'columns'; writers need 'archive', 'columns'" in run(path, "doctor").stdout


def test_nobody_is_asked_about_a_feature_that_this_txnlog_does_not_know(lake):
    path, _ = lake
    before = lines(path, "history", "--limit", "1", "--json")
    done = run(path, "enable", "archive")
    assert (done.returncode, done.stdout, "knows no feature 'archive'" in done.stderr) == (2, "", True)
    assert lines(path, "history", "--limit", "1", "--json") == before
