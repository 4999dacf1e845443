"""Metrics, tables and the history, for people as columns and for programs as JSON lines or text."""

from __future__ import annotations

import pytest

import txnlog
from tests.cli.command_line import lines, run
from tests.open_metrics import parsed
from txnlog.api.tables import TABLES


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


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_has_its_columns_for_people_and_for_programs(lake, name):
    path, _ = lake
    heading, *shown = run(path, "table", name).stdout.splitlines()
    assert heading.split() == TABLES[name].schema.names
    found = lines(path, "table", name, "--json")
    assert len(found) == len(shown) > 0
    assert all(list(row) == TABLES[name].schema.names for row in found)
    first = lines(path, "table", name, "--limit", "1", "--json")
    assert [without_ages(row) for row in first] == [without_ages(row) for row in found[:1]]


def without_ages(row):
    """What a row says that does not grow from one call to the next."""
    return {column: value for column, value in row.items() if column not in {"age_ms", "lag_ms"}}


def test_a_table_for_people(lake):
    path, _ = lake
    assert run(path, "table", "producers").stdout.splitlines() == [
        "producer  epoch  open_transactions  fenced_by",
        "loader    2      0",
    ]
    for options in ((), ("--json",)):
        assert run(path, "producers", "list", *options).stdout == run(path, "table", "producers", *options).stdout
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


def test_an_unknown_table_is_refused_with_the_names_of_all(lake):
    done = run(lake[0], "table", "segment")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'segment' is not one of" in done.stderr
    assert [name for name in TABLES if f"'{name}'" not in done.stderr] == []


def test_the_history_is_that_of_the_log(lake):
    path, _ = lake
    newest, before = lines(path, "history", "--limit", "2", "--json")
    assert newest["version"] == before["version"] + 1
    assert newest["actions"] == {"begin": 1, "segment": 1}
    assert before["transactions_committed"] == 0
    shown = run(path, "history", "--limit", "1").stdout.splitlines()
    columns = ["version", "timestamp", "writer", "actions", "transactions_committed", "size_bytes", "rows", "client"]
    assert shown[0].split() == columns
    assert "1 begin, 1 segment" in shown[1]
    assert len(shown) == 2
    entries = lines(path, "history", "--json")
    assert [row["version"] for row in entries] == list(range(newest["version"], -1, -1))
    assert [row["rows"] for row in entries if row["rows"]] == [{"orders": 2}]
    assert [line for line in run(path, "history").stdout.splitlines() if "  2 orders  " in line]


@pytest.mark.parametrize("options", [(), ("--json",), ("--limit", "3"), ("--limit", "0", "--json")])
def test_the_log_without_a_version_is_its_history(lake, options):
    shown, history = run(lake[0], "log", "show", *options), run(lake[0], "history", *options)
    assert (shown.returncode, shown.stdout) == (0, history.stdout)


@pytest.mark.parametrize("command", [("table", "files"), ("history",)])
def test_a_negative_limit_is_refused(lake, command):
    assert run(lake[0], *command, "--limit", "-1").returncode == 2
