"""How long the messages of a topic are kept: properties of the topic, applied by maintenance. Pure."""

from __future__ import annotations

from typing import Final

from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.validation import duration_ms, size_bytes
from txnlog.format.topic_properties import NumberSetting, SwitchSetting

RETENTION_MS: Final = NumberSetting("retention_ms", lambda name, value: duration_ms(name, value, 1, MAX_NUMBER))
RETENTION_BYTES: Final = NumberSetting("retention_bytes", lambda name, value: size_bytes(name, value, 1, MAX_NUMBER))
MESSAGE_TTL_MS: Final = NumberSetting("message_ttl_ms", lambda name, value: duration_ms(name, value, 1, MAX_NUMBER))
RETAIN_UNACKNOWLEDGED: Final = SwitchSetting("retain_unacknowledged", default=True)


__all__ = ["MESSAGE_TTL_MS", "RETAIN_UNACKNOWLEDGED", "RETENTION_BYTES", "RETENTION_MS"]
