"""Every option of the ``txnlog`` format: one table, from which typed options are read.

Spark hands option names over in lower case, so they are looked up without case. Nothing is silently ignored: a name
that is not in the table is an error with the nearest one, a known name in the wrong place is an error that says where
it belongs, and what a later version will bring is an error that says so.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from spark_ext.paths import check_absolute
from txnlog.arguments import epoch_ms
from txnlog.errors import InvalidInputError, UnsupportedFeature
from txnlog.names import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Use = Literal["read", "readStream", "write", "writeStream"]
Position = str | Mapping[str, Mapping[int, int]]
"""``earliest``, ``latest``, or Kafka's JSON: by topic and partition an offset, -2 for earliest and -1 for latest."""

STORAGE_CONF: Final = "spark.txnlog.storage."
"""Session settings under this prefix are storage options, where a session can be asked (see ``session_storage``)."""

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name as it is documented, and in the typed options; where it may stand, how its text is read."""

    name: str
    field: str
    uses: frozenset[Use]
    parse: Callable[[str], Any]
    later: bool = False
    secret: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading, batch and stream. What was not given is None, or the default that stands here."""

    path: str
    subscribe: tuple[str, ...] | None = None
    starting_offsets: Position | None = None
    ending_offsets: Position | None = None
    version_as_of: int | None = None
    timestamp_as_of: str | int | None = None
    isolation_level: str = "read_committed"
    include_metadata: bool = False
    columns: tuple[str, ...] | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    subscription: str | None = None
    txn_app_id: str | None = None
    max_offsets_per_trigger: int | None = None
    split_transactions: bool = False
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of writing, batch and stream. What was not given is None."""

    path: str
    topic: str | None = None
    transactional_id: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    acknowledge: str | None = None
    checkpoint_location: str | None = None
    query_name: str | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


# --- how texts are read -----------------------------------------------------------------------------------------------


class _BadValueError(ValueError):
    """What the text of an option should have been."""


def _text(value: str) -> str:
    if not value.strip():
        raise _BadValueError("is some text")
    return value


def _names(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise _BadValueError("is a list of names, separated by commas")
    if len(set(names)) != len(names):
        raise _BadValueError("names each thing once")
    return names


def _flag(value: str) -> bool:
    known = {"true": True, "false": False}.get(value.strip().lower())
    if known is None:
        raise _BadValueError("is true or false")
    return known


def _whole(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        text = value.strip()
        if not (text.isascii() and text.isdecimal()) or len(text) > 19 or int(text) < least:
            raise _BadValueError(f"is a whole number from {least} on")
        return int(text)

    return parse


def _isolation_level(value: str) -> str:
    level = value.strip().lower()
    if level not in {"read_committed", "read_uncommitted"}:
        raise _BadValueError("is read_committed or read_uncommitted")
    return level


def _time(value: str) -> int:
    """Epoch milliseconds: all digits, or an ISO time with its zone."""
    text = value.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        return int(text)
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise _BadValueError("is a time: epoch milliseconds, or like 2026-11-21T08:00:00+00:00") from None
    if time.tzinfo is None:
        raise _BadValueError("is a time with its zone, like 2026-11-21T08:00:00+00:00")
    return epoch_ms(time)


def _time_as_given(value: str) -> str | int:
    """The same, but text stays text: an error quotes what was given."""
    milliseconds, text = _time(value), value.strip()
    return milliseconds if text.isdecimal() else text


def _position(value: str) -> Position:
    text = value.strip()
    if text.lower() in {"earliest", "latest"}:
        return text.lower()
    wrong = _BadValueError('is earliest, latest or JSON like {"orders": {"0": 23, "1": -2}}')
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(parsed, dict):
        raise wrong
    result: dict[str, dict[int, int]] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise wrong
        found: dict[int, int] = {}
        for partition, offset in partitions.items():
            plain = isinstance(offset, int) and not isinstance(offset, bool) and offset >= EARLIEST_OFFSET
            if not plain or not (partition.isascii() and partition.isdecimal()):
                raise wrong
            found[int(partition)] = offset
        result[topic] = found
    return result


def _storage(value: str) -> Mapping[str, Any]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise _BadValueError('is a JSON object like {"key": "...", "secret": "..."}')
    return parsed


_READ: Final[frozenset[Use]] = frozenset({"read"})
_STREAM: Final[frozenset[Use]] = frozenset({"readStream"})
_READS: Final[frozenset[Use]] = _READ | _STREAM
_SINK: Final[frozenset[Use]] = frozenset({"writeStream"})
_WRITES: Final[frozenset[Use]] = frozenset({"write", "writeStream"})
_ALL: Final[frozenset[Use]] = _READS | _WRITES

OPTIONS: Final = (
    Option("path", "path", _ALL, _text),
    Option("storageOptions", "storage_options", _ALL, _storage, secret=True),
    Option("subscribe", "subscribe", _READS, _names),
    Option("subscribePattern", "subscribe_pattern", _READS, _text, later=True),
    Option("startingOffsets", "starting_offsets", _READS, _position),
    Option("endingOffsets", "ending_offsets", _READ, _position),
    Option("startingTimestamp", "starting_timestamp", _READS, _time, later=True),
    Option("endingTimestamp", "ending_timestamp", _READ, _time, later=True),
    Option("startingVersion", "starting_version", _READS, _whole(0), later=True),
    Option("versionAsOf", "version_as_of", _READ, _whole(0)),
    Option("timestampAsOf", "timestamp_as_of", _READ, _time_as_given),
    Option("isolationLevel", "isolation_level", _READ, _isolation_level),
    Option("includeMetadata", "include_metadata", _READS, _flag),
    Option("columns", "columns", _READS, _names),
    Option("minPartitions", "min_partitions", _READS, _whole(1)),
    Option("failOnDataLoss", "fail_on_data_loss", _READS, _flag),
    Option("subscription", "subscription", _STREAM, _text),
    Option("maxOffsetsPerTrigger", "max_offsets_per_trigger", _STREAM, _whole(1)),
    Option("splitTransactions", "split_transactions", _STREAM, _flag),
    Option("topic", "topic", _WRITES, _text),
    Option("transactionalId", "transactional_id", _WRITES, _text),
    Option("txnAppId", "txn_app_id", _WRITES | _STREAM, _text),
    Option("txnVersion", "txn_version", frozenset({"write"}), _whole(0)),
    Option("acknowledge", "acknowledge", _SINK, _text),
    Option("checkpointLocation", "checkpoint_location", _SINK, _text),
    Option("queryName", "query_name", _SINK, _text),
)
"""What the format knows. ``queryName`` and ``checkpointLocation`` are Spark's own, and reach a streaming sink."""

_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}
_TABLE_KEYS: Final = frozenset({"provider", "owner", "external", "location", "is_managed_location"})
"""What Spark adds at CREATE TABLE, where no reader and no writer will ever see the path."""

_PLACES: Final[Mapping[Use, str]] = {
    "read": "spark.read",
    "readStream": "spark.readStream",
    "write": "df.write",
    "writeStream": "df.writeStream",
}


def _parsed(given: Mapping[str, str], uses: Iterable[Use]) -> dict[str, Any]:
    wanted = frozenset(uses)
    names = {str(name).lower(): str(name) for name in given}
    if _TABLE_KEYS & names.keys():
        raise InvalidInputError(
            "a table of the format txnlog cannot be created: Spark would not hand its path to us",
            advice="use CREATE TEMPORARY VIEW name USING txnlog OPTIONS (path '...')",
        )
    if "paths" in names:
        raise InvalidInputError("load takes one path", advice="use ROOT/NAMESPACE and the option subscribe='a,b'")
    result: dict[str, Any] = {}
    for lowered, name in names.items():
        option = _BY_NAME.get(lowered)
        if option is None:
            raise InvalidInputError(
                f"unknown option {ascii(name)[:80]}",
                advice=nearest(name, (item.name for item in OPTIONS if item.uses & wanted)),
            )
        if not option.uses & wanted:
            places = " and ".join(_PLACES[use] for use in _PLACES if use in option.uses)
            raise InvalidInputError(
                f"the option {option.name!r} belongs to {places}", advice="leave it out here, it would have no effect"
            )
        if option.later:
            raise UnsupportedFeature(
                f"the option {option.name!r} is not implemented in this version of txnlog", advice="leave it out"
            )
        try:
            result[option.name] = option.parse(str(given[name]))
        except _BadValueError as error:
            shown = "" if option.secret else f", not {ascii(str(given[name]))[:80]}"
            raise InvalidInputError(f"the option {option.name!r} {error}{shown}") from None
    if "path" not in result:
        raise InvalidInputError(
            "the path is missing",
            advice="give ROOT/NAMESPACE/TOPIC to load, save or start; in SQL use CREATE TEMPORARY VIEW name USING "
            "txnlog OPTIONS (path '...'), since a table's path does not reach the format",
        )
    check_absolute(result["path"])
    return result


def _exclusive(found: Mapping[str, Any], *names: str) -> None:
    both = [name for name in names if name in found]
    if len(both) > 1:
        raise InvalidInputError(f"the options {' and '.join(map(repr, both))} exclude each other")


def read_options(given: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """The options of a read; ``streaming`` is None where Spark does not tell (it asks for the schema of both alike).

    Raises:
        InvalidInputError: an unknown or misplaced option, a bad value, no path.
        UnsupportedFeature: an option that is not implemented yet.
    """
    uses = _READS if streaming is None else _STREAM if streaming else _READ
    found = _parsed(given, uses)
    _exclusive(found, "versionAsOf", "timestampAsOf")
    if found.get("splitTransactions") and "maxOffsetsPerTrigger" not in found:
        raise InvalidInputError(
            "the option 'splitTransactions' needs 'maxOffsetsPerTrigger': only what is larger than that is split",
            advice="give both, or neither",
        )
    if "txnAppId" in found and "subscription" not in found:
        raise InvalidInputError(
            "the option 'txnAppId' of a stream that is read needs 'subscription': it names the query there",
            advice="give both, or neither",
        )
    if found.get("isolationLevel") == "read_uncommitted":
        for name in ("startingOffsets", "endingOffsets"):
            if name in found:
                raise InvalidInputError(
                    f"the option {name!r} needs read_committed: what is not committed has no offsets"
                )
    return ReadOptions(**_fields(found))


def write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options of a write.

    Raises:
        InvalidInputError: an unknown or misplaced option, a bad value, no path, half of txnAppId and txnVersion.
        UnsupportedFeature: an option that is not implemented yet.
    """
    found = _parsed(given, ("writeStream",) if streaming else ("write",))
    if not streaming and ("txnAppId" in found) != ("txnVersion" in found):
        raise InvalidInputError("the options 'txnAppId' and 'txnVersion' go together")
    return WriteOptions(**_fields(found))


def _fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, by the names of the typed options; storage options come from the session where there are none."""
    fields = {_BY_NAME[name.lower()].field: value for name, value in found.items()}
    if "storage_options" not in fields:
        fields["storage_options"] = session_storage()
    return fields


def session_storage(spark: SparkSession | None = None) -> dict[str, Any]:
    """Storage options from the settings ``spark.txnlog.storage.<name>`` of a session; empty where there is none.

    Spark gives the processes that plan a Python data source no session and no settings of it: there the option
    ``storageOptions``, or the environment (``AWS_*``, a role of the machine), is the only way.
    A value that is a JSON object or array is taken as one, so that nested options can be given.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - options can be read without Spark's client

    session = SparkSession.getActiveSession() if spark is None else spark
    if session is None:
        return {}
    result: dict[str, Any] = {}
    for name, value in session.conf.getAll.items():
        if name.startswith(STORAGE_CONF):
            result[name[len(STORAGE_CONF) :]] = _conf_value(name, value)
    return result


def _conf_value(name: str, value: str) -> Any:
    if not value.lstrip().startswith(("{", "[")):
        return {"true": True, "false": False}.get(value, value)
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise InvalidInputError(f"the setting {name!r} begins like JSON but is none") from None


__all__ = [
    "EARLIEST_OFFSET",
    "LATEST_OFFSET",
    "OPTIONS",
    "STORAGE_CONF",
    "Option",
    "Position",
    "ReadOptions",
    "Use",
    "WriteOptions",
    "read_options",
    "session_storage",
    "write_options",
]
