"""The command line says what the Python handle says, and its exit code what to do."""

from __future__ import annotations

import ast
import datetime
import importlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import click
import pyarrow as pa
import pytest

import txnlog
from txnlog.cli import main, maintenance
from txnlog.cli.output import StatusLine
from txnlog.cli.wording import CALLS, command_at, worded
from txnlog.common.ids import TxnId
from txnlog.errors import CorruptionError, InvalidTransactionState, OutcomeUnknown, StoreError
from txnlog.log.failed_append import blocked, outcome_unknown
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS
from txnlog.wording import Call, Words

main_module = importlib.import_module("txnlog.cli.main")


@pytest.fixture
def lake(tmp_path):
    with txnlog.open(tmp_path / "lake", namespace="sales", create=True) as ns:
        ns.create_topic("orders", partitions=2)
        with ns.producer("loader") as producer, producer.begin() as txn:
            txn.produce("orders", [{"value": b"one"}, {"value": b"two"}], partition=1)
        ns.create_subscription("orders", "billing")
        open_one = ns.begin()
        open_one.produce("orders", [{"value": b"open"}])
        open_one.flush()
        yield str(tmp_path / "lake" / "sales"), open_one


def run(*arguments):
    """The command line, in this process: one of its own for each call is most of what these tests would take."""
    with pytest.MonkeyPatch.context() as patch:
        streams = {name: io.TextIOWrapper(io.BytesIO(), write_through=True) for name in ("stdin", "stdout", "stderr")}
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
    told, said = (streams[name].buffer.getvalue().decode() for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), told, said)


def test_python_runs_it_as_a_module(lake):
    path, _ = lake
    asked = [path, "topics"]
    done = subprocess.run([sys.executable, "-m", "txnlog", *asked], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, run(*asked).stdout)


def lines(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


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
    assert lines(path, "log", "show", "--limit", "1", "--json")[0]["actions"].startswith("1 Begin")


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


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("topic", "gate"), "did you mean 'topic describe gate'? there are: alter, create, describe, drop"),
        (("describe", "gate"), "did you mean 'topic describe' or 'transactions describe'?"),
        (("topcs",), "did you mean 'topics'?"),
        (("producers", "x"), "there are: fence, list"),
    ],
)
def test_a_command_that_is_not_there_is_answered_with_what_may_be_meant(lake, command, told):
    done = run(lake[0], *command)
    assert done.returncode == 2
    assert told in done.stderr


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


def test_an_entry_is_shown_by_its_version(lake):
    path, _ = lake
    assert run(path, "log", "show", "1").stdout == run(path, "log", "show", "--version", "1").stdout
    assert "orders" in run(path, "log", "show", "1").stdout
    assert run(path, "log", "show", "99").returncode == 2
    assert run(path, "log", "show", "1", "--version", "1").returncode == 2


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


@pytest.mark.parametrize("command", [("read", "orders"), ("log", "show")])
def test_a_negative_limit_is_refused(lake, command):
    assert run(lake[0], *command, "--limit", "-1").returncode == 2


def test_a_refusal_has_exit_code_2_and_names_the_nearest(lake):
    done = run(lake[0], "topic", "describe", "order")
    assert done.returncode == 2
    assert "TopicNotFound" in done.stderr
    assert "did you mean 'orders'?" in done.stderr
    missing = run(lake[0] + "x", "topics")
    assert missing.returncode == 2
    assert "lake/salesx'" in missing.stderr
    assert "in Python txnlog.open(root, namespace=..., create=True) makes it" in missing.stderr


def test_a_root_for_a_namespace_is_answered_with_its_namespaces(lake):
    done = run(lake[0].removesuffix("/sales"), "topics")
    assert done.returncode == 2
    assert "append one of its namespaces (sales)" in done.stderr


def test_a_name_alone_is_a_namespace_of_the_present_folder(lake, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.chdir(lake[0].removesuffix("/sales"))
    assert lines("sales", "topics", "--json")[0]["topic"] == "orders"


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


def test_nobody_is_asked_about_a_topic_that_is_not_there(lake):
    done = run(lake[0], "topic", "drop", "order")
    assert (done.returncode, "did you mean 'orders'?" in done.stderr, done.stdout) == (2, True, "")
    asked = run(lake[0], "topic", "drop", "orders")
    question = (
        r"Drop the topic 'orders' of '\w+' \([0-9,]+ messages were written to it\) and its subscriptions \(\w+\)\?"
    )
    assert (asked.returncode, bool(re.search(question, asked.stdout))) == (1, True), asked.stdout
    assert lines(lake[0], "topics", "--json")


def test_what_the_log_adds_to_an_advice_is_in_the_words_of_the_command_line():
    store = StoreError("the store is away", advice=Words("call ", Call("checkpoint")))
    for error in (
        outcome_unknown([], CorruptionError("an entry is damaged", advice=Words("call ", Call("checkpoint")))),
        blocked(store),
        outcome_unknown([TxnId(0, 7)], OutcomeUnknown("no answer")),
    ):
        text = str(worded(error, main_module.cli, None))
        assert "ns." not in text, text
        assert "'checkpoint'" in text or "'transactions abort TXN_ID'" in text, text


def test_a_state_is_asked_for_in_any_case(lake):
    path, open_one = lake
    (found,) = lines(path, "transactions", "list", "--state", "open", "--json")
    assert found["txn_id"] == str(open_one.id)


def test_advice_names_options_of_the_command(lake):
    done = run(lake[0], "topic", "create", "orders", "--partitions", "2")
    assert "(use --if-not-exists if that is fine;" in done.stderr
    assert run(lake[0], "topic", "create", "orders", "--partitions", "2", "--if-not-exists").returncode == 0
    described = run(lake[0], "topic", "describe", "order")
    assert "Python" not in described.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("vacuum", "--retain-ms", "0"), "--retain-ms of 0ms is less than 1h"),
        (("vacuum", "--retain-ms", "0"), "like --retain-ms 7d, or pass --allow-short-retention if it is meant;"),
        (("vacuum", "--grace-ms", "5"), "--grace-ms is a length of time, at least 1h"),
        (("topic", "create", "x", "--partitions", "0"), "--partitions is a whole number"),
        (("transactions", "describe", "7"), "as 'transactions list' shows them"),
        (("read", "orders", "--timestamp", "noon"), 'use "2026-11-21T12:00:00Z"'),
        (
            ("topic", "alter", "orders", "--add", "x:varchar"),
            "use one of binary, boolean, byte, date, double, float, integer, long, short, string, timestamp,",
        ),
        (("topic", "create", "orders", "--partitions", "3"), "'topic describe NAME' shows it, and 'topic alter NAME'"),
        (("topic", "alter", "orders", "--property", "retain_ms=1"), "(use 'vacuum --retain-ms DURATION';"),
        (
            ("topic", "alter", "orders", "--property", "delta.targetFileSize=1"),
            "(use 'optimize TOPIC --target-size-bytes INTEGER';",
        ),
        (("topic", "alter", "orders", "--property", "delta=auto"), "(use --delta auto, --delta manual or --delta off;"),
        (("topic", "alter", "orders", "--property", "txnlog.delta=auto"), "(use --delta [auto|manual|off];"),
        (
            ("topic", "alter", "orders", "--property", "partition=1"),
            "(did you mean 'partitions'? use 'topic create NAME",
        ),
        (("topic", "alter", "orders", "--property", "delta.autoOptimize=1"), "(did you mean 'delta.autoOptimize"),
        (("topic", "alter", "orders", "--add", "at:timestamp_ntz"), "or have --delta off for the topic,"),
    ],
)
def test_errors_speak_of_the_command_line(lake, command, told):
    done = run(lake[0], *command)
    assert done.returncode == 2
    assert told in done.stderr
    assert not re.search(r"=True|\bns\.|, in Python", done.stderr)


def test_a_call_without_a_command_is_said_to_be_of_python(lake):
    done = run(lake[0], "topic", "alter", "orders", "--property", "timeout_ms=1")
    assert "(use ns.begin(timeout_ms=...), in Python; nothing was written)" in done.stderr
    done = run(lake[0], "topic", "alter", "orders", "--property", "key=id")
    assert "(use ns.create_topic(name, key=...), in Python; nothing was written)" in done.stderr


def test_every_sentence_that_names_a_call_with_a_command_can_name_the_command():
    """A plain text would show Python to whoever types a command: such a call is a ``Call`` among ``Words``."""
    call = re.compile(rf"\bns\.({'|'.join(CALLS)})\b")
    package = pathlib.Path(txnlog.__file__).parent
    plain = []
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).parts[0] in {"cli", "testing"}:
            continue
        tree = ast.parse(file.read_text())
        documentation = {id(item.value) for item in ast.walk(tree) if isinstance(item, ast.Expr)}
        texts = [
            item.value
            for item in ast.walk(tree)
            if isinstance(item, ast.Constant) and isinstance(item.value, str) and id(item) not in documentation
        ]
        plain += [(file.name, text) for text in texts if call.search(text) and "or the command" not in text]
    assert plain == []


def test_the_ways_out_of_a_prepared_transaction_are_commands(lake):
    path, _ = lake
    with txnlog.open(path) as ns:
        txn = ns.begin()
        txn.produce("orders", [{"value": b"three"}])
        token = str(txn.prepare())
    done = run(path, "transactions", "abort", token)
    assert "'transactions complete TOKEN --commit' or the opposite" in done.stderr
    assert "'transactions abort TXN_ID --force'" in done.stderr
    with txnlog.open(path) as ns, pytest.raises(InvalidTransactionState) as caught:
        ns.abort(token)
    assert "ns.complete(token, commit=True)" in str(caught.value)
    assert "ns.abort(txn_id, force=True)" in str(caught.value)


@pytest.mark.parametrize("scheme", ["hdfs", "ftp", "http", "https", "sftp", "webhdfs"])
def test_a_scheme_without_create_if_absent_says_so_and_which_work(scheme):
    done = run(f"{scheme}://host/lake/sales", "topics")
    assert done.returncode == 3
    assert f"{scheme}:// has no atomic create-if-absent" in done.stderr
    assert "use a local path, file:// or one of s3://, s3a://, abfss://" in done.stderr


def test_every_command_that_errors_name_is_there():
    for path in CALLS.values():
        assert command_at(main_module.cli, path).name == path.split()[-1]


def test_secrets_in_storage_options_are_not_shown(lake):
    done = run("--storage-options", "secret-text", lake[0], "topics")
    assert done.returncode == 2
    assert "secret-text" not in done.stderr


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
    assert "is missing" in done.stdout


def test_a_status_line_is_shown_on_a_terminal_and_taken_back(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with StatusLine() as status:
        status.show("orders: 1 files")
        status.show("audit")
    assert capsys.readouterr().err == "\rorders: 1 files\raudit          \r               \r"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with StatusLine() as status:
        status.show("orders: 1 files")
    assert capsys.readouterr().err == ""


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


def test_storage_options_that_are_nested_too_deep_are_refused_as_others_are(lake):
    done = run("--storage-options", "[" * 50_000, lake[0], "topics")
    assert done.returncode == 2
    assert "not a JSON object" in done.stderr


def test_a_copy_is_adopted(lake, tmp_path):
    path, open_one = lake
    shutil.copytree(path, tmp_path / "copies" / "sales")
    copy = str(tmp_path / "copies" / "sales")
    assert lines(copy, "topics", "--json") == [{"topic": "orders", "partitions": 2, "messages": 2}]
    refused = run(copy, "topic", "create", "more")
    assert refused.returncode == 2
    assert f"txnlog '{copy}' adopt on the command line" in refused.stderr
    assert lines(copy, "adopt", "--json") == [{"namespace": "sales", "coordinator": 1}]
    assert run(copy, "topic", "create", "more").returncode == 0
    (found,) = lines(copy, "transactions", "list", "--state", "open", "--json")
    assert found["txn_id"] == str(open_one.id)
    again = run(copy, "adopt")
    assert (again.returncode, "force=True in Python, --force on the command line" in again.stderr) == (2, True)
    assert lines(copy, "adopt", "--force", "--json") == [{"namespace": "sales", "coordinator": 2}]
    missing = run(str(tmp_path / "copies" / "slaes"), "adopt")
    assert missing.returncode == 2
    assert "did you mean 'sales'" in missing.stderr
