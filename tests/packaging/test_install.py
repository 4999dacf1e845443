"""Making the environment: only when something changed, never half, and never with a Python that is too old."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import install


@pytest.fixture
def count_runs(tmp_path):
    """A command that leaves a line each time it runs, and the number of these lines."""
    log = tmp_path / "runs"
    command = [sys.executable, "-c", f"open({str(log)!r}, 'a').write('run\\n')"]
    return command, lambda: len(log.read_text().splitlines()) if log.exists() else 0


def test_an_unchanged_digest_runs_nothing(tmp_path, count_runs):
    command, runs = count_runs
    for digest in ("a", "a", "b", "b", "a"):
        install.ensure_installed(tmp_path / "stamp", digest, [command])
    assert runs() == 3


def test_a_failed_command_is_run_again(tmp_path, count_runs):
    command, runs = count_runs
    stamp = tmp_path / "stamp"
    install.ensure_installed(stamp, "a", [command])
    with pytest.raises(subprocess.CalledProcessError):
        install.ensure_installed(stamp, "b", [[sys.executable, "-c", "raise SystemExit(3)"]])
    assert not stamp.exists()
    install.ensure_installed(stamp, "a", [command])
    assert runs() == 2


def test_where_one_of_several_commands_fails_all_are_run_again(tmp_path, count_runs):
    command, runs = count_runs
    stamp = tmp_path / "stamp"
    with pytest.raises(subprocess.CalledProcessError):
        install.ensure_installed(stamp, "a", [command, [sys.executable, "-c", "raise SystemExit(3)"]])
    install.ensure_installed(stamp, "a", [command, command])
    assert runs() == 3


def test_each_distribution_of_the_lock_is_in_one_lot(tmp_path):
    commands = list(install.lots_of_lock([], tmp_path))
    lots = [Path(command[-1]).read_text().splitlines() for command in commands]
    assert all(lots)
    lock = install.LOCK.read_text().splitlines()
    named = lock[next(number for number, line in enumerate(lock) if not line.startswith("#")) :]
    assert sorted(line for lot in lots for line in lot) == sorted(named)


def test_a_python_that_is_too_old_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    assert install.main([]) == 1
    message = capsys.readouterr().err
    assert "3.11 or newer" in message
    assert "make PYTHON=" in message


def test_a_linter_setting_does_not_install_the_project_again(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_bytes((install.ROOT / "pyproject.toml").read_bytes())
    before = install.packaging_settings()
    monkeypatch.setattr(install, "ROOT", tmp_path)
    assert install.packaging_settings() == before
    (tmp_path / "pyproject.toml").write_text((tmp_path / "pyproject.toml").read_text() + "\n[tool.other]\nx = 1\n")
    assert install.packaging_settings() == before
