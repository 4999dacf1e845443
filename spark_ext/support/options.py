"""Every option of the ``txnlog`` format: one table, from which typed options are read.

Spark passes option names in lower case, so they are looked up without case. Nothing is silently ignored: a name that is
not in the table is an error with the nearest one, and a known name in the wrong place is an error that says where it
belongs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from spark_ext.support import option_parsing as values
from spark_ext.support.option_parsing import Position
from spark_ext.support.paths import check_absolute
from spark_ext.support.spark_versions import check_session, has_jvm
from txnlog.common.names import nearest
from txnlog.common.validation import mapping
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Use = Literal["read", "readStream", "write", "writeStream"]
STORAGE_CONF: Final = "spark.txnlog.storage."
"""Session settings under this prefix are storage options of calls, not of the format (see ``session_storage``)."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name as it is documented, and in the typed options; where it may stand, how its text is read.

    Without a ``field`` it is known, and nothing here asks for it.
    """

    name: str
    field: str | None
    uses: frozenset[Use]
    parse: Callable[[str], Any]
    secret: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading, batch and stream. What was not given is None, or the default that stands here."""

    path: str
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    starting_offsets: Position | None = None
    ending_offsets: Position | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    starting_version: int | None = None
    version_as_of: int | None = None
    timestamp_as_of: str | int | None = None
    isolation_level: str = "read_committed"
    include_metadata: bool = False
    columns: tuple[str, ...] | None = None
    filters: tuple[tuple[Any, ...], ...] = ()
    exclude_segments: frozenset[int] = frozenset()
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    subscription: str | None = None
    txn_app_id: str | None = None
    max_offsets_per_trigger: int | None = None
    split_transactions: bool = False
    metadata: str | None = None
    limit: int | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def several(self) -> bool:
        """Whether an option names the topics, so that the path is a namespace and rows say which topic they are of."""
        return self.subscribe is not None or self.subscribe_pattern is not None

    @property
    def everything(self) -> bool:
        """Whether no option bounds the messages that are read: neither where they begin nor where they end."""
        bounds = (self.starting_offsets, self.starting_timestamp, self.starting_version)
        return all(bound is None for bound in (*bounds, self.ending_offsets, self.ending_timestamp))


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
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


_READ: Final[frozenset[Use]] = frozenset({"read"})
_STREAM: Final[frozenset[Use]] = frozenset({"readStream"})
_READS: Final[frozenset[Use]] = _READ | _STREAM
_SINK: Final[frozenset[Use]] = frozenset({"writeStream"})
_WRITES: Final[frozenset[Use]] = frozenset({"write", "writeStream"})
_ALL: Final[frozenset[Use]] = _READS | _WRITES

OPTIONS: Final = (
    Option("path", "path", _ALL, values.text),
    Option("storageOptions", "storage_options", _ALL, values.storage, secret=True),
    Option("subscribe", "subscribe", _READS, values.names),
    Option("subscribePattern", "subscribe_pattern", _READS, values.pattern),
    Option("startingOffsets", "starting_offsets", _READS, values.position),
    Option("endingOffsets", "ending_offsets", _READ, values.position),
    Option("startingTimestamp", "starting_timestamp", _READS, values.at_or_after),
    Option("endingTimestamp", "ending_timestamp", _READ, values.at_or_after),
    Option("startingVersion", "starting_version", _READS, values.whole(0)),
    Option("versionAsOf", "version_as_of", _READ, values.whole(0)),
    Option("timestampAsOf", "timestamp_as_of", _READ, values.time_as_given),
    Option("isolationLevel", "isolation_level", _READ, values.isolation_level),
    Option("includeMetadata", "include_metadata", _READS, values.flag),
    Option("columns", "columns", _READS, values.names),
    Option("filters", "filters", _READS, values.filters),
    Option("excludeSegments", "exclude_segments", _READS, values.segments),
    Option("minPartitions", "min_partitions", _READS, values.whole(1)),
    Option("failOnDataLoss", "fail_on_data_loss", _READS, values.flag),
    Option("metadata", "metadata", _READ, values.text),
    Option("limit", "limit", _READ, values.whole(0)),
    Option("subscription", "subscription", _STREAM, values.text),
    Option("maxOffsetsPerTrigger", "max_offsets_per_trigger", _STREAM, values.whole(1)),
    Option("splitTransactions", "split_transactions", _STREAM, values.flag),
    Option("topic", "topic", _WRITES, values.text),
    Option("transactionalId", "transactional_id", frozenset({"write"}), values.text),
    Option("txnAppId", "txn_app_id", _WRITES | _STREAM, values.text),
    Option("txnVersion", "txn_version", frozenset({"write"}), values.whole(0)),
    Option("acknowledge", "acknowledge", _SINK, values.text),
    Option("checkpointLocation", "checkpoint_location", _SINK, values.text),
    Option("queryName", None, _SINK, values.text),
)
"""What the format knows. ``queryName`` and ``checkpointLocation`` are Spark's own, and reach a streaming sink."""

_OF_METADATA: Final = frozenset({"path", "storageOptions", "metadata", "limit", "versionAsOf", "timestampAsOf"})
"""What may stand next to ``metadata``: everything else is about the messages of topics."""

_BOUNDS: Final = ("startingOffsets", "startingTimestamp", "startingVersion", "endingOffsets", "endingTimestamp")
_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}
_OF_DELTA: Final[Mapping[str, str]] = {
    "endingversion": "use 'versionAsOf', the last version that is read; a stream goes on",
    "readchangefeed": "leave it out: 'startingVersion' gives the rows that became visible since",
    "readchangedata": "leave it out: 'startingVersion' gives the rows that became visible since",
}
"""What stands here for options of Delta's change feed, whose nearest names mean something else."""
_ELSEWHERE: Final[Mapping[str, str]] = {
    "allowunacknowledged": "use txn.write(df, topic, mode='overwrite', allow_unacknowledged=True) in a "
    "spark_ext.transaction: the format has no option for it",
    "mergeschema": "add the columns before, with ns.alter_topic(topic, add_columns=...)",
    "newestby": "use spark_ext.read_topic(spark, path, newest_by=...): the format has no option for it",
    "overwriteschema": "a topic keeps its columns: add some with ns.alter_topic(topic, add_columns=...)",
}
"""What is there for options that people look for, of Delta or of our own calls. Without underscores."""
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
            known = _ELSEWHERE.get(lowered.replace("_", "")) or (_OF_DELTA.get(lowered) if wanted & _READS else None)
            raise InvalidInputError(
                f"unknown option {ascii(name)[:80]}",
                advice=known or nearest(name, (item.name for item in OPTIONS if item.uses & wanted)),
            )
        if not option.uses & wanted:
            places = " and ".join(_PLACES[use] for use in _PLACES if use in option.uses)
            raise InvalidInputError(
                f"the option {option.name!r} belongs to {places}", advice="leave it out here, it would have no effect"
            )
        try:
            result[option.name] = option.parse(str(given[name]))
        except values.BadValueError as error:
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
        raise InvalidInputError(
            f"the options {' and '.join(map(repr, both))} exclude each other", advice="give one of them"
        )


def read_options(given: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """The options of a read; ``streaming`` is None where it is unknown (Spark asks for the schema of both alike).

    Raises:
        InvalidInputError: an unknown or misplaced option, a bad value, no path.
    """
    uses = _READS if streaming is None else _STREAM if streaming else _READ
    found = _parsed(given, uses)
    _check_metadata(found)
    _exclusive(found, "subscribe", "subscribePattern")
    _exclusive(found, "versionAsOf", "timestampAsOf")
    _exclusive(found, "startingOffsets", "startingTimestamp", "startingVersion")
    _exclusive(found, "endingOffsets", "endingTimestamp")
    if found.get("startingTimestamp", 0) > found.get("endingTimestamp", found.get("startingTimestamp", 0)):
        raise InvalidInputError(
            "the time of 'startingTimestamp' is behind that of 'endingTimestamp'", advice="exchange the two"
        )
    if found.get("startingVersion", 0) > found.get("versionAsOf", found.get("startingVersion", 0)):
        raise InvalidInputError(
            f"the option 'startingVersion' ({found['startingVersion']}) is behind 'versionAsOf' "
            f"({found['versionAsOf']}), which is the last version that is read",
            advice="exchange the two",
        )
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
        for name in _BOUNDS:
            if name in found:
                raise InvalidInputError(
                    f"the option {name!r} needs read_committed: what is not committed has no offset, time or version",
                    advice="leave out one of them",
                )
    return ReadOptions(**_fields(found))


def _check_metadata(found: Mapping[str, Any]) -> None:
    if "metadata" not in found:
        if "limit" in found:
            raise InvalidInputError(
                "the option 'limit' needs 'metadata'", advice="call limit(...) of the DataFrame, which reads no more"
            )
        return
    for name in found:
        if name not in _OF_METADATA:
            raise InvalidInputError(
                f"the option {name!r} does not fit 'metadata', whose rows are no messages of a topic",
                advice="leave it out, and call select and where of the DataFrame",
            )


def write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options of a write.

    Raises:
        InvalidInputError: an unknown or misplaced option, a bad value, no path, half of txnAppId and txnVersion.
    """
    found = _parsed(given, ("writeStream",) if streaming else ("write",))
    if not streaming and ("txnAppId" in found) != ("txnVersion" in found):
        raise InvalidInputError("the options 'txnAppId' and 'txnVersion' go together")
    return WriteOptions(**_fields(found))


def _fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """The parsed values by the field names of the typed options."""
    return {field: value for name, value in found.items() if (field := _BY_NAME[name.lower()].field) is not None}


def session_storage(spark: SparkSession) -> dict[str, Any]:
    """Storage options from the settings ``spark.txnlog.storage.<name>`` of a session; empty where it has none.

    For calls of ``spark_ext`` only: Spark gives the processes that plan a Python data source no session and no settings
    of it, so that the format has the option ``storageOptions``, or the environment (``AWS_*``, a role of the machine).
    A value that is a JSON object or array is parsed, so that nested options can be set.
    """
    if has_jvm(spark) and STORAGE_CONF not in str(spark._jsparkSession.conf().getAll().mkString("\n")):
        return {}  # as nearly always: one call of the JVM, where each setting takes two
    result: dict[str, Any] = {}
    for name, value in spark.conf.getAll.items():
        if name.startswith(STORAGE_CONF):
            result[name[len(STORAGE_CONF) :]] = _conf_value(name, value)
    return result


def storage_of_call(spark: SparkSession, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Storage options of a call: those that it was given, else the session's.

    Raises InvalidInputError for a value that is no dict, for what is no session, and for a session that was stopped.
    """
    check_session(spark)
    return session_storage(spark) if given is None else mapping("storage_options", given)


def _conf_value(name: str, value: str) -> Any:
    if not value.lstrip().startswith(("{", "[")):
        return {"true": True, "false": False}.get(value, value)
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise InvalidInputError(f"the setting {name!r} begins like JSON but is none") from None


__all__ = [
    "OPTIONS",
    "STORAGE_CONF",
    "Option",
    "ReadOptions",
    "Use",
    "WriteOptions",
    "read_options",
    "session_storage",
    "storage_of_call",
    "write_options",
]
