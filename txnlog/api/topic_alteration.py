"""Altering a topic: what a call asks for, and the command that decides it against the newest state.

The topics that take its subscriptions' dead letters follow in the same entry: else its newest rows would fit into none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from txnlog.api.topics import check_compactable, existing
from txnlog.client import dead_letters
from txnlog.common.names import parse_topic_name
from txnlog.common.validation import mapping, shown
from txnlog.data import schema_evolution
from txnlog.errors import InvalidInputError, SchemaMismatch
from txnlog.fold.state import Draft, TopicRecord
from txnlog.format import schema
from txnlog.format.actions import AlterTopic, Header
from txnlog.format.delta_mode import DELTA, DeltaMode, check_delta_columns, check_delta_widening
from txnlog.format.schema import DataType, StructField, StructType
from txnlog.format.topic_settings import GivenSettings, check_properties
from txnlog.log.commands import Answer, Simple

_NO_SETTINGS = GivenSettings({})
_COLUMNS_ADVICE = 'pass pa.schema([("note", pa.string())]), or a list of pa.field(...) or (name, type)'


@dataclass(frozen=True, slots=True)
class Alteration:
    """What is wanted of a topic.

    Attributes:
        widened: by column its new type, and whether null is allowed; None: as it is.
        properties: by name the new value; None takes it away.
    """

    topic: str
    added: tuple[StructField, ...] = ()
    widened: Mapping[str, tuple[DataType, bool | None]] = field(default_factory=dict)
    properties: Mapping[str, str | None] = field(default_factory=dict)
    settings: GivenSettings = _NO_SETTINGS

    @classmethod
    def parse(cls, topic: str, add_columns: Any, widen: Any, properties: Any, given: Mapping[str, Any]) -> Alteration:
        """What the arguments of a call ask for. Raises InvalidInputError, SchemaMismatch, NameNotAllowed."""
        changed = mapping("properties", properties)
        for name, value in changed.items():
            if not isinstance(name, str) or not isinstance(value, str | None):
                raise InvalidInputError(
                    f"properties maps texts to texts; {shown(name)} is not one", advice="use str(...), None to remove"
                )
        check_properties(changed)
        return cls(
            parse_topic_name(topic),
            _added(add_columns),
            _widened(widen),
            changed,
            GivenSettings.parse(given),
        )

    def command(self) -> Simple[TopicRecord]:
        """What the log is asked for; it answers the topic as it is then."""
        return Simple(self._decide, lambda draft, _at: existing(draft, self.topic))

    def _decide(self, draft: Draft, _at: Header) -> list[AlterTopic] | Answer[TopicRecord]:
        record = existing(draft, self.topic)
        columns = schema_evolution.evolved(record.schema, self.added, self._wider(record.schema), record.key)
        kept = {name: value for name, value in record.properties.items() if name not in self.properties}
        properties = kept | {name: value for name, value in self.properties.items() if value is not None}
        properties = self.settings.put_into(properties)
        self._check_publishable(record, columns, DELTA.of(properties))
        check_compactable(draft, record.name, record.key, properties)
        if columns == record.schema:
            if properties == record.properties:
                return Answer(record)
            return [AlterTopic(record.id, None, properties)]
        altered = AlterTopic(record.id, columns, None if properties == record.properties else properties)
        return [altered, *_followers(draft, record, columns)]

    def _wider(self, columns: StructType) -> dict[str, StructField]:
        allows_null = {item.name: item.nullable for item in columns.fields}
        return {
            name: StructField(name, kind, allows_null.get(name, True) if nullable is None else nullable)
            for name, (kind, nullable) in self.widened.items()
        }

    def _check_publishable(self, record: TopicRecord, columns: StructType, mode: DeltaMode) -> None:
        """Of a topic that is to be published every column counts, with each older file; else what is new."""
        begins = DELTA.of(record.properties) == "off"
        check_delta_columns(columns if begins else _without(columns, record.schema.fields), mode)
        for earlier in record.schemas if begins else record.schemas[-1:]:
            check_delta_widening(earlier.schema, columns, mode)


def _without(columns: StructType, old: tuple[StructField, ...]) -> StructType:
    return StructType(tuple([item for item in columns.fields if item not in old]))


def _followers(draft: Draft, source: TopicRecord, columns: StructType) -> list[AlterTopic]:
    """The changes of the topics that take dead letters of a topic, and of those that take theirs."""
    found: list[AlterTopic] = []
    seen = {source.id}
    waiting = [(source, columns)]
    while waiting:
        record, newest = waiting.pop()
        for letters in dead_letters.of_source(draft, record):
            if letters.id in seen:
                continue
            seen.add(letters.id)
            try:
                wanted = schema_evolution.carried(letters.schema, dead_letters.schema_of(newest), letters.key)
                check_delta_columns(_without(wanted, letters.schema.fields), DELTA.of(letters.properties))
                check_delta_widening(letters.schema, wanted, DELTA.of(letters.properties))
            except SchemaMismatch as error:
                raise SchemaMismatch(
                    f"the topic {letters.name!r}, which takes dead letters of {record.name!r}, cannot follow: "
                    f"{error.message}",
                    advice="give its subscriptions another dead-letter topic: drop them, and create them again",
                ) from None
            if wanted != letters.schema:
                found.append(AlterTopic(letters.id, wanted))
                waiting.append((letters, wanted))
    return found


# --- arguments --------------------------------------------------------------------------------------------------------


def _added(given: Any) -> tuple[StructField, ...]:
    """New columns, of a schema, fields, or pairs of name and type."""
    if given is None:
        return ()
    if not isinstance(given, pa.Schema):
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise InvalidInputError(f"add_columns is a list of columns, not {shown(given)}", advice=_COLUMNS_ADVICE)
        try:
            given = pa.schema(list(given))
        except (TypeError, ValueError, pa.ArrowException):
            raise InvalidInputError("add_columns is a list of columns", advice=_COLUMNS_ADVICE) from None
    return schema.from_arrow(given).fields if len(given) else ()


def _widened(given: Any) -> dict[str, tuple[DataType, bool | None]]:
    """Columns and their new types; a field instead of a type says also whether null is allowed."""
    found: dict[str, tuple[DataType, bool | None]] = {}
    for name, kind in mapping("widen", given).items():
        if not isinstance(name, str) or not isinstance(kind, pa.DataType | pa.Field):
            raise InvalidInputError(
                f"widen maps columns to their new types; {shown(name)} is not one",
                advice='pass e.g. widen={"amount": pa.int64()}',
            )
        if isinstance(kind, pa.Field) and kind.name != name:
            raise SchemaMismatch(
                f"the column {shown(name)} cannot be renamed to {shown(kind.name)}", advice="add a column of that name"
            )
        whole = isinstance(kind, pa.Field)
        (column,) = schema.from_arrow(pa.schema([kind if whole else pa.field(name, kind)])).fields
        found[name] = (column.type, column.nullable if whole else None)
    return found


__all__ = ["Alteration"]
