"""Sentences of errors that name an argument or a call. Pure.

As a text they speak Python; the command line renders them in its own words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call; without a value its name alone, with ``...`` for any. On the command line an option."""

    name: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={'...' if self.value is ... else repr(self.value)}"


class Call:
    """A call with its arguments as code, of the namespace's handle or ``of`` another. On the command line a command."""

    def __init__(self, name: str, *arguments: str | Argument, of: str = "ns") -> None:
        self.name = name
        self.arguments = arguments
        self.of = of

    def __str__(self) -> str:
        return f"{self.of}.{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Either:
    """Words for who programs, and others for who types commands, where the two do not do the same."""

    python: str
    command_line: str

    def __str__(self) -> str:
        return self.python


Part = str | Argument | Call | Either
"""A part of a sentence."""


class Words(str):
    """A text that remembers the arguments and calls in it. As a text it speaks Python."""

    __slots__ = ("parts",)
    parts: tuple[Part, ...]

    def __new__(cls, *parts: Part) -> Words:
        """Words of some parts, in their order; other Words bring their own parts."""
        flat = [item for part in parts for item in (part.parts if isinstance(part, Words) else (part,))]
        words = super().__new__(cls, "".join(map(str, flat)))
        words.parts = tuple(flat)
        return words

    def rendered(self, argument: Callable[[Argument], str], call: Callable[[Call], str]) -> str:
        """The text in the words of the command line."""

        def shown(part: Part) -> str:
            match part:
                case Argument():
                    return argument(part)
                case Call():
                    return call(part)
                case Either():
                    return part.command_line
            return part

        return "".join(map(shown, self.parts))


def up_to_last(text: str, separator: str) -> Words:
    """What stands before the last separator of a text, and that; nothing where there is none. Calls stay calls."""
    parts = list(Words(text).parts)
    while parts:
        last = parts.pop()
        if isinstance(last, str) and separator in last:
            return Words(*parts, "".join(last.rpartition(separator)[:2]))
    return Words()


__all__ = ["Argument", "Call", "Either", "Words", "up_to_last"]
