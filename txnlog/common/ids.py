"""The 128-bit TxnID: 16 bits of coordinator, 112 bits of number (Pulsar's shape of the idea; never reused).

A log numbers its transactions; which coordinator id goes before a number says :class:`Coordinators`, and nothing else.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from txnlog.common.format_limits import MAX_COORDINATORS, MAX_NUMBER
from txnlog.errors import InvalidInputError
from txnlog.sentences import Call, Words

NUMBER_BITS: Final = 112
_SHOWN: Final = Words("pass the 32 hexadecimal digits of its id, as ", Call("transactions"), " shows them")
_TEXT: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class TxnId:
    """Identity of a transaction, of a plain produce and of a plain acknowledge alike.

    Text form: 32 lower-case hexadecimal digits, coordinator first. Byte form: the same 16 bytes, big-endian, as in the
    metadata column ``_txn_id``.

    Attributes:
        coordinator: the high 16 bits, which belong to one namespace of its root.
        number: the low 112 bits; a namespace gives each once.
    """

    coordinator: int
    number: int

    def __post_init__(self) -> None:
        if not 0 <= self.coordinator < MAX_COORDINATORS or not 0 <= self.number <= MAX_NUMBER:
            raise InvalidInputError(f"no TxnID: coordinator {self.coordinator}, number {self.number}")

    @classmethod
    def parse(cls, text: TxnId | str) -> TxnId:
        """The TxnID of its text form; a TxnId is passed through."""
        if isinstance(text, TxnId):
            return text
        if not isinstance(text, str) or not _TEXT.fullmatch(text):
            raise InvalidInputError("not a TxnID", advice=_SHOWN)
        try:
            return cls.from_bytes(bytes.fromhex(text))
        except InvalidInputError:
            raise InvalidInputError(
                f"no namespace ever gave the TxnID {text}",
                advice=_SHOWN,
            ) from None

    @classmethod
    def from_bytes(cls, data: bytes) -> TxnId:
        """The TxnID of its 16 bytes."""
        if len(data) != 16:
            raise InvalidInputError(f"a TxnID has 16 bytes, not {len(data)}")
        value = int.from_bytes(data, "big")
        return cls(value >> NUMBER_BITS, value & ((1 << NUMBER_BITS) - 1))

    def to_bytes(self) -> bytes:
        """The 16 bytes, big-endian."""
        return (self.coordinator << NUMBER_BITS | self.number).to_bytes(16, "big")

    def __str__(self) -> str:
        return self.to_bytes().hex()

    def __repr__(self) -> str:
        return f"TxnId({self})"


@dataclass(frozen=True, slots=True)
class Coordinators:
    """The coordinator ids of a log: from which number on each of them stands in its TxnIDs.

    A log has one, and one more from each adoption on: numbers from before keep theirs.

    Attributes:
        spans: pairs of the first number and the coordinator id, ascending; the first number of the first pair is 0.
    """

    spans: tuple[tuple[int, int], ...]

    @classmethod
    def one(cls, coordinator: int) -> Coordinators:
        """The coordinator ids of a log that was never adopted: this one alone."""
        return cls(((0, coordinator),))

    @property
    def first(self) -> int:
        """The coordinator id that the log began with: it names the log's Delta tables, also after an adoption."""
        return self.spans[0][1]

    @property
    def newest(self) -> int:
        """The coordinator id of the numbers to come, which the root lists."""
        return self.spans[-1][1]

    def __contains__(self, coordinator: object) -> bool:
        return any(coordinator == known for _, known in self.spans)

    def of(self, number: int) -> int:
        """The coordinator id of a number."""
        if len(self.spans) == 1:
            return self.spans[0][1]
        return self.spans[bisect_right(self.spans, number, key=lambda span: span[0]) - 1][1]

    def txn_id(self, number: int) -> TxnId:
        """The TxnID of a number of the log."""
        return TxnId(self.of(number), number)


__all__ = ["NUMBER_BITS", "Coordinators", "TxnId"]
