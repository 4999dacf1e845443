"""Topic properties: settings that are one of a few words, labels of one's own, and advice for names that do nothing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from txnlog.common.limits import MAX_LABEL_CHARACTERS
from txnlog.common.names import nearest
from txnlog.errors import InvalidInputError
from txnlog.sentences import Argument, Call, Words

RESERVED: Final = "txnlog."
"""What names of properties begin with that the log itself gives a meaning."""

LABEL: Final = "user."
"""What the names of one's own labels begin with."""

Mode = TypeVar("Mode", bound=str)

_SETTINGS: Final = frozenset({"delta", "merge"})
"""Properties that an argument of their name sets."""

_NONE_YET: Final = "there is no such setting yet"
_KEPT: Final = f"{_NONE_YET}: messages are kept"
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


class ModeSetting(Generic[Mode]):
    """A setting of a topic that is one of a few words. Its property is there unless it is the default.

    Attributes:
        modes: the words.
        default: of a topic without the property.
    """

    def __init__(self, name: str, modes: Sequence[Mode], *, default: Mode, if_newer: Mode) -> None:
        """``if_newer`` is what a word counts as that a newer txnlog may have written."""
        self._name = name
        self._property = f"{RESERVED}{name}"
        self.modes = modes
        self.default: Final = default
        self._if_newer = if_newer

    def parse(self, text: object) -> Mode:
        """A valid mode, or InvalidInputError."""
        mode = self._mode_of(text)
        if mode is None:
            raise InvalidInputError(f"unknown {self._name} {ascii(text)[:60]}", advice=nearest(str(text), self.modes))
        return mode

    def of(self, properties: Mapping[str, str]) -> Mode:
        """The mode that a topic's properties say."""
        return self._mode_of(properties.get(self._property, self.default)) or self._if_newer

    def _mode_of(self, text: object) -> Mode | None:
        """The word itself, whatever is equal to it: a text of another class cannot be stored."""
        return next((mode for mode in self.modes if mode == text), None)

    def put_into(self, properties: Mapping[str, str], mode: Mode) -> dict[str, str]:
        """Properties with a mode."""
        others = {name: text for name, text in properties.items() if name != self._property}
        return others if mode == self.default else {**others, self._property: mode}


def check_properties(properties: Mapping[str, str | None]) -> None:
    """Raise InvalidInputError for a name that means something else, or nothing. None removes whatever is there."""
    for name, value in properties.items():
        setting = name.removeprefix(RESERVED)
        if setting != name:
            raise InvalidInputError(
                f"the property {ascii(name)[:60]} is reserved",
                advice=Words("use ", Argument(setting, ...)) if setting in _SETTINGS else _label_advice(name),
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


__all__ = ["LABEL", "RESERVED", "ModeSetting", "check_properties"]
