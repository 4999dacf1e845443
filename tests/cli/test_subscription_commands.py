"""Subscriptions are created, described, moved and dropped."""

from __future__ import annotations

import datetime

import pytest

import txnlog
from tests.cli.command_line import lines, run


def cursors(path, name="billing"):
    return lines(path, "subscription", "describe", "orders", name, "--json")[0]["cursors"]


def version(path):
    with txnlog.open(path, mode="r") as ns:
        return ns.snapshot().version


def test_a_subscription_is_created_with_every_setting(lake):
    path, _ = lake
    settings = ("--type", "shared", "--lease-ms", "2m", "--max-redeliveries", "3", "--dead-letter-topic", "dead")
    (made,) = lines(path, "subscription", "create", "orders", "many", *settings, "--start", "1=1", "--json")
    assert made == lines(path, "subscription", "describe", "orders", "many", "--json")[0]
    assert (made["type"], made["lease_ms"], made["max_redeliveries"]) == ("shared", 120_000, 3)
    assert (made["dead_letter_topic"], made["cursors"]) == ("dead", {"0": 0, "1": 1})
    (waits,) = lines(path, "subscription", "create", "orders", "one", "--takeover", "after_lease", "--json")
    assert (waits["type"], waits["takeover"], waits["cursors"]) == ("exclusive", "after_lease", {"0": 0, "1": 0})
    assert run(path, "subscription", "create", "orders", "one").returncode == 2
    assert run(path, "subscription", "create", "orders", "one", "--if-not-exists").returncode == 2, "another takeover"
    same = ("--takeover", "after_lease", "--if-not-exists")
    assert run(path, "subscription", "create", "orders", "one", *same).returncode == 0
    described = run(path, "subscription", "describe", "orders", "one").stdout.splitlines()
    assert described[:3] == [
        "topic              orders",
        "name               one",
        "type               exclusive",
    ]


@pytest.mark.parametrize(
    ("position", "means"),
    [
        (("latest",), {"0": 0, "1": 2}),
        (("earliest",), {"0": 0, "1": 0}),
        (("1=1",), {"0": 0, "1": 1}),
        (("0=0", "1=2"), {"0": 0, "1": 2}),
        (("1:1",), {"0": 0, "1": 1}),
        (("0:0", "1=2"), {"0": 0, "1": 2}),
        (("2020-01-01T00:00:00Z",), {"0": 0, "1": 0}),
    ],
)
def test_a_subscription_is_moved(lake, position, means):
    path, _ = lake
    (moved,) = lines(path, "subscription", "seek", "orders", "billing", *position, "--json")
    assert moved["cursors"] == cursors(path) == means


def test_a_move_to_a_time_stops_behind_what_was_there(lake):
    path, _ = lake
    with txnlog.open(path) as ns:
        ns.create_topic("later")
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
    assert run(path, "subscription", "seek", "orders", "billing", now.isoformat()).returncode == 0
    assert cursors(path) == {"0": 0, "1": 2}


def test_a_move_fences_the_consumer_of_before(lake):
    path, _ = lake
    with txnlog.open(path) as ns:
        consumer = ns.consumer("orders", "billing")
        messages = consumer.receive(timeout_ms=0)
        assert run(path, "subscription", "seek", "orders", "billing", "earliest").returncode == 0
        with pytest.raises(txnlog.errors.ConsumerFenced):
            consumer.acknowledge(messages)
    assert cursors(path) == {"0": 0, "1": 0}


@pytest.mark.parametrize(
    ("name", "position", "told"),
    [
        ("bill", ("earliest",), "did you mean 'billing'?"),
        ("billing", ("soonest",), "unknown position 'soonest'"),
        ("billing", ("5",), "unknown position '5'"),
        ("billing", ("noon:5",), "unknown position 'noon:5'"),
        ("billing", ("0:5",), "ends at offset 0; 5 is outside"),
        ("billing", ("0:x",), "'0:x' is not of the form PARTITION=OFFSET"),
        ("billing", ("0=x",), "'0=x' is not of the form PARTITION=OFFSET"),
        ("billing", ("=5",), "'=5' is not of the form PARTITION=OFFSET"),
        ("billing", ("0=-1",), "'0=-1' is not of the form PARTITION=OFFSET"),
        ("billing", ("0=1", "latest"), "'latest' is not of the form PARTITION=OFFSET"),
        ("billing", ("1=1", "1=2"), "partition 1 has two offsets"),
        ("billing", ("1=3",), "ends at offset 2; 3 is outside"),
        ("billing", ("2=0",), "has no partition 2"),
        ("billing", ("2100-01-01T00:00:00Z",), "is a time in the future"),
    ],
)
def test_what_cannot_be_a_position_fences_nobody(lake, name, position, told):
    path, _ = lake
    before = version(path)
    done = run(path, "subscription", "seek", "orders", name, *position)
    assert done.returncode == 2
    assert told in done.stderr
    assert version(path) == before


def test_where_another_consumer_is_active_a_move_can_be_made_later(lake):
    path, _ = lake
    with txnlog.open(path) as ns:
        ns.create_subscription("orders", "kept", type="failover")
        with ns.consumer("orders", "kept", name="first") as consumer:
            consumer.receive(timeout_ms=0)
            done = run(path, "subscription", "seek", "orders", "kept", "latest")
            assert (done.returncode, "another consumer of 'orders' is active" in done.stderr) == (3, True)
    assert run(path, "subscription", "seek", "orders", "kept", "latest").returncode == 0
    assert cursors(path, "kept") == {"0": 0, "1": 2}


def test_a_subscription_is_dropped_after_a_question(lake):
    path, _ = lake
    asked = run(path, "subscription", "drop", "orders", "billing")
    assert asked.returncode == 1
    assert "Drop the subscription 'billing' of 'orders' of 'sales' (2 messages are not acknowledged)?" in asked.stdout
    missing = run(path, "subscription", "drop", "orders", "bill")
    assert (missing.returncode, missing.stdout, "did you mean 'billing'?" in missing.stderr) == (2, "", True)
    assert run(path, "subscription", "drop", "orders", "billing", "--yes").returncode == 0
    assert lines(path, "subscriptions", "--json") == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--start", "soonest"), "unknown position"),
        (("--lease-ms", "10ms"), "--lease-ms of 10ms is less than 1s"),
        (("--lease-ms", "10ms"), "or pass --allow-short-lease if it is meant"),
        (("--type", "exclusiv"), "Invalid value"),
        (("--max-redeliveries", "1"), "max_redeliveries belongs to shared subscriptions"),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(lake, options, told):
    before = version(lake[0])
    done = run(lake[0], "subscription", "create", "orders", "other", *options)
    assert done.returncode == 2
    assert told in done.stderr
    assert version(lake[0]) == before
