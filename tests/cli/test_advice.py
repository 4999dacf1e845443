"""Errors and their advice are in the words of the command line, where it has a command for what they name."""

from __future__ import annotations

import ast
import importlib
import pathlib
import re
from collections.abc import Iterator

import pytest

import txnlog
from tests.cli.command_line import run
from txnlog.cli.rendering import CALLS, command_at, worded
from txnlog.common.ids import TxnId
from txnlog.errors import CorruptionError, InvalidTransactionState, OutcomeUnknown, StoreError
from txnlog.format.topic_settings import SETTINGS
from txnlog.log.append_errors import blocked, outcome_unknown
from txnlog.sentences import Call, Words

main_module = importlib.import_module("txnlog.cli.main")

_SETTING = rf"\b(?:{'|'.join(name for name in SETTINGS if '_' in name)})\b"
"""Settings of topics by their names in Python, as far as those are no words of English."""


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
            "(use 'optimize TOPIC --target-size-bytes SIZE';",
        ),
        (("topic", "alter", "orders", "--property", "delta=auto"), "(use --delta auto, --delta manual or --delta off;"),
        (("topic", "alter", "orders", "--property", "txnlog.delta=auto"), "(use --delta [auto|manual|off];"),
        (
            ("topic", "alter", "orders", "--property", "partition=1"),
            "(did you mean 'partitions'? use 'topic create NAME",
        ),
        (("topic", "alter", "orders", "--property", "delta.autoOptimize=1"), "(did you mean 'delta.autoOptimize"),
        (("topic", "alter", "orders", "--add", "at:timestamp_ntz"), "or have --delta off for the topic,"),
        (
            ("topic", "alter", "orders", "--message-ttl-ms", "1d", "--retention-ms", "7d"),
            "--message-ttl-ms 86400000 is shorter than --retention-ms 604800000:",
        ),
        (
            ("topic", "alter", "orders", "--message-ttl-ms", "1d", "--no-retain-unacknowledged"),
            "are kept; with --no-retain-unacknowledged nothing keeps them",
        ),
        (
            ("topic", "create", "orders", "--partitions", "2", "--if-not-exists", "--no-retain-unacknowledged"),
            "exists with other --retain-unacknowledged: true instead of false",
        ),
        (
            ("topic", "create", "orders", "--partitions", "2", "--if-not-exists", "--retention-ms", "7d"),
            "exists with other --retention-ms: -1 instead of 604800000",
        ),
        (
            ("topic", "alter", "orders", "--property", "retain_unacknowledged=1"),
            "(use --retain-unacknowledged|--no-retain-unacknowledged;",
        ),
    ],
)
def test_errors_speak_of_the_command_line(lake, command, told):
    done = run(lake[0], *command)
    assert done.returncode == 2
    assert told in done.stderr
    assert not re.search(rf"=True|=False|\bns\.|, in Python|(?<!'){_SETTING}", done.stderr)


def test_a_call_without_a_command_is_said_to_be_of_python(lake):
    done = run(lake[0], "topic", "alter", "orders", "--property", "timeout_ms=1")
    assert "(use ns.begin(timeout_ms=...), in Python; nothing was written)" in done.stderr
    done = run(lake[0], "topic", "alter", "orders", "--property", "key=id")
    assert "(use 'topic create NAME --key COLUMN'; nothing was written)" in done.stderr


def plain_texts() -> Iterator[tuple[str, str]]:
    """The texts of the code that whoever types a command may be shown, with their modules; no docstrings."""
    package = pathlib.Path(txnlog.__file__).parent
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).parts[0] in {"cli", "testing"}:
            continue
        tree = ast.parse(file.read_text())
        documentation = {id(item.value) for item in ast.walk(tree) if isinstance(item, ast.Expr)}
        for item in ast.walk(tree):
            if isinstance(item, ast.Constant) and isinstance(item.value, str) and id(item) not in documentation:
                yield file.name, item.value


def test_every_sentence_that_names_a_call_with_a_command_can_name_the_command():
    """A plain text would show Python to whoever types a command: such a call is a ``Call`` among ``Words``."""
    call = re.compile(rf"\bns\.({'|'.join(CALLS)})\b")
    assert [item for item in plain_texts() if call.search(item[1]) and "or the command" not in item[1]] == []


def test_every_sentence_that_names_a_setting_can_name_the_option():
    assert [item for item in plain_texts() if re.search(_SETTING, item[1]) and " " in item[1]] == []


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


def test_every_command_that_errors_name_is_there():
    for path in CALLS.values():
        assert command_at(main_module.cli, path).name == path.split()[-1]
