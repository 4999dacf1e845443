"""All settings of a topic: arguments of the calls that create and alter it, stored as properties. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from txnlog.errors import InvalidInputError
from txnlog.format.delta_mode import DELTA
from txnlog.format.merge_mode import MERGE
from txnlog.format.retention import MESSAGE_TTL_MS, RETAIN_UNACKNOWLEDGED, RETENTION_BYTES, RETENTION_MS
from txnlog.format.topic_properties import Setting

SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    setting.name: setting
    for setting in (DELTA, MERGE, RETENTION_MS, RETENTION_BYTES, RETAIN_UNACKNOWLEDGED, MESSAGE_TTL_MS)
}


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """The settings that a call names, by their names; what it leaves out is as it was."""

    values: Mapping[str, Any]

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> GivenSettings:
        """Those that are not None. Raises InvalidInputError for a value that makes no sense."""
        return cls({name: SETTINGS[name].parse(value) for name, value in given.items() if value is not None})

    def put_into(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Properties with these settings. Raises InvalidInputError where they contradict each other."""
        found = dict(properties)
        for name, value in self.values.items():
            found = SETTINGS[name].put_into(found, value)
        ttl_ms, kept_ms = MESSAGE_TTL_MS.of(found), RETENTION_MS.of(found)
        if self.values and ttl_ms is not None and not RETAIN_UNACKNOWLEDGED.of(found):
            raise InvalidInputError(
                "message_ttl_ms says how long unacknowledged messages are kept; with retain_unacknowledged=False "
                "nothing keeps them",
                advice="leave one of the two out",
            )
        if self.values and ttl_ms is not None and kept_ms is not None and ttl_ms < kept_ms:
            raise InvalidInputError(
                f"message_ttl_ms={ttl_ms} is shorter than retention_ms={kept_ms}: subscriptions would lose messages "
                "that are still there",
                advice="give message_ttl_ms at least the length of retention_ms",
            )
        return found

    def difference(self, properties: Mapping[str, str]) -> str | None:
        """How a topic's properties differ from these settings, for a sentence; None where they do not."""
        for name, value in self.values.items():
            found = SETTINGS[name].of(properties)
            if found != value:
                return f"{name}: {found!r} instead of {value!r}"
        return None


__all__ = ["SETTINGS", "GivenSettings"]
