"""What a streaming query's checkpoint says: its identity, and which source offsets a batch ends at.

Spark writes ``<checkpoint>/metadata`` before anything else and ``<checkpoint>/offsets/<batch>`` before a batch runs,
and never changes either. Formats of Spark 4.2: ``v1`` holds a line of metadata and one line per source, in order;
``v2`` names the source in each line, before a colon. A source without an offset has ``-``. Other formats are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_ext.support.paths import normal, of_checkpoint
from txnlog.errors import InvalidInputError
from txnlog.store.base import ObjectNotFound
from txnlog.store.open import open_store

_NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """The end of a batch in every source: by the source's name (its number in ``v1``) the offset's JSON, as written.

    ``planned`` is Spark's other metadata of the batch, among it the time when it was planned.
    """

    batch: int
    sources: Mapping[str, str | None]
    planned: str = ""

    def digest(self) -> str:
        """Equal for equal offsets of all sources."""
        lines = sorted(f"{name}:{_NO_OFFSET if text is None else text}" for name, text in self.sources.items())
        if any(_counts_batches(text) for text in self.sources.values()):
            lines.append(self.planned)  # what a number means may be another thing in a copy of the checkpoint
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class Checkpoint:
    """A query's checkpoint, read-only.

    Args:
        location: as given to Spark: a path or URL.
        root: the root that the query writes to; storage options are passed on if it is on the same kind of store.
        storage_options: the root's.

    Raises:
        InvalidInputError: no store of ours can read the location.
    """

    def __init__(self, location: str, root: str = "", storage_options: Mapping[str, Any] | None = None) -> None:
        self.location = of_checkpoint(location)
        same = "://" in self.location and self.location.partition("://")[0] == normal(root or "/").partition("://")[0]
        self._store = open_store(self.location, storage_options if same else None)

    def query_id(self) -> str | None:
        """The query's id, None where there is no checkpoint yet. Raises InvalidInputError for something else."""
        try:
            data = self._store.get("metadata")
        except ObjectNotFound:
            return None
        try:
            found = json.loads(data)["id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
        if not isinstance(found, str) or not found:
            raise InvalidInputError(
                f"{self.location}/metadata holds no query id",
                advice="checkpointLocation is a query's checkpoint folder",
            )
        return found

    def has_state(self) -> bool:
        """Whether the query keeps state between batches: an aggregate, a join of streams, a search for duplicates."""
        return next(iter(self._store.list("state/")), None) is not None

    def offsets(self, batch: int) -> BatchOffsets | None:
        """Where a batch ends; None where the log does not hold it (not yet, or not any more)."""
        try:
            data = self._store.get(f"offsets/{batch}")
        except ObjectNotFound:
            return None
        return parse_offsets(batch, data)


def parse_offsets(batch: int, data: bytes) -> BatchOffsets:
    """One file of the offset log. Raises InvalidInputError for a format that is not known here."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        lines = [""]
    version, offsets = lines[0], lines[2:]
    if version == "v1":
        sources = {str(number): _offset(text) for number, text in enumerate(offsets)}
    elif version == "v2":
        sources = {}
        for line in offsets:
            name, colon, text = line.partition(":")
            if not colon or name in sources:
                raise _unknown(batch, "a line that names no source, or one twice")
            sources[name] = _offset(text)
    else:
        raise _unknown(batch, f"the format {version[:20]!a}")
    if not sources:
        raise _unknown(batch, "no source")
    return BatchOffsets(batch, sources, lines[1])


def _counts_batches(text: str | None) -> bool:
    """Whether an offset is one of Spark's source of files: the number of a list that the checkpoint holds."""
    try:
        value = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.keys() == {"logOffset"}


def _offset(text: str) -> str | None:
    return None if text == _NO_OFFSET else text


def _unknown(batch: int, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"the checkpoint's offset log has {what} in batch {batch}; this version of txnlog knows the formats v1 and v2",
        advice="use a txnlog made for this version of Spark, or a new checkpointLocation",
    )


__all__ = ["BatchOffsets", "Checkpoint", "parse_offsets"]
