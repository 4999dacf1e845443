"""What a misreading of PROTOCOL.md is."""

from __future__ import annotations

from typing import NamedTuple


class Misreading(NamedTuple):
    """What somebody took the document to say: instead of one text of the reader another, and where it must show."""

    name: str
    root: str
    right: str
    wrong: str
