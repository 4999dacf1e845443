"""Parsing the stamp of a stored Delta commit, and comparing commits by their content. Pure.

The bytes come from the store and are never trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from catalog.delta_log.commit import DOMAIN, Identity
from txnlog.common.format_limits import MAX_NUMBER

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class DamagedCommitError(ValueError):
    """The bytes are not a commit, or a commit of txnlog with something missing."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The stamp of a commit. ``fields`` is None where txnlog did not write the commit."""

    fields: Mapping[str, Any] | None
    timestamp_ms: int = 0

    @property
    def before(self) -> int:
        """The version of the namespace that the preceding Delta version shows."""
        return _number(self.fields, "before")

    @property
    def version(self) -> int:
        """The version of the namespace that the commit shows."""
        return _number(self.fields, "version")

    @property
    def ended(self) -> bool:
        """Whether no version follows: the topic was dropped."""
        return bool(self.fields and self.fields.get("ended"))

    def is_of(self, identity: Identity) -> bool:
        """Whether the commit belongs to this table."""
        return self.fields is not None and all(
            self.fields.get(name) == item for name, item in identity.as_json().items()
        )


def _number(found: Mapping[str, Any] | None, name: str) -> int:
    value = None if found is None else found.get(name)
    if type(value) is not int or not -1 <= value <= MAX_NUMBER:
        raise DamagedCommitError(f"it does not say its {name}")
    return value


def _objects(data: bytes) -> list[dict[str, Any]]:
    try:
        lines = [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedCommitError(ascii(str(error))[1:-1][:200]) from None
    if not lines or not all(isinstance(line, dict) for line in lines):
        raise DamagedCommitError("it holds something else than JSON objects")
    return lines


def stamp_of(data: bytes) -> Stamp:
    """The stamp of a stored commit. Raises DamagedCommitError."""
    lines = _objects(data)
    infos = [line["commitInfo"] for line in lines if isinstance(line.get("commitInfo"), dict)]
    info: dict[str, Any] = infos[0] if infos else {}
    domains = [line["domainMetadata"] for line in lines if isinstance(line.get("domainMetadata"), dict)]
    domain = next((item for item in domains if item.get("domain") == DOMAIN), None)
    own = info.get("txnlog")
    if not isinstance(own, dict) and domain is None:
        return Stamp(None)
    try:
        lasting = msgspec.json.decode((domain or {}).get("configuration") or "null")
    except (msgspec.DecodeError, TypeError, RecursionError):
        lasting = None
    if not isinstance(own, dict) or not isinstance(lasting, dict):
        raise DamagedCommitError("it lacks a part of what it should say")
    timestamp_ms = lasting.pop("timestamp", None)
    if lasting != own or timestamp_ms != info.get("inCommitTimestamp") or type(timestamp_ms) is not int:
        raise DamagedCommitError("it contradicts itself")
    return Stamp(own, timestamp_ms)


def claimed_version(data: bytes) -> int | None:
    """The version that a damaged commit claims in its first line, None if there is none. The caller checks it."""
    try:
        version = msgspec.json.decode(data.split(b"\n", 1)[0])["commitInfo"]["txnlog"]["version"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, IndexError):
        return None
    return version if type(version) is int else None


def same_content(one: bytes, two: bytes, *, bounds: bool = True) -> bool:
    """Whether two commits make the same table: other versions of txnlog may word them otherwise.

    Args:
        one: a commit.
        two: another one.
        bounds: whether all statistics of files are compared. Otherwise only their numbers of rows, which are the same
            to every version of txnlog: one may state bounds that another leaves out.
    """
    try:
        return one == two or _content_of(one, bounds=bounds) == _content_of(two, bounds=bounds)
    except (DamagedCommitError, KeyError, TypeError, ValueError, RecursionError):
        return False


def _content_of(data: bytes, *, bounds: bool) -> bytes:
    """All that readers depend on, as text: in Python 1, 1.0 and true are equal, but a reader may refuse one of them."""
    return _encode([_content(line, bounds=bounds) for line in _objects(data)])


def _content(line: dict[str, Any], *, bounds: bool) -> object:
    ((kind, body),) = line.items()
    match kind:
        case "add":
            every = msgspec.json.decode(body["stats"])
            stats = every if bounds else every["numRecords"]
            numbers = body["size"], body["modificationTime"]
            return kind, body["path"], body["partitionValues"], *numbers, body["dataChange"], stats, _hidden(body)
        case "remove":
            return kind, body["path"], body["dataChange"], _hidden(body)
        case "metaData":
            schema = msgspec.json.decode(body["schemaString"])
            return kind, body["id"], schema, body["partitionColumns"], body["format"], body["configuration"]
        case "commitInfo":
            return kind, body["inCommitTimestamp"], body["txnlog"]
        case "domainMetadata":
            return kind, body["domain"], msgspec.json.decode(body["configuration"]), body["removed"]
    return kind, body


def _hidden(body: dict[str, Any]) -> object:
    """The deletion vector, which txnlog never writes: with one, readers see another file, also where it is removed."""
    return body.get("deletionVector")


__all__ = ["DamagedCommitError", "Stamp", "claimed_version", "same_content", "stamp_of"]
