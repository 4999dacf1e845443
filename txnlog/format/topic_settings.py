"""All settings of a topic: arguments of the calls that create and alter it, stored as properties. Pure.

Besides, topics have labels of one's own; any other property would do nothing, and is refused with advice.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from txnlog.common.format_limits import MAX_LABEL_CHARACTERS
from txnlog.errors import InvalidInputError
from txnlog.format.compaction import (
    CLEANUP_POLICY,
    COMPACT_UNACKNOWLEDGED,
    DELETE_RETENTION_MS,
    MIN_COMPACTION_LAG_MS,
)
from txnlog.format.delta_mode import DELTA
from txnlog.format.kept_statistics import STATISTICS
from txnlog.format.merge_mode import MERGE
from txnlog.format.retention import MESSAGE_TTL_MS, RETAIN_UNACKNOWLEDGED, RETENTION_BYTES, RETENTION_MS
from txnlog.format.topic_properties import RESERVED, Setting
from txnlog.sentences import Argument, Call, Either, Words

_LABEL: Final = "user."
"""What the names of one's own labels begin with."""

SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    setting.name: setting
    for setting in (
        DELTA,
        MERGE,
        RETENTION_MS,
        RETENTION_BYTES,
        RETAIN_UNACKNOWLEDGED,
        MESSAGE_TTL_MS,
        CLEANUP_POLICY,
        DELETE_RETENTION_MS,
        MIN_COMPACTION_LAG_MS,
        COMPACT_UNACKNOWLEDGED,
        STATISTICS,
    )
}

_NONE_YET: Final = "there is no such setting yet"
_RETENTION: Final = Words("use ", Argument("retention_ms", ...))
_VACUUM: Final = Words("use ", Call("vacuum", Argument("retain_ms", ...)))
_TARGET: Final = Words("use ", Call("optimize", "topic", Argument("target_size_bytes", ...)))
_BY_ITSELF: Final = Words("use ", Argument("merge", "auto"), " or ", Argument("merge", "manual"))
_TIMEOUT: Final = Words("use ", Call("begin", Argument("timeout_ms", ...)))
_PARTITIONS: Final = Words("use ", Call("create_topic", "name", Argument("partitions", ...)))

_INSTEAD: Final[Mapping[str, str]] = {
    "delta": Words(
        "use ", Argument("delta", "auto"), ", ", Argument("delta", "manual"), " or ", Argument("delta", "off")
    ),
    "merge": _BY_ITSELF,
    "partitions": _PARTITIONS,
    "num.partitions": _PARTITIONS,
    "key": Words("use ", Call("create_topic", "name", Argument("key", ...))),
    "schema": Words(
        "use ",
        Call("create_topic", "name", Argument("schema", ...)),
        ", later ",
        Call("alter_topic", "name", Argument("add_columns", ...), Argument("widen", ...)),
    ),
    "retain_ms": _VACUUM,
    "target_size_bytes": _TARGET,
    "timeout_ms": _TIMEOUT,
    "delta.deletedFileRetentionDuration": _VACUUM,
    "delta.logRetentionDuration": _VACUUM,
    "delta.targetFileSize": _TARGET,
    "delta.autoOptimize.autoCompact": _BY_ITSELF,
    "delta.autoOptimize.optimizeWrite": _BY_ITSELF,
    "transaction.timeout.ms": _TIMEOUT,
    "transaction.max.timeout.ms": _TIMEOUT,
    "retention.ms": _RETENTION,
    "retention.bytes": Words("use ", Argument("retention_bytes", ...)),
    "cleanup.policy": Words("use ", Argument("cleanup_policy", "compact"), ", or ", Argument("retention_ms", ...)),
    "delete.retention.ms": Words("use ", Argument("delete_retention_ms", ...)),
    "min.compaction.lag.ms": Words("use ", Argument("min_compaction_lag_ms", ...)),
    "min.cleanable.dirty.ratio": _NONE_YET,
    "message.ttl": Words("use ", Argument("message_ttl_ms", ...)),
    "compression.type": _NONE_YET,
    "max.message.bytes": _NONE_YET,
    "min.insync.replicas": _NONE_YET,
    "message.timestamp.type": _NONE_YET,
    "segment.bytes": _NONE_YET,
    "segment.ms": _NONE_YET,
    "delta.appendOnly": _NONE_YET,
    "delta.enableChangeDataFeed": _NONE_YET,
}
"""By names of ours, of Kafka and of Delta what is there instead."""


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """The settings that a call names, by their names; what it leaves out is as it was."""

    values: Mapping[str, Any]

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> GivenSettings:
        """Those that are not None. Raises InvalidInputError for a value that makes no sense."""
        return cls({name: SETTINGS[name].parse(value) for name, value in given.items() if value is not None})

    def put_into(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Properties with these settings. Raises InvalidInputError where they contradict each other."""
        found = dict(properties)
        for name, value in self.values.items():
            found = SETTINGS[name].put_into(found, value)
        ttl_ms, kept_ms = MESSAGE_TTL_MS.of(found), RETENTION_MS.of(found)
        if self.values and ttl_ms is not None and not RETAIN_UNACKNOWLEDGED.of(found):
            raise InvalidInputError(
                Words(
                    Argument("message_ttl_ms"),
                    " says how long unacknowledged messages are kept; with ",
                    Argument("retain_unacknowledged", False),
                    " nothing keeps them",
                ),
                advice="leave one of the two out",
            )
        if self.values and ttl_ms is not None and kept_ms is not None and ttl_ms < kept_ms:
            raise InvalidInputError(
                Words(
                    Argument("message_ttl_ms", ttl_ms),
                    " is shorter than ",
                    Argument("retention_ms", kept_ms),
                    ": subscriptions would lose messages that are still there",
                ),
                advice=Words("give ", Argument("message_ttl_ms"), " at least the length of ", Argument("retention_ms")),
            )
        return found

    def difference(self, properties: Mapping[str, str]) -> str | None:
        """How a topic's properties differ from these settings, for a sentence; None where they do not."""
        for name, value in self.values.items():
            setting = SETTINGS[name]
            found = setting.of(properties)
            if found != value:
                there, wanted = (Either(repr(item), setting.text_of(item)) for item in (found, value))
                return Words(Argument(name), ": ", there, " instead of ", wanted)
        return None


def check_properties(properties: Mapping[str, str | None]) -> None:
    """Raise InvalidInputError for a name that means something else, or nothing. None removes whatever is there."""
    for name, value in properties.items():
        setting = name.removeprefix(RESERVED)
        if setting != name:
            raise InvalidInputError(
                f"the property {ascii(name)[:60]} is reserved",
                advice=Words("use ", Argument(setting, ...)) if setting in SETTINGS else _label_advice(name),
            )
        if value is not None and not (name.startswith(_LABEL) and name != _LABEL):
            raise InvalidInputError(
                f"unknown property {ascii(name)[:60]}: it would do nothing",
                advice=_instead(name[:MAX_LABEL_CHARACTERS]),
            )


def _instead(name: str) -> str:
    if name in SETTINGS and name not in _INSTEAD:
        return Words("use ", Argument(name, ...))
    by_folded = {known.casefold().replace("_", "."): known for known in _INSTEAD}
    close = difflib.get_close_matches(name.casefold().replace("_", "."), by_folded, n=1, cutoff=0.75)
    if not close:
        return _label_advice(name)
    found = by_folded[close[0]]
    return _INSTEAD[found] if found == name else Words(f"did you mean {found!r}? ", _INSTEAD[found])


def _label_advice(name: str) -> str:
    return f"{_NONE_YET}; labels of your own begin with {_LABEL!r}, e.g. {_LABEL + name[:40]!a}"


__all__ = ["SETTINGS", "GivenSettings", "check_properties"]
