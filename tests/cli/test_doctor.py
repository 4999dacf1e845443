"""Each finding of ``doctor``: the situation, the finding, the command that it names, and then none of it."""

from __future__ import annotations

import json
import re
import shlex
import time

import pyarrow as pa
import pytest

import txnlog
from tests.cli.command_line import lines, run
from txnlog.api.doctor import contents
from txnlog.client.auto_publisher import AutoPublisher
from txnlog.common import format_limits
from txnlog.errors import Durable, StoreError
from txnlog.store.local import LocalStore
from txnlog.testing import ManualClock

DAY_MS = 86_400_000
SCHEMA = pa.schema([("id", pa.int64())])
ROWS = [{"id": 1}, {"id": 2}]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "lake" / "shop")


def opened(path, days_ago=0):
    """A handle on the namespace, made if need be, at a time of the past."""
    return txnlog.open(path, create=True, clock=ManualClock(int(time.time() * 1000) - days_ago * DAY_MS))


def report(path, *options):
    """What ``doctor`` reports, which its exit code says as well."""
    done = run(path, "doctor", "--json", *options)
    (found,) = [json.loads(line) for line in done.stdout.splitlines()]
    worst = {item["severity"] for item in found["findings"]}
    assert done.returncode == (2 if "problem" in worst else 1 if worst else 0), done.stderr
    assert found["healthy"] is (not worst)
    return found


def findings(path):
    return [(item["severity"], item["kind"], item["about"]) for item in report(path)["findings"]]


def settled(path, *more):
    """Run the command of the only finding: then there is none."""
    (item,) = report(path)["findings"]
    assert f"'{item['command']}" in item["advice"]
    assert "ns." not in item["advice"]
    done = run(path, *shlex.split(item["command"]), *more)
    assert done.returncode == 0, done.stderr
    assert findings(path) == []


def test_a_healthy_namespace_has_no_finding(path):
    with opened(path) as ns:
        ns.create_topic("orders", SCHEMA, retention_ms="7d", delta="auto")
        ns.create_subscription("orders", "billing")
        ns.produce("orders", ROWS)
    done = run(path, "doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n\nhealthy\n")
    assert "right to write             not tried: only with --probe\n" in done.stdout
    found = report(path)
    assert (found["healthy"], found["findings"], found["version"]) == (True, [], 3)
    assert found["seen"]["store"] == "local"
    assert found["seen"]["test of the store"] == "passed"
    assert found["seen"]["topics"] == "1 of 10,000"
    assert found["seen"]["format"] == "version 1; no features"


def test_it_changes_nothing_and_a_probe_leaves_nothing(path, tmp_path):
    with opened(path) as ns:
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", ROWS)

    def content():
        return {file: file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()}

    before = content()
    report(path)
    assert content() == before
    seen = report(path, "--probe")["seen"]
    assert content() == before
    tried = ("right to read", "right to list", "right to write", "right to delete", "right to write heartbeats")
    assert [seen[name] for name in tried] == ["yes"] * 5
    assert seen["right to write proposals"].startswith("not tried: ")
    assert seen["clock of the store"] == "not behind this machine's clock"


def test_a_disk_that_takes_nothing_is_a_finding(path, monkeypatch):
    with opened(path) as ns:
        ns.create_topic("orders", SCHEMA)

    def put(_self, key, data):
        assert data, "a full disk takes an object without bytes"
        raise StoreError(
            f"put of {key!r} failed: No space left on device", advice="free space", durable=Durable.NOTHING
        )

    monkeypatch.setattr(LocalStore, "put", put)
    found = report(path, "--probe")
    assert run(path, "doctor", "--probe").returncode == 2
    (finding,) = found["findings"]
    assert (finding["severity"], finding["kind"], finding["about"]) == ("problem", "store", "right to write")
    assert re.search("put of '.*No space left on device; nothing can be appended", finding["message"])
    assert found["seen"]["right to write"] == "not known: the store failed"
    assert found["seen"]["clock of the store"] == "not known: nothing could be written"


def test_people_get_a_table_of_the_findings(path):
    with opened(path, 3) as ns:
        ns.create_topic("orders", SCHEMA)
        ns.create_subscription("orders", "billing")
        ns.produce("orders", ROWS)
    done = run(path, "doctor")
    heading, row = done.stdout.partition("\n\n")[2].splitlines()
    assert (done.returncode, heading.split()) == (1, ["severity", "kind", "about", "message", "advice"])
    assert re.split("  +", row) == [
        "warning",
        "subscription",
        "orders/billing",
        "2 messages are not acknowledged, the oldest for 3 days",
        "start its consumer, or, if nobody needs it, 'subscription drop orders billing'",
    ]


def test_a_transaction_that_nobody_ends(path):
    with opened(path, 1) as ns:
        ns.create_topic("orders", SCHEMA)
        txn = ns.begin()
        txn.produce("orders", ROWS)
        txn.flush()
        assert findings(path) == [("warning", "transaction", str(txn.id))]
        settled(path)


def test_a_transaction_that_waits_for_a_decision(path):
    with opened(path, 2) as ns:
        ns.create_topic("orders", SCHEMA)
        with ns.producer("loader") as producer:
            txn = producer.begin()
            txn.produce("orders", ROWS)
            token = str(txn.prepare())
    (item,) = report(path)["findings"]
    assert (item["kind"], item["command"]) == ("transaction", None), "somebody must decide"
    assert item["message"] == "it is prepared (of the producer 'loader'), and has waited for a decision for 2 days"
    assert f"'transactions complete {token} --commit', or the opposite" in item["advice"]
    assert run(path, "transactions", "complete", token, "--commit").returncode == 0
    assert findings(path) == []


def test_a_subscription_that_nobody_reads(path):
    with opened(path, 2) as ns:
        ns.create_topic("orders", SCHEMA)
        ns.create_subscription("orders", "billing")
        ns.create_subscription("orders", "search", start="latest")
        ns.produce("orders", ROWS)
        consumer = ns.consumer("orders", "search")
        consumer.acknowledge(consumer.receive(timeout_ms=0))
    assert findings(path) == [("warning", "subscription", "orders/billing")]
    settled(path, "--yes")


def test_a_topic_with_many_small_files(path, monkeypatch):
    monkeypatch.setattr(contents, "MANY_SMALL", 3)
    with opened(path) as ns:
        ns.create_topic("orders", SCHEMA, merge="manual")
        ns.create_topic("audit", SCHEMA, merge="manual")
        for _ in range(3):
            ns.produce("orders", ROWS)
        ns.produce("audit", ROWS)
    assert findings(path) == [("warning", "segments", "orders")]
    settled(path)


@pytest.mark.parametrize("setting", [{"retention_ms": "1h"}, {"retention_bytes": 1}])
def test_retention_that_was_not_applied(path, setting):
    with opened(path, 2) as ns:
        ns.create_topic("orders", SCHEMA, merge="manual", **setting)
        ns.produce("orders", ROWS)
        ns.produce("orders", ROWS)
    assert findings(path) == [("warning", "retention", "orders")]
    settled(path)


def test_retention_that_may_wait_for_the_next_maintenance_is_no_finding(path):
    with opened(path, 1) as ns:
        ns.create_topic("orders", SCHEMA, retention_ms="1h")
        ns.produce("orders", ROWS)
    assert lines(path, "retention", "--json")[0]["due_messages"] == 2
    assert findings(path) == []


@pytest.mark.parametrize(("mode", "days"), [("manual", 8), ("auto", 2)])
def test_a_delta_table_that_is_old(path, monkeypatch, mode, days):
    with opened(path, 20) as ns:
        ns.create_topic("orders", SCHEMA)
        ns.create_topic("audit", SCHEMA)
        ns.produce("orders", ROWS)
    assert run(path, "publish", "orders").returncode == 0
    monkeypatch.setattr(AutoPublisher, "after_append", lambda _publisher: None)  # it fails
    with opened(path, days) as ns:
        ns.alter_topic("orders", delta=mode)
        ns.produce("orders", ROWS)
        ns.produce("audit", ROWS)  # which has no table
    (item,) = report(path)["findings"]
    assert (item["kind"], item["about"], item["severity"]) == ("delta", "orders", "warning")
    assert re.match(
        rf"its Delta table shows version \d+, and lacks what was committed {days} days ago", item["message"]
    )
    assert ("the publisher fails" in item["message"]) is (mode == "auto")
    settled(path)


def test_a_delta_table_that_is_not_older_than_its_mode_allows_is_no_finding(path):
    with opened(path, 6) as ns:
        ns.create_topic("orders", SCHEMA)
        ns.create_topic("hidden", SCHEMA, delta="off")
    run(path, "publish", "orders")
    with opened(path, 6) as ns:
        ns.produce("orders", ROWS)
    assert findings(path) == []


def test_many_entries_behind_the_newest_checkpoint(path, monkeypatch):
    monkeypatch.setattr(contents, "FAR_CHECKPOINT", 5)
    with opened(path) as ns:
        ns.create_topic("orders", SCHEMA)
        for _ in range(5):
            ns.produce("orders", ROWS)
    assert findings(path) == [("warning", "checkpoint", "log")]
    settled(path)


def test_a_namespace_that_comes_near_to_a_limit(path, monkeypatch):
    with opened(path) as ns:
        for name in ("orders", "audit"):
            ns.create_topic(name, SCHEMA)
    monkeypatch.setattr(format_limits, "MAX_TOPICS", 3)
    assert findings(path) == []
    monkeypatch.setattr(format_limits, "MAX_TOPICS", 2)
    (item,) = report(path)["findings"]
    assert (item["severity"], item["kind"], item["about"]) == ("problem", "limit", "topics")
    assert item["advice"] == "'topic drop NAME' for those that nobody needs"
    monkeypatch.setattr(contents, "NEAR_LIMIT", 0.5)
    monkeypatch.setattr(format_limits, "MAX_TOPICS", 4)
    assert findings(path) == [("warning", "limit", "topics")]
    assert run(path, "topic", "drop", "audit", "--yes").returncode == 0
    assert findings(path) == []


@pytest.mark.parametrize(
    ("limit", "about", "advice"),
    [
        ("MAX_SUBSCRIPTIONS", "subscriptions", "'subscription drop TOPIC NAME' for those"),
        ("MAX_PRODUCERS", "producers", "use the same name in each run"),
        ("MAX_APPS", "values of txn_app_id", "'apps forget TXN_APP_ID' for those of the past"),
        ("MAX_OPEN_TRANSACTIONS", "open transactions", "'transactions list --state [open|prepared|committed|aborted]'"),
    ],
)
def test_each_limit_has_its_way_out(path, monkeypatch, limit, about, advice):
    with opened(path) as ns:
        ns.create_topic("orders", SCHEMA)
        ns.create_subscription("orders", "billing", start="latest")
        with ns.producer("loader").begin(txn_app_id="nightly", txn_version=1) as txn:
            txn.produce("orders", ROWS)
        waiting = ns.begin()
        waiting.produce("orders", ROWS)
        waiting.flush()
        monkeypatch.setattr(format_limits, limit, 1)
        (item,) = report(path)["findings"]
        assert (item["kind"], item["about"]) == ("limit", about)
        assert advice.lower() in item["advice"].lower()
        waiting.abort()


def test_a_store_that_no_log_knows(path, tmp_path):
    with opened(path) as ns:
        ns.create_topic("orders", SCHEMA)
    (tmp_path / "lake").rename(tmp_path / "pond")
    moved = str(tmp_path / "pond" / "shop")
    (item,) = report(moved)["findings"]
    assert (item["severity"], item["kind"], item["about"]) == ("warning", "store", "local")
    assert item["advice"].endswith("'produce TOPIC [FILE]'")
    assert run(moved, "produce", "orders", given=b'{"id": 1}\n').returncode == 0
    assert findings(moved) == []


def test_of_too_many_findings_the_last_one_says_how_many_there_are(path):
    with opened(path, 2) as ns:
        ns.create_topic("orders", SCHEMA)
        for number in range(25):
            ns.create_subscription("orders", f"s{number:02d}")
        ns.produce("orders", ROWS)
    found = report(path)["findings"]
    assert [item["about"] for item in found] == [f"orders/s{number:02d}" for number in range(20)]
    assert found[-1]["message"].endswith("; 5 more are like this")
    assert "more are like this" not in found[0]["message"]
