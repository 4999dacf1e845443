"""How the command line is called: the program, the path, the name of the command, the options of the store."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from tests.cli.command_line import lines, run
from txnlog.cli.output import StatusLine


def test_python_runs_it_as_a_module(lake):
    path, _ = lake
    asked = [path, "topics"]
    done = subprocess.run([sys.executable, "-m", "txnlog", *asked], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, run(*asked).stdout)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("topic", "gate"), "did you mean 'topic describe gate'? there are: alter, create, describe, drop"),
        (("subscription", "reset"), "did you mean 'subscription seek'?"),
        (("describe", "gate"), "did you mean 'topic describe' or 'transactions describe' or 'subscription describe'?"),
        (("topcs",), "did you mean 'topics'?"),
        (("producers", "x"), "there are: fence, list"),
        (("topic", "list"), "did you mean 'topics'?"),
        (("--json", "topics"), "options stand behind their command: txnlog ROOT/NAMESPACE COMMAND --json"),
    ],
)
def test_a_command_that_is_not_there_is_answered_with_what_may_be_meant(lake, command, told):
    done = run(lake[0], *command)
    assert done.returncode == 2
    assert told in done.stderr


def test_whoever_puts_the_namespace_behind_the_command_is_shown_the_order(lake):
    for asked, meant in (
        (("topics",), "txnlog ROOT/NAMESPACE topics"),
        (("topics", lake[0]), f"txnlog {lake[0]} topics"),
        (("backup", lake[0], "folder"), f"txnlog {lake[0]} backup"),
    ):
        done = run(*asked)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"is a command, and the namespace stands before it: {meant}" in done.stderr


def test_a_refusal_has_exit_code_2_and_names_the_nearest(lake):
    done = run(lake[0], "topic", "describe", "order")
    assert done.returncode == 2
    assert "TopicNotFound" in done.stderr
    assert "did you mean 'orders'?" in done.stderr
    missing = run(lake[0] + "x", "topics")
    assert missing.returncode == 2
    assert "lake/salesx'" in missing.stderr
    way = "txnlog ROOT namespaces create NAME"
    assert f"{way} makes it" in missing.stderr
    nothing = run("/".join((lake[0], "..", "..", "other", "sales")), "topics")
    assert f"{way} makes root and namespace" in nothing.stderr
    root, _, name = lake[0].rpartition("/")
    _, *arguments = shlex.split(way.replace("ROOT", root).replace("NAME", name + "x"))
    assert run(*arguments).returncode == 0
    assert run(lake[0] + "x", "topics").returncode == 0


def test_a_root_for_a_namespace_is_answered_with_its_namespaces(lake):
    done = run(lake[0].removesuffix("/sales"), "topics")
    assert done.returncode == 2
    assert "append one of its namespaces (sales)" in done.stderr


def test_a_name_alone_is_a_namespace_of_the_present_folder(lake, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.chdir(lake[0].removesuffix("/sales"))
    assert lines("sales", "topics", "--json")[0]["topic"] == "orders"


@pytest.mark.parametrize(
    ("asked", "usages"),
    [
        (
            ("--help",),
            [
                "Usage: txnlog [OPTIONS] ROOT/NAMESPACE COMMAND [ARGS]...",
                "       txnlog [OPTIONS] ROOT namespaces COMMAND [ARGS]...",
                "       txnlog --version [--json]",
            ],
        ),
        (("namespaces", "--help"), ["Usage: txnlog ROOT namespaces [OPTIONS] COMMAND [ARGS]..."]),
        (("lake", "namespaces", "drop", "-h"), ["Usage: txnlog ROOT namespaces drop [OPTIONS] NAME"]),
        (("topic", "drop", "--help"), ["Usage: txnlog ROOT/NAMESPACE topic drop [OPTIONS] NAME"]),
        (("lake/sales", "topics", "-h"), ["Usage: txnlog ROOT/NAMESPACE topics [OPTIONS]"]),
        (("topics", "topics", "-h"), ["Usage: txnlog ROOT/NAMESPACE topics [OPTIONS]"]),
    ],
)
def test_usage_lines_say_what_may_be_typed_with_a_place_or_without(asked, usages):
    done = run(*asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.partition("\n\n")[0].splitlines() == usages


@pytest.mark.parametrize("scheme", ["hdfs", "ftp", "http", "https", "sftp", "webhdfs"])
def test_a_scheme_without_create_if_absent_says_so_and_which_work(scheme):
    done = run(f"{scheme}://host/lake/sales", "topics")
    assert done.returncode == 3
    assert f"{scheme}:// has no atomic create-if-absent" in done.stderr
    assert "use a local path, file:// or one of s3://, s3a://, abfss://" in done.stderr


def test_secrets_in_storage_options_are_not_shown(lake):
    done = run("--storage-options", "secret-text", lake[0], "topics")
    assert done.returncode == 2
    assert "secret-text" not in done.stderr


def test_storage_options_that_are_nested_too_deep_are_refused_as_others_are(lake):
    done = run("--storage-options", "[" * 50_000, lake[0], "topics")
    assert done.returncode == 2
    assert "not a JSON object" in done.stderr


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
