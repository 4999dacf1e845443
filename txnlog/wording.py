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
    """A call of the namespace's handle, with its arguments as code. On the command line a command."""

    def __init__(self, name: str, *arguments: str | Argument) -> None:
        self.name = name
        self.arguments = arguments

    def __str__(self) -> str:
        return f"ns.{self.name}({', '.join(map(str, self.arguments))})"


class Words(str):
    """A text that remembers the arguments and calls in it. As a text it speaks Python."""

    __slots__ = ("parts",)
    parts: tuple[str | Argument | Call, ...]

    def __new__(cls, *parts: str | Argument | Call) -> Words:
        """Words of some parts, in their order; other Words bring their own parts."""
        flat = [item for part in parts for item in (part.parts if isinstance(part, Words) else (part,))]
        words = super().__new__(cls, "".join(map(str, flat)))
        words.parts = tuple(flat)
        return words

    def rendered(self, argument: Callable[[Argument], str], call: Callable[[Call], str]) -> str:
        """The text in the words of another interface."""
        kinds = (argument(p) if isinstance(p, Argument) else call(p) if isinstance(p, Call) else p for p in self.parts)
        return "".join(kinds)


__all__ = ["Argument", "Call", "Words"]
