"""The text that names a writer: 32 digits, behind which its blocks of numbers may say which client it is (P-253).

Only the digits distinguish writers. What stands behind them is for people, and anybody may have written it.
"""

from __future__ import annotations

import re
from typing import Final

from txnlog.common.format_limits import MAX_WRITER_CHARACTERS

_NAMED: Final = re.compile(r"([0-9a-f]{32}) ([^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+)", re.ASCII)

MAX_CLIENT_CHARACTERS: Final = MAX_WRITER_CHARACTERS - 33


def writer_text(writer: str, client: str) -> str:
    """The id of a writer and, if there is something to say, its client."""
    return f"{writer} {client}"[:MAX_WRITER_CHARACTERS] if client else writer


def writer_of(text: str) -> str:
    """The id in such a text: its digits, or all of a text that is not of this form."""
    return text[:32] if text[32:33] == " " and _NAMED.fullmatch(text) else text


def client_of(text: str) -> str | None:
    """The client in such a text; None where it says none, or something that no writer may say."""
    match = _NAMED.fullmatch(text) if len(text) <= MAX_WRITER_CHARACTERS else None
    return None if match is None else match[2]


__all__ = ["MAX_CLIENT_CHARACTERS", "client_of", "writer_of", "writer_text"]
