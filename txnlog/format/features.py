"""The features of the format by their names (PROTOCOL.md, "Versions and features")."""

from __future__ import annotations

from typing import Final

HOLES: Final = "holes"
"""Merged segments may stand for offsets that have no row any more: key compaction, erasure and truncation need it."""

__all__ = ["HOLES"]
