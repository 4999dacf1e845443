"""Vacuum, optimize and maintain: what they say before, and what they do."""

from __future__ import annotations

import json
import os
import pathlib
import re

import click
import pytest

import txnlog
from tests.cli.command_line import lines, run
from txnlog.cli import maintenance
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


def test_vacuum_says_what_it_deletes_and_asks_first_on_demand(lake):
    path, open_one = lake
    open_one.abort()
    (found,) = lines(path, "vacuum", "--dry-run", "--json")
    assert (found["dry_run"], found["aborted_files"], found["kept_files"]) == (True, 0, 2)
    done = run(path, "vacuum", "--retain-ms", "1h")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["dry_run", "false"]
    assert done.stderr == "", "nobody looks at a terminal"
    refused = run(path, "vacuum", "--grace-ms", "5")
    assert refused.returncode == 2
    assert "--grace-ms" in refused.stderr


@pytest.mark.parametrize("command", ["maintain", "vacuum", "optimize", "checkpoint"])
def test_who_interrupts_it_hears_that_it_goes_on_when_it_is_run_again(lake, monkeypatch, command):
    path, _ = lake

    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(txnlog.Namespace, command, interrupted)
    done = run(path, command, *(["orders"] if command == "optimize" else []))
    assert done.returncode == 3
    assert done.stderr.endswith("\nInterrupted: what was done stays. Run the same command again to go on.\n")


@pytest.fixture
def old(tmp_path):
    """A namespace of long ago, with segments that were merged, and a topic that was dropped."""
    with txnlog.open(tmp_path / "old", namespace="sales", create=True, clock=ManualClock(START_MS)) as ns:
        for topic in ("orders", "audit"):
            ns.create_topic(topic)
            for number in range(3):
                ns.produce(topic, [{"value": b"%d" % number}])
        ns.optimize("orders")
        ns.drop_topic("audit")
        yield str(tmp_path / "old" / "sales")


def parquet(path):
    return [file for file in pathlib.Path(path).rglob("*.parquet") if "_log" not in file.parts]


def test_vacuum_prints_what_it_makes_unreadable_before_it_deletes_and_asks_on_a_terminal(old, monkeypatch):
    told = r"versions 0 to \d+ \(2026-01-01T00:00:00\+00:00 to .*\) cannot be read any more\n"
    told += r"  orders: 3 segments, [0-9,]+ bytes\n  audit \(dropped\): 3 segments, [0-9,]+ bytes\n"
    done = run(old, "vacuum", "--dry-run")
    assert re.fullmatch(told, done.stderr)
    assert "unreadable" not in done.stdout
    assert len(parquet(old)) == 7
    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "_is_terminal", lambda: True)
        patch.setattr(click, "confirm", lambda *_, **options: (_ for _ in ()).throw(click.Abort()))
        done = run(old, "vacuum")
        assert done.returncode == 1
        assert re.match(told, done.stderr), "it is said before anybody is asked"
        assert len(parquet(old)) == 7
        with txnlog.open(old, mode="r") as ns:
            ns.snapshot(version=0)
        done = run(old, "vacuum", "--yes")
    assert re.match(told, done.stderr)
    assert (done.returncode, len(parquet(old))) == (0, 1)
    assert run(old, "vacuum").stderr == "", "nothing more becomes unreadable"


def test_vacuum_in_a_pipe_says_what_it_makes_unreadable_and_goes_on(old):
    done = run(old, "vacuum", "--json")
    assert (done.returncode, len(parquet(old))) == (0, 1)
    assert done.stderr.startswith("versions 0 to ")
    found = json.loads(done.stdout)
    assert (found["replaced_files"], found["dropped_files"]) == (3, 3)
    assert [(item["topic"], item["segments"], item["dropped"]) for item in found["unreadable"]["topics"]] == [
        ("orders", 3, False),
        ("audit", 3, True),
    ]


def test_maintain_says_what_it_makes_unreadable(old):
    assert run(old, "maintain").stderr.startswith("versions 0 to ")
    assert len(parquet(old)) >= 1


@pytest.mark.parametrize("command", ["vacuum", "maintain"])
@pytest.mark.parametrize("given", ["0", "60", "604800", "59m", "3599999"])
def test_a_retention_below_an_hour_is_refused_unless_it_is_meant(old, command, given):
    done = run(old, command, "--retain-ms", given)
    assert (done.returncode, len(parquet(old))) == (2, 7)
    assert "is less than 1h" in done.stderr
    assert "7d" in done.stderr
    meant = run(old, command, "--retain-ms", given, "--allow-short-retention")
    assert meant.returncode == 0, meant.stderr


@pytest.mark.parametrize(
    "arguments", [("vacuum", "--retain-ms", "a week"), ("transactions", "list", "--min-age-ms", "1w")]
)
def test_a_length_of_time_is_given_with_a_unit_or_an_error_shows_examples(old, arguments):
    done = run(old, *arguments)
    assert done.returncode == 2
    assert '"500ms", "30s", "15m", "36h", "7d"' in done.stderr
    assert run(old, "transactions", "list", "--min-age-ms", "90s").returncode == 0


def test_small_segments_are_merged_and_a_namespace_is_looked_after(lake):
    path, _ = lake
    with txnlog.open(path) as ns:
        for number in range(6):
            ns.produce("orders", [{"value": b"%d" % number}], partition=0)
        target = 3 * max(item.size_bytes for item in ns.snapshot().plan("orders").segments)
    (found,) = lines(path, "optimize", "orders", "--dry-run", "--json")
    assert (found["dry_run"], found["merged_segments"]) == (True, 6)
    done = run(path, "optimize", "orders", "--target-size-bytes", str(target), "--max-bytes", "0")
    assert done.returncode == 1, "there is more to do"
    assert done.stderr == "", "nobody looks at a terminal"
    (found,) = lines(path, "maintain", "--json")
    assert (found["finished"], found["failures"], found["published"]) == (True, {}, [])
    assert found["optimized"][0]["topic"] == "orders"
    assert found["vacuumed"]["deleted_bytes"] == 0
    (found,) = lines(path, "optimize", "orders", "--json")
    assert (found["entries"], found["finished"]) == (0, True)
    assert run(path, "optimize", "orders").stdout == "nothing to do: orders has no small segments to merge\n"
    with txnlog.open(path, mode="r") as ns:
        assert len(ns.snapshot().plan("orders").segments) == 2
        (key,) = [item.key for item in ns.snapshot().plan("orders").segments if item.file_rows == 6]
    os.remove(f"{path}/{key}")
    with txnlog.open(path) as ns:
        ns.produce("orders", [{"value": b"x"}], partition=0)
    done = run(path, "maintain")
    assert done.returncode == 2
    assert done.stdout.startswith("checkpoint")
    assert "\nvacuumed:\nversion " in done.stdout
    others, _, failures = done.stdout.partition("\nfailures:\norders: ")
    assert "is missing" in failures
    assert "optimized:" not in others, "nothing was merged"


def test_maintain_says_in_paragraphs_what_it_did(lake):
    path, _ = lake
    with txnlog.open(path) as ns:
        for number in range(12):
            ns.produce("orders", [{"value": b"%d" % number}], partition=0)
    done = run(path, "maintain")
    assert done.returncode == 0, done.stderr
    titles = [line.split() for line in done.stdout.splitlines()]
    assert titles[:3] == [["checkpoint", titles[0][1]], ["published"], ["finished", "true"]]
    assert [line for line in done.stdout.splitlines() if line.endswith(":")] == ["optimized:", "vacuumed:"]
    assert titles[titles.index(["optimized:"]) + 1][:3] == ["topic", "version", "merged_segments"]


def test_a_topic_is_compacted_by_its_key_and_rows_are_erased(lake):
    path, _ = lake
    assert run(path, "topic", "create", "prices", "--key", "key", "--cleanup-policy", "compact").returncode == 2
    assert run(path, "enable", "holes", "--yes").returncode == 0
    made = run(path, "topic", "create", "prices", "--key", "key", "--cleanup-policy", "compact", "--statistics", "off")
    assert made.returncode == 0, made.stderr
    with txnlog.open(path) as ns:
        for value in (b"1", b"2", b"3"):
            ns.produce("prices", [{"key": b"apple", "value": value}, {"key": b"pear", "value": value}])
    (found,) = lines(path, "compact", "prices", "--dry-run", "--json")
    assert (found["removed_messages"], found["dry_run"]) == (4, True)
    (found,) = lines(path, "compact", "prices", "--json")
    assert (found["removed_messages"], found["finished"]) == (4, True)
    assert run(path, "compact", "prices").stdout.startswith("nothing to do: no message of prices")
    condition = ["--where", '["key", "in", ["apple", "plum"]]', "--where", '["value", "==", "3"]']
    asked = run(path, "erase", "prices", *condition, given=b"n\n")
    assert "Erase 1 rows of 'prices'" in asked.stdout
    assert asked.returncode == 1
    done = run(path, "erase", "prices", *condition, "--yes", "--json")
    assert done.returncode == 1, "older versions show the row"
    found = json.loads(done.stdout)
    assert (found["erased_messages"], found["is_complete"], found["bounds"]) == (1, False, [])
    assert {item["why"] for item in found["waiting"]} == {"older versions show it"}
    with txnlog.open(path, mode="r") as ns:
        assert ns.snapshot().read("prices").to_pylist() == [{"key": b"pear", "value": b"3", "headers": None}]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("id = 1", "is not of the form"),
        ('["key", "=", "apple"]', "compares with one of"),
        ('["key", "==", ["apple"]]', "a list of values stands behind in"),
        ('["headers", "==", "apple"]', "is no map"),
        ('["nobody", "==", "apple"]', "there is no column 'nobody'"),
        ('["key", [], "apple"]', "compares with one of"),
        ('["key", "==", 5]', "5 is no binary"),
        ('["key", "in", ["apple", true]]', "True is no binary"),
    ],
)
def test_a_condition_that_makes_no_sense_erases_nothing(lake, condition, said):
    path, _ = lake
    run(path, "enable", "holes", "--yes")
    done = run(path, "erase", "orders", "--where", condition, "--yes")
    assert done.returncode == 2
    assert said in done.stderr
