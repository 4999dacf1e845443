"""Topics are altered and dropped, and what cannot be is refused."""

from __future__ import annotations

import re

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

import txnlog
from tests.cli.command_line import lines, run
from txnlog.cli.main import cli


def test_nobody_is_asked_about_a_topic_that_is_not_there(lake):
    done = run(lake[0], "topic", "drop", "order")
    assert (done.returncode, "did you mean 'orders'?" in done.stderr, done.stdout) == (2, True, "")
    asked = run(lake[0], "topic", "drop", "orders")
    question = (
        r"Drop the topic 'orders' of '\w+' \([0-9,]+ messages were written to it\) and its subscriptions \(\w+\)\?"
    )
    assert (asked.returncode, bool(re.search(question, asked.stdout))) == (1, True), asked.stdout
    assert lines(lake[0], "topics", "--json")


def test_deleted_messages_are_not_counted(tmp_path):
    path = str(tmp_path / "lake/ns")
    with txnlog.open(path, create=True) as ns:
        ns.create_topic("orders", pa.schema([("id", pa.int64())]))
        ns.produce("orders", [{"id": number} for number in range(5)])
        ns.delete_records("orders", {0: 3})
    assert lines(path, "topics", "--json") == [{"topic": "orders", "partitions": 1, "messages": 2}]
    (found,) = lines(path, "topic", "describe", "orders", "--json")
    assert (found["start_offsets"], found["end_offsets"]) == ({"0": 3}, {"0": 5})
    assert "1 of 2 rows" in run(path, "read", "orders", "--limit", "1").stderr


def test_no_more_is_deleted_than_was_asked_about(tmp_path, monkeypatch):
    path = str(tmp_path / "lake/ns")
    with txnlog.open(path, create=True) as ns:
        ns.create_topic("orders", pa.schema([("id", pa.int64())]))
        ns.produce("orders", [{"id": 0}])

        def confirm(text, **_):
            ns.produce("orders", [{"id": 1}, {"id": 2}])  # while the question waits for its answer
            return "Delete 1 messages" in text

        monkeypatch.setattr(click, "confirm", confirm)
        CliRunner().invoke(cli, [path, "delete-records", "orders", "--before", "latest"], catch_exceptions=False)
        assert ns.snapshot().read("orders")["id"].to_pylist() == [1, 2]


def test_a_time_without_a_zone_is_shown_as_it_was_given(lake):
    done = run(lake[0], "read", "orders", "--timestamp", "2026-11-29")
    assert (done.returncode, "not '2026-11-29' " in done.stderr) == (2, True), done.stderr


def test_a_topic_is_altered(lake):
    path, _ = lake
    add = ("--add", "note:string", "--add", "price:decimal(10,2)", "--add", "at:timestamp")
    (found,) = lines(path, "topic", "alter", "orders", *add, "--property", "user.owner=ann", "--delta", "off", "--json")
    assert found["columns"]["price"] == "decimal128(10, 2)"
    assert found["properties"] == {"user.owner": "ann", "txnlog.delta": "off"}
    done = run(path, "topic", "alter", "orders", "--widen", "price:decimal(12,4)", "--property", "user.owner=")
    assert (done.returncode, done.stderr) == (0, "")
    (found,) = lines(path, "topic", "describe", "orders", "--json")
    assert list(found["columns"]) == ["key", "value", "headers", "note", "price", "at"]
    assert found["columns"]["price"] == "decimal128(12, 4)"
    assert found["properties"] == {"txnlog.delta": "off"}


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("int", "int32"),
        ("INT", "int32"),
        ("integer", "int32"),
        ("bigint", "int64"),
        ("smallint", "int16"),
        ("tinyint", "int8"),
        ("int64", "int64"),
        ("bool", "bool"),
        ("date32[day]", "date32[day]"),
        ("timestamp[us, tz=UTC]", "timestamp[us, tz=UTC]"),
        ("real", "float"),
        ("decimal(10, 2)", "decimal128(10, 2)"),
        ("DECIMAL( 10 , 2 )", "decimal128(10, 2)"),
        ("numeric(10,2)", "decimal128(10, 2)"),
        (" string ", "string"),
    ],
)
def test_a_type_may_have_the_name_that_spark_sql_gives_it(lake, given, means):
    (found,) = lines(lake[0], "topic", "alter", "orders", "--add", f"note:{given}", "--json")
    assert found["columns"]["note"] == means


def test_a_column_that_refuses_null_is_shown_as_one(lake):
    with txnlog.open(lake[0]) as ns:
        ns.create_topic("strict", pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string())]))
    (found,) = lines(lake[0], "topic", "describe", "strict", "--json")
    assert found["columns"] == {"id": "int64 not null", "note": "string"}


def test_a_type_that_is_none_is_answered_with_those_that_are(lake):
    for text in (
        "note:decimal(39,2)",
        "note:decimal(2,10)",
        "note:varchar(10)",
        "note:int(4)",
        "note:big int",
        "note:",
    ):
        done = run(lake[0], "topic", "alter", "orders", "--add", text)
        assert done.returncode == 2
        assert "or a decimal like decimal(10,2) of at most 38 digits" in done.stderr
        assert "in Python" not in done.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--add", "note"), "'note' is not of the form NAME:VALUE"),
        (("--add", "note:text"), "unknown column type 'text'"),
        (("--widen", "value:string"), "does not widen"),
        (("--property", "owner"), "not of the form NAME=VALUE"),
        (("--delta", "perhaps"), "Invalid value"),
    ],
)
def test_an_alteration_that_cannot_be_is_refused(lake, options, told):
    done = run(lake[0], "topic", "alter", "orders", *options)
    assert done.returncode == 2
    assert told in done.stderr


def test_retention_is_set_shown_and_taken_away(lake):
    path, _ = lake
    settings = ("--retention-ms", "7d", "--retention-bytes", "10GiB", "--message-ttl-ms", "30d")
    (found,) = lines(path, "topic", "alter", "orders", *settings, "--json")
    assert found["properties"] == {
        "txnlog.retention_ms": "604800000",
        "txnlog.retention_bytes": "10737418240",
        "txnlog.message_ttl_ms": "2592000000",
    }
    (shown,) = lines(path, "retention", "--json")
    assert (shown["topic"], shown["retention_ms"], shown["due_messages"]) == ("orders", 604_800_000, 0)
    assert run(path, "retention").stdout.splitlines()[1].split()[:4] == ["orders", "7d", "10737418240", "30d"]
    taken = ("--retention-ms", "-1", "--retention-bytes", "-1", "--message-ttl-ms", "-1")
    assert lines(path, "topic", "alter", "orders", *taken, "--json")[0]["properties"] == {}
    refused = run(path, "topic", "alter", "orders", "--retention-bytes", "5x")
    assert (refused.returncode, "--retention-bytes is a number of bytes" in refused.stderr) == (2, True)


def test_what_retention_deletes_and_who_holds_it_back_is_shown(lake):
    path, _ = lake
    run(path, "topic", "alter", "orders", "--retention-ms", "1")
    heading, row = run(path, "retention").stdout.splitlines()
    assert heading.split()[-3:] == ["due_messages", "kept_messages", "kept_for"]
    assert row.split()[-2:] == ["billing", "2"]
    (shown,) = lines(path, "retention", "orders", "--json")
    assert [(item["subscription"], item["messages"]) for item in shown["kept_for"]] == [("billing", 2)]


def test_records_are_deleted_by_offset_and_by_name(lake):
    path, _ = lake
    refused = run(path, "delete-records", "orders", "--before", "1:1", "--yes")
    assert refused.returncode == 2
    assert "pass --allow-unacknowledged" in refused.stderr
    run(path, "subscriptions")
    meant = ("--allow-unacknowledged", "--json")
    (found,) = lines(path, "delete-records", "orders", "--before", "1=1", "--dry-run", *meant)
    assert (found["messages"], found["version"], found["start_offsets"]) == (1, None, {"0": 0, "1": 1})
    asked = run(path, "delete-records", "orders", "--before", "1:1", "--allow-unacknowledged")
    assert (asked.returncode, "Delete 1 messages of 'orders'" in asked.stdout) == (1, True)
    (found,) = lines(path, "delete-records", "orders", "--before", "1:1", "--yes", *meant)
    assert found["messages"] == 1
    (found,) = lines(path, "delete-records", "orders", "--before", "latest", "--yes", *meant)
    assert (found["messages"], lines(path, "read", "orders", "--json")) == (1, [])
    wrong = run(path, "delete-records", "orders", "--before", "0:x", "--yes")
    assert (wrong.returncode, "not of the form PARTITION=OFFSET" in wrong.stderr) == (2, True)


def test_deleted_records_are_counted_by_the_subscriptions_that_had_not_acknowledged_them(lake):
    path, _ = lake
    with txnlog.open(path) as ns:
        for _ in range(2):
            ns.produce("orders", [{"value": b"more"}] * 2, partition=1)
        ns.create_subscription("orders", "audit")
        ns.create_subscription("orders", "late", start="latest")
        with ns.consumer("orders", "audit") as consumer:
            messages = consumer.receive(6, timeout_ms=0)
            consumer.acknowledge(messages[0])
            consumer.acknowledge(messages[2])
    asked = ("delete-records", "orders", "--allow-unacknowledged", "--before")
    question = run(path, *asked, "1=4")
    assert (question.returncode, question.stdout.partition("?")[0]) == (
        1,
        "Delete 4 messages of 'orders' of 'sales' (not acknowledged: audit 2, billing 4), for ever",
    )
    (foreseen,) = lines(path, *asked, "1=3", "--dry-run", "--json")
    assert foreseen["unacknowledged"] == {"audit": 1, "billing": 3}
    done = run(path, *asked, "1=3", "--yes")
    assert [line.split(None, 1)[-1] for line in done.stdout.splitlines()][2:] == [
        "3",
        '{"0": 0, "1": 3}',
        "false",
        "audit 1, billing 3",
    ]
    (rest,) = lines(path, *asked, "latest", "--yes", "--json")
    assert (rest["messages"], rest["unacknowledged"]) == (3, {"audit": 3, "billing": 3})
    (nothing,) = lines(path, *asked, "latest", "--yes", "--json")
    assert (nothing["messages"], nothing["unacknowledged"]) == (0, {})
