"""Whether small segments of a topic are merged by themselves: a property of the topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

from txnlog.common.names import nearest
from txnlog.errors import InvalidInputError
from txnlog.format.topic_properties import RESERVED

MergeMode = Literal["auto", "manual"]
MERGE_MODES: Final[tuple[MergeMode, ...]] = get_args(MergeMode)

DEFAULT_MERGE: Final[MergeMode] = "auto"
_PROPERTY: Final = f"{RESERVED}merge"
"""Where the mode stands, unless it is the default."""


def parse_merge_mode(text: object) -> MergeMode:
    """A valid mode, or InvalidInputError."""
    for mode in MERGE_MODES:
        if text == mode:
            return mode
    raise InvalidInputError(f"unknown merge {ascii(text)[:60]}", advice=nearest(str(text), MERGE_MODES))


def merge_mode(properties: Mapping[str, str]) -> MergeMode:
    """The mode that a topic's properties say. One that a newer txnlog may have written counts as by hand."""
    found = properties.get(_PROPERTY, DEFAULT_MERGE)
    return next((mode for mode in MERGE_MODES if mode == found), "manual")


def with_merge_mode(properties: Mapping[str, str], mode: MergeMode) -> dict[str, str]:
    """Properties with a mode, which is left out where it is the default."""
    others = {name: text for name, text in properties.items() if name != _PROPERTY}
    return others if mode == DEFAULT_MERGE else {**others, _PROPERTY: mode}


__all__ = ["DEFAULT_MERGE", "MERGE_MODES", "MergeMode", "merge_mode", "parse_merge_mode", "with_merge_mode"]
