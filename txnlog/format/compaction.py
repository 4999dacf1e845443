"""Key compaction of a topic: its settings, and up to which offsets it has been done. Properties of the topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

from txnlog.common.limits import MAX_NUMBER
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
_decode: Final = msgspec.json.Decoder(dict[int, int]).decode


def compacted_to(properties: Mapping[str, str]) -> dict[int, int]:
    """By partition the offset up to which compaction has left one message of each key; whatever is no such thing: 0.

    It only saves work: what lies below is not read for its keys again.
    """
    try:
        return _decode(properties.get(_COMPACTED_TO, "{}"))
    except msgspec.DecodeError:
        return {}


def with_compacted_to(properties: Mapping[str, str], ends: Mapping[int, int]) -> dict[str, str]:
    """Properties that say so."""
    return {**properties, _COMPACTED_TO: msgspec.json.encode(dict(sorted(ends.items()))).decode()}


__all__ = [
    "CLEANUP_POLICY",
    "COMPACT_UNACKNOWLEDGED",
    "DEFAULT_DELETE_RETENTION_MS",
    "DELETE_RETENTION_MS",
    "MIN_COMPACTION_LAG_MS",
    "CleanupPolicy",
    "compacted_to",
    "with_compacted_to",
]
