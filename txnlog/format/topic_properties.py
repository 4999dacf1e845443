"""Names of topic properties: labels of one's own, and the advice for names that would do nothing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from txnlog.common.limits import MAX_LABEL_CHARACTERS
from txnlog.errors import InvalidInputError
from txnlog.sentences import Argument, Call, Words

RESERVED: Final = "txnlog."
"""What names of properties begin with that the log itself gives a meaning."""

LABEL: Final = "user."
"""What the names of one's own labels begin with."""

_NONE_YET: Final = "there is no such setting yet"
_KEPT: Final = f"{_NONE_YET}: messages are kept"
_VACUUM: Final = Words("use ", Call("vacuum", Argument("retain_ms", ...)))
_TARGET: Final = Words("use ", Call("optimize", "topic", Argument("target_size_bytes", ...)))
_MERGE: Final = Words("use ", Call("optimize", "topic"), " or ", Call("maintain"))
_TIMEOUT: Final = Words("use ", Call("begin", Argument("timeout_ms", ...)))
_PARTITIONS: Final = Words("use ", Call("create_topic", "name", Argument("partitions", ...)))

_INSTEAD: Final[Mapping[str, str]] = {
    "delta": Words(
        "use ", Argument("delta", "auto"), ", ", Argument("delta", "manual"), " or ", Argument("delta", "off")
    ),
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
    "delta.autoOptimize.autoCompact": _MERGE,
    "delta.autoOptimize.optimizeWrite": _MERGE,
    "transaction.timeout.ms": _TIMEOUT,
    "transaction.max.timeout.ms": _TIMEOUT,
    "retention.ms": _KEPT,
    "retention.bytes": _KEPT,
    "cleanup.policy": _KEPT,
    "delete.retention.ms": _KEPT,
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


def check_properties(properties: Mapping[str, str | None]) -> None:
    """Raise InvalidInputError for a name that means something else, or nothing. None removes whatever is there."""
    for name, value in properties.items():
        if name.startswith(RESERVED):
            raise InvalidInputError(
                f"the property {ascii(name)[:60]} is reserved",
                advice=Words("use ", Argument("delta", ...)) if name == f"{RESERVED}delta" else _label_advice(name),
            )
        if value is not None and not (name.startswith(LABEL) and name != LABEL):
            raise InvalidInputError(
                f"unknown property {ascii(name)[:60]}: it would do nothing",
                advice=_instead(name[:MAX_LABEL_CHARACTERS]),
            )


def _instead(name: str) -> str:
    by_folded = {known.casefold().replace("_", "."): known for known in _INSTEAD}
    close = difflib.get_close_matches(name.casefold().replace("_", "."), by_folded, n=1, cutoff=0.75)
    if not close:
        return _label_advice(name)
    found = by_folded[close[0]]
    return _INSTEAD[found] if found == name else Words(f"did you mean {found!r}? ", _INSTEAD[found])


def _label_advice(name: str) -> str:
    return f"{_NONE_YET}; labels of your own begin with {LABEL!r}, e.g. {LABEL + name[:40]!a}"


__all__ = ["LABEL", "RESERVED", "check_properties"]
