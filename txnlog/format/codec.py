"""Bytes of an entry and back, strictly.

An entry is newline-delimited JSON: the header line, then one action a line. Its id is its digest; each header carries
the digest of the entry before it, so that a log is one hash chain.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from txnlog.common.format_limits import MAX_ENTRY_ACTIONS, MAX_ENTRY_BYTES
from txnlog.errors import CorruptionError, InvalidInputError, LimitExceeded, UnsupportedFeature
from txnlog.format import keys
from txnlog.format.actions import KNOWN_ACTIONS, Action, AlterTopic, AnyAction, Header, Topic

_encoder = msgspec.json.Encoder()
_header_decoder = msgspec.json.Decoder(Header)
_action_decoder: msgspec.json.Decoder[AnyAction] = msgspec.json.Decoder(AnyAction)


class _Tag(msgspec.Struct):
    action: str = ""


class _Kind(msgspec.Struct):
    type: str


class _Schema(msgspec.Struct):
    schema: _Kind | None = None


_tag_decoder = msgspec.json.Decoder(_Tag)
_schema_decoder = msgspec.json.Decoder(_Schema)
"""msgspec asks for a tag only where several types are possible; a header and a schema must bear theirs as well."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One decoded entry: header, actions, its digest (32 hexadecimal digits) and its size on the store."""

    header: Header
    actions: tuple[AnyAction, ...]
    digest: str
    size_bytes: int


def digest_of(data: bytes) -> str:
    """Digest of stored bytes: SHA-256, its first 128 bits as 32 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:32]


def encode_action(action: AnyAction) -> bytes:
    """One action as its JSON line, without the line end.

    Raises InvalidInputError for values that no reader would take (a number beyond 63 bits, text that is no Unicode): an
    entry that cannot be read back would end its log for everybody.
    """
    return _encoded(action, _action_decoder)


def _encoded(item: Action, decoder: msgspec.json.Decoder[Any]) -> bytes:
    try:
        line = _encoder.encode(item)
        decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInputError(f"the log cannot hold this {type(item).__name__}: {_reason(error)}") from None
    return line


def encode_entry(header: Header, lines: list[bytes]) -> bytes:
    """The bytes of an entry from its header and already encoded actions. Raises LimitExceeded.

    Raises InvalidInputError for a header that no reader would take, as ``encode_action`` does for an action.
    """
    if len(lines) > MAX_ENTRY_ACTIONS:
        raise LimitExceeded(f"an entry of {len(lines):,} actions", advice=f"at most {MAX_ENTRY_ACTIONS:,} fit in one")
    data = b"\n".join([_encoded(header, _header_decoder), *lines, b""])
    if len(data) > MAX_ENTRY_BYTES:
        raise LimitExceeded(
            f"an entry of {len(data):,} bytes",
            advice=f"at most {MAX_ENTRY_BYTES:,} fit in one: do less in a transaction",
        )
    return data


def damaged_entry(version: int, what: str) -> CorruptionError:
    """The error for an entry that is not what PROTOCOL.md describes; ``what`` goes on behind its number."""
    return CorruptionError(
        f"entry {version}{what}",
        advice=f"restore {keys.entry_key(version)} of this log from a copy, for example by the command repair with "
        "--source; no damaged data was returned",
    )


def decode_entry(data: bytes, version: int) -> Entry:
    """The entry in the slot of ``version``.

    Raises CorruptionError naming entry and line for anything but exactly what PROTOCOL.md describes, UnsupportedFeature
    for an action that a later format version may have added.
    """
    if len(data) > MAX_ENTRY_BYTES:
        raise damaged_entry(version, f" has {len(data):,} bytes; at most {MAX_ENTRY_BYTES:,} are allowed")
    if not data.endswith(b"\n"):
        raise damaged_entry(version, " is truncated: its last line has no end")
    lines = data[:-1].split(b"\n")
    if len(lines) - 1 > MAX_ENTRY_ACTIONS:
        raise damaged_entry(version, f" has {len(lines) - 1:,} actions; at most {MAX_ENTRY_ACTIONS:,} are allowed")
    try:
        header = _header_decoder.decode(lines[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged_entry(version, f" has no valid header: {_reason(error)}") from None
    if _tag_of(lines[0]) != "header":
        raise damaged_entry(version, " has no valid header: its action is missing")
    if header.version != version:
        raise damaged_entry(version, f" says that it is entry {header.version}")
    return Entry(header, _decode_actions(lines, version), digest_of(data), len(data))


def _decode_actions(lines: list[bytes], version: int) -> tuple[AnyAction, ...]:
    decode = _action_decoder.decode
    actions: list[AnyAction] = []
    for line in lines[1:]:
        try:
            action = decode(line)
            if isinstance(action, Topic | AlterTopic):
                _schema_decoder.decode(line)
            actions.append(action)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            where = f", line {len(actions) + 2}"
            tag = _tag_of(line)
            if tag and tag not in KNOWN_ACTIONS:
                raise UnsupportedFeature(
                    f"entry {version}{where}: the action {tag[:40]!a} is unknown to this version of txnlog",
                    advice="use a newer txnlog; if no newer one ever wrote to this log, the entry is damaged: "
                    "restore it from a copy; no entry may be skipped",
                ) from None
            raise damaged_entry(version, f"{where}: {_reason(error)}") from None
    return tuple(actions)


def _tag_of(line: bytes) -> str:
    try:
        return _tag_decoder.decode(line).action
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _reason(error: Exception) -> str:
    # Stored bytes may be hostile: an error shows where and what kind, never more than a line of them.
    return ascii(str(error))[1:-1][:200]


__all__ = ["Entry", "damaged_entry", "decode_entry", "digest_of", "encode_action", "encode_entry"]
