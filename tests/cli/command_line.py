"""The command line, called in this process."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from txnlog.cli import main


def run(*arguments, given=b""):
    """The command line, in this process: one of its own for each call is most of what these tests would take.

    ``given`` is its standard input.
    """
    with pytest.MonkeyPatch.context() as patch:
        streams = {name: io.TextIOWrapper(io.BytesIO(), write_through=True) for name in ("stdout", "stderr")}
        streams["stdin"] = io.TextIOWrapper(io.BytesIO(given))
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
    told, said = (streams[name].buffer.getvalue().decode() for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), told, said)


def lines(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
