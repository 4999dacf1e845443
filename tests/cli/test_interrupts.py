"""Ctrl-C in a command: who runs it hears what became of the work, and nothing is called undone that may be done."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txnlog
from tests.cli.command_line import lines, run
from tests.interrupts import hearing_interrupts
from txnlog.cli.main import cli
from txnlog.log import appender
from txnlog.log.slots import occupy

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"


@pytest.fixture
def shop(tmp_path):
    with txnlog.open(tmp_path / "lake" / "shop", create=True) as ns:
        ns.create_topic("orders", pa.schema([("customer", pa.string())]))
    return str(tmp_path / "lake" / "shop")


def interrupting(monkeypatch: pytest.MonkeyPatch, put: int) -> Callable[[], int]:
    """From now on Ctrl-C comes when so many entries were about to be put. Returns how many there were."""
    main = threading.main_thread().ident
    puts = 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal puts
        puts += 1
        if puts == put:
            assert main is not None, "it runs"
            signal.pthread_kill(main, signal.SIGINT)
        return occupy(*arguments, **options)

    monkeypatch.setattr(appender, "occupy", interrupted)
    return lambda: puts


def test_where_rows_may_be_there_all_the_same_the_command_names_their_transaction(shop, monkeypatch):
    committed = 0
    for put in range(1, 10):
        with monkeypatch.context() as patch, hearing_interrupts():
            puts = interrupting(patch, put)
            done = run(shop, "produce", "orders", given=b'{"customer": "ann"}\n')
        (described,) = lines(shop, "topic", "describe", "orders", "--json")
        if described["end_offsets"]["0"] == committed:
            continue
        if puts() < put:
            break
        committed += 1
        assert (done.returncode, done.stdout, "Aborted!" in done.stderr) == (3, "", False)
        (txn_id,) = re.findall(r"Interrupted: this call of the transaction (\S+) was interrupted, and may", done.stderr)
        assert "'transactions describe TXN_ID' shows its outcome" in done.stderr
        (found,) = lines(shop, "transactions", "describe", txn_id, "--json")
        assert found["state"] == "COMMITTED"
    assert committed == 1


def test_a_command_that_only_reads_is_just_ended(shop, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(txnlog.Namespace, "transactions", interrupted)
    done = run(shop, "transactions", "list")
    assert (done.returncode, done.stderr) == (1, "\nAborted!\n")


def test_the_page_names_the_commands_that_are_run_again():
    (listed,) = re.findall(r"Ctrl-C ended (.*?): run it again;", PAGE.read_text(encoding="utf-8"))
    assert re.findall(r"`(.*?)`", listed) == sorted(cli.when_interrupted)
    assert cli.when_interrupted.keys() <= cli.commands.keys()
