"""Topic properties: settings that are one of a few words, labels of one's own, and advice for names that do nothing."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from txnlog.common.limits import MAX_LABEL_CHARACTERS
from txnlog.common.names import nearest
from txnlog.common.validation import truth
from txnlog.errors import InvalidInputError
from txnlog.sentences import Argument, Call, Words

RESERVED: Final = "txnlog."
"""What names of properties begin with that the log itself gives a meaning."""

LABEL: Final = "user."
"""What the names of one's own labels begin with."""

Value = TypeVar("Value")
Mode = TypeVar("Mode", bound=str)

_SETTINGS: Final = frozenset(
    {"delta", "merge", "message_ttl_ms", "retain_unacknowledged", "retention_bytes", "retention_ms"}
)
"""Properties that an argument of their name sets."""

_NONE_YET: Final = "there is no such setting yet"
_RETENTION: Final = Words("use ", Argument("retention_ms", ...))
_SWITCHED: Final = {"true": True, "false": False}
_NO_BOUND: Final = -1
_MOST_DIGITS: Final = 20
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
    "cleanup.policy": Words(
        "messages are deleted by ", Argument("retention_ms", ...), "; there is no compaction by key yet"
    ),
    "delete.retention.ms": "there is no compaction by key yet",
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


class Setting(ABC, Generic[Value]):
    """A setting of a topic: an argument of the calls that create and alter it. Its property is there unless default.

    Attributes:
        name: of the argument.
        default: the value of a topic without the property.
    """

    def __init__(self, name: str, default: Value) -> None:
        self.name = name
        self.default = default
        self._property = f"{RESERVED}{name}"

    @abstractmethod
    def parse(self, given: object) -> Value:
        """A valid value, or InvalidInputError."""

    @abstractmethod
    def _value_of(self, text: str) -> Value:
        """The value of a stored text, also of one that a newer txnlog may have written."""

    @abstractmethod
    def _text_of(self, value: Value) -> str:
        """A value as it is stored."""

    def of(self, properties: Mapping[str, str]) -> Value:
        """The value that a topic's properties say."""
        text = properties.get(self._property)
        return self.default if text is None else self._value_of(text)

    def put_into(self, properties: Mapping[str, str], value: Value) -> dict[str, str]:
        """Properties with a value."""
        others = {name: text for name, text in properties.items() if name != self._property}
        return others if value == self.default else {**others, self._property: self._text_of(value)}


class ModeSetting(Setting[Mode]):
    """A setting that is one of a few words.

    Attributes:
        modes: the words.
    """

    def __init__(self, name: str, modes: Sequence[Mode], *, default: Mode, if_newer: Mode) -> None:
        """``if_newer`` is what a word counts as that a newer txnlog may have written."""
        super().__init__(name, default)
        self.modes = modes
        self._if_newer = if_newer

    def parse(self, given: object) -> Mode:
        """A valid mode, or InvalidInputError."""
        mode = self._mode_of(given)
        if mode is None:
            raise InvalidInputError(f"unknown {self.name} {ascii(given)[:60]}", advice=nearest(str(given), self.modes))
        return mode

    def _value_of(self, text: str) -> Mode:
        return self._mode_of(text) or self._if_newer

    def _mode_of(self, text: object) -> Mode | None:
        """The word itself, whatever is equal to it: a text of another class cannot be stored."""
        return next((mode for mode in self.modes if mode == text), None)

    def _text_of(self, value: Mode) -> str:
        return value


class NumberSetting(Setting[int | None]):
    """A setting that is a bound, or none: ``-1`` stands for none, as in Kafka."""

    def __init__(self, name: str, parse: Callable[[str, object], int]) -> None:
        """``parse`` makes the number of what was given for the argument of a name, or raises InvalidInputError."""
        super().__init__(name, None)
        self._parse = parse

    def parse(self, given: object) -> int | None:
        """The number, or InvalidInputError."""
        unlimited = given == _NO_BOUND and not isinstance(given, bool)
        return None if unlimited else self._parse(self.name, given)

    def _value_of(self, text: str) -> int | None:
        """What is no number counts as no bound: nothing is deleted because of what nobody understands."""
        return int(text) if text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS else None

    def _text_of(self, value: int | None) -> str:
        return str(value)


class SwitchSetting(Setting[bool]):
    """A setting that is on or off."""

    def __init__(self, name: str, *, default: bool) -> None:
        super().__init__(name, default)

    def parse(self, given: object) -> bool:
        """The truth value, or InvalidInputError."""
        return truth(self.name, given)

    def _value_of(self, text: str) -> bool:
        return _SWITCHED.get(text, self.default)

    def _text_of(self, value: bool) -> str:
        return "true" if value else "false"


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
    if name in _SETTINGS and name not in _INSTEAD:
        return Words("use ", Argument(name, ...))
    by_folded = {known.casefold().replace("_", "."): known for known in _INSTEAD}
    close = difflib.get_close_matches(name.casefold().replace("_", "."), by_folded, n=1, cutoff=0.75)
    if not close:
        return _label_advice(name)
    found = by_folded[close[0]]
    return _INSTEAD[found] if found == name else Words(f"did you mean {found!r}? ", _INSTEAD[found])


def _label_advice(name: str) -> str:
    return f"{_NONE_YET}; labels of your own begin with {LABEL!r}, e.g. {LABEL + name[:40]!a}"


__all__ = ["LABEL", "RESERVED", "ModeSetting", "NumberSetting", "Setting", "SwitchSetting", "check_properties"]
