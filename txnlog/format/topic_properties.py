"""Topic properties: the kinds of settings, each a property of its own (``topic_settings`` has all). Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from txnlog.common.names import nearest
from txnlog.common.validation import truth
from txnlog.errors import InvalidInputError

RESERVED: Final = "txnlog."
"""What names of properties begin with that the log itself gives a meaning."""

Value = TypeVar("Value")
Mode = TypeVar("Mode", bound=str)

_SWITCHED: Final = {"true": True, "false": False}
_NO_BOUND: Final = -1
_MOST_DIGITS: Final = 20


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
    def text_of(self, value: Value) -> str:
        """A value as it is stored, and as the command line takes it."""

    def of(self, properties: Mapping[str, str]) -> Value:
        """The value that a topic's properties say."""
        text = properties.get(self._property)
        return self.default if text is None else self._value_of(text)

    def put_into(self, properties: Mapping[str, str], value: Value) -> dict[str, str]:
        """Properties with a value."""
        others = {name: text for name, text in properties.items() if name != self._property}
        return others if value == self.default else {**others, self._property: self.text_of(value)}


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

    def text_of(self, value: Mode) -> str:
        """See Setting."""
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

    def text_of(self, value: int | None) -> str:
        """See Setting."""
        return str(_NO_BOUND if value is None else value)


class SwitchSetting(Setting[bool]):
    """A setting that is on or off."""

    def __init__(self, name: str, *, default: bool) -> None:
        super().__init__(name, default)

    def parse(self, given: object) -> bool:
        """The truth value, or InvalidInputError."""
        return truth(self.name, given)

    def _value_of(self, text: str) -> bool:
        return _SWITCHED.get(text, self.default)

    def text_of(self, value: bool) -> str:
        """See Setting."""
        return "true" if value else "false"


__all__ = ["RESERVED", "ModeSetting", "NumberSetting", "Setting", "SwitchSetting"]
