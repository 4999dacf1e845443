"""The command line: ``txnlog ROOT/NAMESPACE COMMAND``. What it does, the Python handle does under the same name."""

from __future__ import annotations

from txnlog.cli.main import main

__all__ = ["main"]
