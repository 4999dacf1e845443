"""Metrics, tables and the history, for people as columns and for programs as JSON lines or text."""

from __future__ import annotations

import pytest

import txnlog
from tests.cli.command_line import lines, run
from tests.open_metrics import parsed
from txnlog.api.tables import SCHEMAS


def test_metrics_are_printed_as_the_handle_gives_them(lake):
    path, _ = lake
    done = run(path, "metrics")
    assert done.returncode == 0
    found = parsed(done.stdout)
    assert found["txnlog_topic_messages"].total(topic="orders") == 2
    assert found["txnlog_unended_transactions"].value(state="OPEN") == 1
    with txnlog.open(path, mode="r") as ns:
        assert list(found) == list(parsed(ns.metrics()))
    by_partition = parsed(run(path, "metrics", "--partitions").stdout)
    lag = by_partition["txnlog_subscription_partition_lag_messages"]
    assert {number: lag.value(subscription="billing", partition=number) for number in ("0", "1")} == {"0": 0, "1": 2}


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_a_table_has_its_columns_for_people_and_for_programs(lake, name):
    path, _ = lake
    heading, *shown = run(path, "table", name).stdout.splitlines()
    assert heading.split() == SCHEMAS[name].names
    found = lines(path, "table", name, "--json")
    assert len(found) == len(shown) > 0
    assert all(list(row) == SCHEMAS[name].names for row in found)
    assert lines(path, "table", name, "--limit", "1", "--json") == found[:1] or name in {
        "transactions",
        "subscriptions",
    }


def test_a_table_for_people(lake):
    path, _ = lake
    assert run(path, "table", "producers").stdout.splitlines() == [
        "producer  epoch  open_transactions  fenced_by",
        "loader    2      0",
    ]
    with txnlog.open(path) as ns:
        ns.drop_topic("orders")
    assert run(path, "table", "subscriptions").stdout == "(none)\n"
    assert lines(path, "table", "subscriptions", "--json") == []


def test_people_hear_of_rows_of_a_table_that_are_not_printed(lake):
    path, _ = lake

    def said(*options):
        done = run(path, "table", "history", *options)
        return len(done.stdout.splitlines()), done.stderr

    with txnlog.open(path, mode="r") as ns:
        entries = ns.snapshot().version + 1
    assert said() == said("--limit", str(entries)) == (entries + 1, "")
    assert said("--limit", "2") == (3, "2 rows, and there are more: --limit N prints the first N.\n")
    assert said("--limit", "2", "--json") == (2, "")


def test_an_unknown_table_is_refused_with_the_nearest_name(lake):
    done = run(lake[0], "table", "segment")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no table 'segment' (did you mean 'segments'?)" in done.stderr


def test_the_history_is_that_of_the_log(lake):
    path, _ = lake
    newest, before = lines(path, "history", "--limit", "2", "--json")
    assert newest["version"] == before["version"] + 1
    assert newest["actions"] == {"begin": 1, "segment": 1}
    assert before["transactions_committed"] == 0
    shown = run(path, "history", "--limit", "1").stdout.splitlines()
    assert shown[0].split() == ["version", "timestamp", "writer", "actions", "transactions_committed", "size_bytes"]
    assert "1 begin, 1 segment" in shown[1]
    assert len(shown) == 2
    assert [row["version"] for row in lines(path, "history", "--json")] == list(range(newest["version"], -1, -1))
    assert [row["bytes"] for row in lines(path, "log", "show", "--json")] == [
        row["size_bytes"] for row in lines(path, "history", "--json")
    ]


@pytest.mark.parametrize("command", [("table", "files"), ("history",)])
def test_a_negative_limit_is_refused(lake, command):
    assert run(lake[0], *command, "--limit", "-1").returncode == 2
