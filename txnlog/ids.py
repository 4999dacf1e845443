"""The 128-bit TxnID: 16 bits of coordinator, 112 bits of number (Pulsar's shape of the idea; never reused)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from txnlog.errors import InvalidInputError
from txnlog.limits import MAX_COORDINATORS, MAX_NUMBER
from txnlog.wording import Call, Words

NUMBER_BITS: Final = 112
_SHOWN: Final = Words("pass the 32 hexadecimal digits of its id, as ", Call("transactions"), " shows them")
_TEXT: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class TxnId:
    """Identity of a transaction, of a plain produce and of a plain acknowledge alike.

    Text form: 32 lower-case hexadecimal digits, coordinator first. Byte form: the same 16 bytes, big-endian, as in the
    metadata column ``_txn_id``.
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


__all__ = ["NUMBER_BITS", "TxnId"]
