"""The names of the kinds of operations of a history; ``operations`` says what each takes and returns."""

from __future__ import annotations

from typing import Literal

Kind = Literal[
    "begin",
    "produce",
    "acknowledge",
    "receive",
    "negative_acknowledge",
    "commit",
    "abort",
    "prepare",
    "complete",
    "outcome",
    "read",
    "open_producer",
    "open_consumer",
    "create_subscription",
    "seek",
    "cursors",
    "drop_topic",
    "drop_subscription",
    "vacuum",
    "optimize",
    "alter_topic",
    "delete_records",
    "erase",
    "compact",
    "truncate",
    "backup",
    "restore",
    "read_restored",
    "final",
]
WITHOUT_RESULT = frozenset(
    {
        "begin",
        "negative_acknowledge",
        "abort",
        "prepare",
        "create_subscription",
        "drop_topic",
        "drop_subscription",
        "optimize",
        "alter_topic",
        "truncate",
    }
)
"""Kinds that return nothing but that they were done."""

__all__ = ["WITHOUT_RESULT", "Kind"]
