"""Key compaction of a topic: its settings, and up to which offsets it has been done. Properties of the topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.validation import duration_ms
from txnlog.format.topic_properties import RESERVED, ModeSetting, NumberSetting, SwitchSetting

CleanupPolicy = Literal["delete", "compact"]

CLEANUP_POLICY: Final[ModeSetting[CleanupPolicy]] = ModeSetting(
    "cleanup_policy", get_args(CleanupPolicy), default="delete", if_newer="delete"
)
DELETE_RETENTION_MS: Final = NumberSetting(
    "delete_retention_ms", lambda name, value: duration_ms(name, value, 0, MAX_NUMBER)
)
MIN_COMPACTION_LAG_MS: Final = NumberSetting(
    "min_compaction_lag_ms", lambda name, value: duration_ms(name, value, 0, MAX_NUMBER)
)
COMPACT_UNACKNOWLEDGED: Final = SwitchSetting("compact_unacknowledged", default=True)

DEFAULT_DELETE_RETENTION_MS: Final = 24 * 60 * 60 * 1_000
"""How long a message without a value is kept at least, as in Kafka: readers have so long to see that a key is gone."""

_COMPACTED_TO: Final = f"{RESERVED}compacted_to"
_COMPACTED_MS: Final = f"{RESERVED}compacted_ms"
_LEFT_ENDED: Final = f"{RESERVED}compacted_left_ended"
_LEFT_NEW: Final = f"{RESERVED}compacted_left_new"
_DIGITS: Final = 20
_decode: Final = msgspec.json.Decoder(dict[int, int]).decode


def compacted_to(properties: Mapping[str, str]) -> dict[int, int]:
    """By partition the offset up to which compaction has left one message of each key; whatever is no such thing: 0.

    It only saves work: what lies below is not read for its keys again.
    """
    try:
        return _decode(properties.get(_COMPACTED_TO, "{}"))
    except msgspec.DecodeError:
        return {}


def compacted_ms(properties: Mapping[str, str]) -> int | None:
    """The time of the log at which that was noted; None where nobody said."""
    said = properties.get(_COMPACTED_MS, "")
    return int(said) if said.isascii() and said.isdigit() and len(said) < _DIGITS else None


def left_ended(properties: Mapping[str, str]) -> bool | None:
    """Whether messages without a value were left then, for readers to see; None where nobody said."""
    return {"true": True, "false": False}.get(properties.get(_LEFT_ENDED, ""))


def left_new(properties: Mapping[str, str]) -> bool:
    """Whether that was a part, so that maintenance goes on, however little is left. False where nobody said."""
    return properties.get(_LEFT_NEW) == "true"


def with_compaction(
    properties: Mapping[str, str], ends: Mapping[int, int], time_ms: int, *, left_ended: bool, left_new: bool
) -> dict[str, str]:
    """Properties that say all four."""
    return {
        **properties,
        _COMPACTED_TO: msgspec.json.encode(dict(sorted(ends.items()))).decode(),
        _COMPACTED_MS: str(time_ms),
        _LEFT_ENDED: "true" if left_ended else "false",
        _LEFT_NEW: "true" if left_new else "false",
    }


__all__ = [
    "CLEANUP_POLICY",
    "COMPACT_UNACKNOWLEDGED",
    "DEFAULT_DELETE_RETENTION_MS",
    "DELETE_RETENTION_MS",
    "MIN_COMPACTION_LAG_MS",
    "CleanupPolicy",
    "compacted_ms",
    "compacted_to",
    "left_ended",
    "left_new",
    "with_compaction",
]
