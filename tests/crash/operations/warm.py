"""Imports all that an operation, or looking at its end, imports on its way: forked children find it there.

Nothing of it is used here: a pool of threads that a parent started would not be there in a child.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from typing import Final

from txnlog.client.auto_publisher import GROUP

_ON_THE_WAY: Final = (
    "_strptime",
    "deltalake",
    "email.parser",
    "pandas",
    "pyarrow.acero",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "txnlog.api.backups",
)


def warm() -> None:
    """See the module."""
    for name in _ON_THE_WAY:
        importlib.import_module(name)
    # It reads the metadata of every package that is installed, each time.
    entry_points = functools.cache(importlib.metadata.entry_points)
    entry_points(group=GROUP)
    setattr(importlib.metadata, "entry_points", entry_points)  # noqa: B010 - for children of this process alone


__all__ = ["warm"]
