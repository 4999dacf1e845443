"""What Arrow does at its first conversion in a process, done where it can be interrupted."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_done: Final[set[str]] = set()


def start_arrow() -> None:
    """Have Arrow import pandas now, in the thread of a caller, and not in the middle of a read: before any.

    Arrow does so at its first conversion to or from NumPy, which takes half a second. From within its C++ code it
    swallows Ctrl-C there; and in a thread that does not keep the process, it aborts the process if that ends meanwhile.
    """
    if not _done:
        pa.array([0])
        _done.add("done")


__all__ = ["start_arrow"]
