"""What is listed and described, for people as columns and for programs as JSON lines."""

from __future__ import annotations

import datetime
import inspect
import json
import re

import pyarrow as pa
import pytest

import txnlog
from tests.cli.command_line import lines, run
from txnlog import results
from txnlog.cli.output import Printer


def test_listings_are_json_lines_on_demand(lake):
    path, open_one = lake
    assert lines(path, "topics", "--json") == [{"topic": "orders", "partitions": 2, "messages": 2}]
    (billing,) = lines(path, "subscriptions", "orders", "--json")
    assert (billing["subscription"], billing["cursors"]) == ("billing", {"0": 0, "1": 0})
    assert [row["behind_messages"] for row in lines(path, "lag", "orders", "billing", "--json")] == [0, 2]
    (shown,) = lines(path, "transactions", "list", "--state", "OPEN", "--json")
    assert shown["txn_id"] == str(open_one.id)
    assert [row["producer"] for row in lines(path, "producers", "list", "--json")] == ["loader"]
    assert len(lines(path, "read", "orders", "--json")) == 2
    assert lines(path, "read", "orders", "--timestamp", "2100-01-01T00:00:00Z", "--json")[1]["_offset"] == 1
    assert len(lines(path, "read", "orders", "--isolation-level", "read_uncommitted", "--json")) == 3
    assert lines(path, "log", "show", "--limit", "1", "--json")[0]["actions"] == {"begin": 1, "segment": 1}


def test_listings_are_columns_for_people(lake):
    done = run(lake[0], "topics")
    assert done.stdout.splitlines() == ["topic   partitions  messages", "orders  2           2"]


def test_an_empty_listing_says_so_to_people_alone(lake):
    asked = (lake[0], "transactions", "list", "--state", "PREPARED")
    assert run(*asked).stdout == "(none)\n"
    assert lines(*asked, "--json") == []


def test_without_a_topic_the_subscriptions_of_all_are_shown(lake):
    path, _ = lake
    with txnlog.open(path) as ns:
        ns.create_topic("audit")
        ns.create_subscription("audit", "checks")
        ns.create_subscription("orders", "more")
    everything = [("audit", "checks"), ("orders", "billing"), ("orders", "more")]

    def shown(*command):
        return [(row["topic"], row["subscription"]) for row in lines(path, *command, "--json")]

    assert shown("subscriptions") == everything
    assert shown("subscriptions", "orders") == everything[1:]
    assert sorted(set(shown("lag"))) == everything
    assert len(shown("lag", "orders")) == 4, "each by partition"
    assert set(shown("lag", "orders", "more")) == {everything[2]}
    assert run(path, "lag", "orders", "mor").returncode == 2


def test_the_newest_ended_transactions_are_listed_with_all_that_are_open(lake):
    path, open_one = lake
    with txnlog.open(path) as ns:
        first, second, third = [ns.producer().produce("orders", [{"value": b"more"}]) for _ in range(3)]
    asked = (path, "transactions", "list", "--limit", "2")
    shown = lines(*asked, "--json")
    assert shown[0]["txn_id"] == str(open_one.id)
    assert [row["version"] for row in shown[1:]] == [third.version, second.version]
    assert first.version < second.version < third.version
    assert run(*asked).stderr.startswith("2 of 4 ended transactions: --limit N")
    assert len(lines(path, "transactions", "list", "--limit", "9", "--json")) == 5


def test_people_are_shown_times_and_programs_epoch_milliseconds(lake):
    path, _ = lake
    for command in (("transactions", "list"), ("log", "show")):
        heading, *shown = run(path, *command).stdout.splitlines()
        assert "timestamp" in heading.split()
        assert not [name for name in heading.split() if name in {"timestamp_ms", "deadline_ms"}]
        told = lines(path, *command, "--json")
        assert len(shown) == len(told) > 1
        for line, row in zip(shown, told, strict=True):
            for name in ("timestamp_ms", "deadline_ms"):
                if row.get(name) is not None:
                    moment = datetime.datetime.fromtimestamp(row[name] // 1000, datetime.UTC)
                    assert moment.isoformat().removesuffix("+00:00") in line
                    assert str(row[name]) not in line
    described = run(path, "transactions", "describe", lines(path, "transactions", "list", "--json")[0]["txn_id"])
    assert "+00:00" in described.stdout


@pytest.mark.parametrize("kind", [getattr(results, name) for name in results.__all__])
def test_whatever_is_epoch_milliseconds_is_a_time_to_people(kind, capsys):
    described = re.findall(r"(\w+_ms): ([^:]*)", re.sub(r"\n {8}", " ", inspect.getdoc(kind) or ""))
    moments = [name for name, text in described if "epoch milliseconds" in text or name.endswith("timestamp_ms")]
    record = dict.fromkeys([*moments, "lease_ms"], 0)
    Printer(as_json=False).record(record)
    *shown, lease = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown == [[name.removesuffix("_ms"), "1970-01-01T00:00:00+00:00"] for name in moments]
    assert lease == ["lease_ms", "0"]


def test_columns_of_users_are_shown_as_they_stand(lake):
    schema = pa.schema([("timestamp_ms", pa.int64()), ("deadline_ms", pa.string())])
    with txnlog.open(lake[0]) as ns:
        ns.create_topic("events", schema)
        ns.produce("events", [{"timestamp_ms": 1_700_000_000_000, "deadline_ms": "tomorrow"}])
    heading, row = run(lake[0], "read", "events").stdout.splitlines()
    assert heading.split()[:2] == ["timestamp_ms", "deadline_ms"]
    assert row.split()[:2] == ["1700000000000", "tomorrow"]


def test_an_entry_is_shown_by_its_version(lake):
    path, _ = lake
    assert run(path, "log", "show", "1").stdout == run(path, "log", "show", "--version", "1").stdout
    assert "orders" in run(path, "log", "show", "1").stdout
    assert run(path, "log", "show", "99").returncode == 2
    assert run(path, "log", "show", "1", "--version", "1").returncode == 2


def test_people_hear_of_rows_that_are_not_printed(lake):
    path, _ = lake

    def said(*options):
        done = run(path, "read", "orders", *options)
        return len(done.stdout.splitlines()), done.stderr

    assert said() == said("--limit", "2") == (3, ""), "the heading and two rows: that is all"
    assert said("--limit", "1") == (2, "1 of 2 rows: --limit N prints the first N.\n")
    assert said("--limit", "0") == (1, "0 of 2 rows: --limit N prints the first N.\n")
    uncommitted = said("--limit", "1", "--isolation-level", "read_uncommitted")
    assert uncommitted == (2, "1 rows, and there are more: --limit N prints the first N.\n")
    assert said("--limit", "1", "--json") == (1, "")


@pytest.mark.parametrize("command", [("read", "orders"), ("log", "show")])
def test_a_negative_limit_is_refused(lake, command):
    assert run(lake[0], *command, "--limit", "-1").returncode == 2


def test_a_state_is_asked_for_in_any_case(lake):
    path, open_one = lake
    (found,) = lines(path, "transactions", "list", "--state", "open", "--json")
    assert found["txn_id"] == str(open_one.id)


def test_subscriptions_show_who_has_what(tmp_path):
    path = str(tmp_path / "lake" / "sales")
    with txnlog.open(path, create=True) as ns:
        ns.create_topic("orders", pa.schema([("id", pa.int64())]))
        ns.produce("orders", [{"id": number} for number in range(5)])
        ns.create_subscription("orders", "kept", type="failover")
        ns.consumer("orders", "kept", name="first")
        ns.create_subscription("orders", "many", type="shared", max_redeliveries=3, dead_letter_topic="dead")
        consumer = ns.consumer("orders", "many", name="one")
        messages = consumer.receive(4, timeout_ms=0)
        consumer.negative_acknowledge(messages[0])
        ns.begin().acknowledge(messages[1])
        kept, many = lines(path, "subscriptions", "orders", "--json")
        (lag,) = lines(path, "lag", "orders", "many", "--json")
    assert (kept["type"], kept["consumer"], kept["leased"]) == ("failover", "first", 0)
    assert (many["type"], many["leased"], many["pending"], many["redelivered"]) == ("shared", 3, 1, 1)
    assert many["dead_letter_topic"] == "dead"
    assert (lag["behind_messages"], lag["pending"], lag["leased"]) == (5, 1, 3)


def test_times_that_python_does_not_have_are_shown_with_their_year(lake):
    schema = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("all", pa.list_(pa.timestamp("us")))])
    days = pa.array([2_932_897, 0], pa.int32()).cast(pa.date32())
    times = pa.array([253_402_300_800_000_001, 0], pa.int64())
    lists = pa.ListArray.from_arrays([0, 1, 2], times.cast(pa.timestamp("us")))
    with txnlog.open(lake[0]) as ns:
        ns.create_topic("contracts", schema, delta="off")
        ns.produce("contracts", pa.table([days, times.cast(pa.timestamp("us", "UTC")), lists], schema=schema))
        shown = ns.consumer("contracts", "audit").receive(timeout_ms=0)._repr_html_()
    far, near = lines(lake[0], "read", "contracts", "--json")
    assert (far["day"], near["day"]) == ("+10000-01-01", "1970-01-01")
    assert (far["at"], near["at"]) == ("+10000-01-01T00:00:00.000001+00:00", "1970-01-01T00:00:00+00:00")
    assert (far["all"], near["all"]) == (["+10000-01-01T00:00:00.000001"], ["1970-01-01T00:00:00"])
    assert "+10000-01-01T00:00:00.000001+00:00" in run(lake[0], "read", "contracts").stdout
    assert "<td>+10000-01-01</td>" in shown


HOSTILE = "\x1b]0;owned\x07\x9b2J\x7f\r\n\u202egpj.exe\u2028\u2066"
SAFE = r"\x1b]0;owned\x07\x9b2J\x7f\r\n\u202egpj.exe\u2028\u2066"


def test_nothing_that_others_wrote_controls_the_terminal(lake):
    column = "\u202etext"
    with txnlog.open(lake[0]) as ns:
        ns.create_topic("notes", pa.schema([(column, pa.string()), ("all", pa.list_(pa.string()))]))
        ns.produce("notes", [{column: HOSTILE, "all": [HOSTILE, "żółć \u200d ok"]}])
        ns.producer("\u202edaol")
        consumer = ns.consumer("notes", "audit", name="\u202edaer")
        pages = [consumer.receive(timeout_ms=0)._repr_html_(), ns.subscription("notes", "audit")._repr_html_()]
        version = ns.snapshot().version
    read = run(lake[0], "read", "notes").stdout
    assert (len(read.splitlines()), SAFE in read, r"\u202etext" in read) == (2, True, True)
    (row,) = lines(lake[0], "read", "notes", "--json")
    assert (row[column], row["all"]) == (HOSTILE, [HOSTILE, "żółć \u200d ok"])
    for words in (
        "read notes --json",
        "producers list",
        "subscriptions notes",
        "topic describe notes",
        *(f"log show {number}" for number in range(version - 2, version + 1)),
    ):
        pages += run(lake[0], *words.split()).stdout.splitlines()
    text = "".join(pages)
    assert ("daol" in text, "daer" in text) == (True, True)
    assert not set(text) & set(HOSTILE) - set(SAFE)


def test_json_has_no_number_that_json_does_not_have(lake):
    """``NaN`` is none to ``jq`` and to every strict parser. The texts are those of Spark's ``to_json``."""
    numbers = [float("nan"), float("inf"), float("-inf"), 0.5]
    with txnlog.open(lake[0]) as ns:
        ns.create_topic("rates", pa.schema([("rate", pa.float64()), ("parts", pa.list_(pa.float32()))]))
        ns.produce("rates", [{"rate": number, "parts": [number]} for number in numbers])

    def refused(text):
        raise AssertionError(text)

    done = run(lake[0], "read", "rates", "--json")
    found = [json.loads(line, parse_constant=refused) for line in done.stdout.splitlines()]
    assert [row["rate"] for row in found] == ["NaN", "Infinity", "-Infinity", 0.5]
    assert [row["parts"] for row in found] == [["NaN"], ["Infinity"], ["-Infinity"], [0.5]]
