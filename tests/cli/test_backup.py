"""The commands backup and restore, and the page that explains them."""

from __future__ import annotations

import json
import shlex

import pytest

import txnlog
from tests.cli.command_line import lines, run
from tests.pages import run_page
from txnlog.errors import StoreError


def test_a_namespace_is_backed_up_and_restored(lake, tmp_path):
    path, open_one = lake
    open_one.abort()
    folder = str(tmp_path / "backups")
    (made,) = lines(path, "backup", folder, "--json")
    assert (made["namespace"], made["entries"], made["segments"]) == ("sales", made["version"] + 1, 2)
    assert made["copied_bytes"] == made["size_bytes"] > 0
    done = run(path, "backup", folder, "--verify")
    assert (done.returncode, done.stderr) == (0, ""), "nothing but the answer is in a pipe"
    assert done.stdout.splitlines()[-2].split() == ["copied_files", "0"]
    copy = str(tmp_path / "other" / "sales")
    (dry,) = lines(copy, "restore", folder, "--dry-run", "--json")
    assert (dry["dry_run"], dry["coordinator"]) == (True, None)
    (restored,) = lines(copy, "restore", folder, "--version", str(made["version"]), "--json")
    assert (restored["namespace"], restored["version"], restored["coordinator"]) == ("sales", made["version"], 1)
    assert lines(copy, "topics", "--json") == lines(path, "topics", "--json")
    with txnlog.open(copy) as ns:
        ns.produce("orders", [{"value": b"more"}])


def test_what_is_refused_ends_with_2_and_speaks_of_options(lake, tmp_path):
    path, _ = lake
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "report.csv").write_text("a,b")
    done = run(path, "backup", str(folder))
    assert (done.returncode, "and no backup" in done.stderr) == (2, True)
    done = run(path, "restore", str(tmp_path / "none"))
    assert (done.returncode, "has no backup" in done.stderr) == (2, True)
    made = str(tmp_path / "made")
    (found,) = lines(path, "backup", made, "--json")
    done = run(path, "restore", made)
    assert (done.returncode, "where a namespace is" in done.stderr) == (2, True)
    done = run(path, "backup", made, "--backup-storage-options", "no json")
    assert (done.returncode, "not a JSON object" in done.stderr) == (2, True)
    (tmp_path / "made" / "_backup" / f"{found['version']:020d}.json").write_text("{}")
    done = run(str(tmp_path / "x" / "y"), "restore", made)
    assert done.returncode == 2
    assert "(--version)" in done.stderr
    assert "--verify" in done.stderr
    assert "Python" not in done.stderr


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_store_that_fails_or_ctrl_c_ends_with_3_and_says_how_to_go_on(lake, tmp_path, monkeypatch, command):
    path, _ = lake
    made = str(tmp_path / "made")
    lines(path, "backup", made, "--json")

    def fails(error):
        def call(*_arguments, **_options):
            raise error

        return call

    monkeypatch.setattr(f"txnlog.cli.target.{command}", fails(StoreError("gone")))
    assert run(str(tmp_path / "x" / "y"), command, made).returncode == 3
    monkeypatch.setattr(f"txnlog.cli.target.{command}", fails(KeyboardInterrupt))
    done = run(str(tmp_path / "x" / "y"), command, made)
    assert done.returncode == 3
    assert done.stderr.endswith("Run the same command again to go on.\n")


def test_options_of_the_folder_are_its_own(lake, tmp_path, monkeypatch):
    path, _ = lake
    seen = []
    made = txnlog.backup(path, tmp_path / "made")

    def backup(*given, **options):
        seen.append((given, options))
        return made

    monkeypatch.setattr("txnlog.cli.target.backup", backup)
    options = json.dumps({"anon": True})
    done = run(
        "--storage-options",
        '{"key": "k"}',
        "s3://b/lake/sales",
        "backup",
        "s3://c/x",
        "--backup-storage-options",
        options,
    )
    assert done.returncode == 0, done.stderr
    ((given, found),) = seen
    assert given == ("s3://b/lake/sales", "s3://c/x")
    assert (found["storage_options"], found["destination_storage_options"]) == ({"key": "k"}, {"anon": True})


def test_the_page_of_backups_prints_what_it_says(tmp_path):
    def check(call, _shown):
        assert run(*shlex.split(call.removeprefix("txnlog "))).returncode == 0

    run_page("docs/operations/backup.md", tmp_path, console=check)
