"""Positions in a topic as one types them: a word, a time, or offsets by partition."""

from __future__ import annotations

from typing import Final

from txnlog.client.positions import Position
from txnlog.common.validation import shown
from txnlog.errors import InvalidInputError

TIME: Final = 'a time with a zone ("2026-11-21T12:00:00Z")'
OFFSETS: Final = "PARTITION=OFFSET (any number of them)"
POSITION: Final = f"earliest, latest, {TIME}, or {OFFSETS}"


def position_of(texts: tuple[str, ...]) -> Position:
    """A position by name or time, or offsets by partition. Raises InvalidInputError for a mixture of both.

    A colon does as well as the equals sign: times have some too, but no time begins with a number and a colon.
    """
    if len(texts) == 1 and not _names_partition(texts[0]):
        return texts[0]
    found: dict[int, int] = {}
    for text in texts:
        partition, _, offset = text.partition(_separator(text))
        if not (_is_number(partition) and _is_number(offset)):
            raise InvalidInputError(
                f"{shown(text)} is not of the form PARTITION=OFFSET",
                advice="put the partition, '=', the offset; earliest, latest and a time stand alone",
            )
        if int(partition) in found:
            raise InvalidInputError(f"partition {int(partition)} has two offsets", advice="give each partition one")
        found[int(partition)] = int(offset)
    return found


def _names_partition(text: str) -> bool:
    head, found, _ = text.partition(_separator(text))
    return found == "=" or (found == ":" and _is_number(head))


def _separator(text: str) -> str:
    return "=" if "=" in text else ":"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


__all__ = ["OFFSETS", "POSITION", "TIME", "position_of"]
