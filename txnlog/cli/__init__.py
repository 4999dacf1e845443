"""The command line: ``txnlog ROOT/NAMESPACE COMMAND``. It goes through the Python handle."""

from __future__ import annotations

from txnlog.cli.main import main

__all__ = ["main"]
