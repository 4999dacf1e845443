"""Enabling features of the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnlog.common.names import nearest
from txnlog.common.validation import shown
from txnlog.errors import UnsupportedFeature
from txnlog.fold import apply
from txnlog.fold.state import Draft
from txnlog.format.actions import Header, Protocol
from txnlog.log.commands import ONE_PROTOCOL, Answer, effect

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


def check_known(feature: str) -> None:
    """Raise UnsupportedFeature for a feature of the format that this txnlog does not know."""
    known = sorted(apply.READER_FEATURES | apply.WRITER_FEATURES)
    if feature not in known:
        raise UnsupportedFeature(
            f"this txnlog knows no feature {shown(feature)} of the format",
            advice=nearest(str(feature), known) if known else "format version 1 has none",
        )


def enable(connection: Connection, feature: str) -> None:
    """Enable a feature of the format; nothing where it is enabled already."""
    check_known(feature)

    def decide(draft: Draft, _at: Header) -> list[Protocol] | Answer[None]:
        head = draft.head
        readers = _with(head.reader_features, feature, apply.READER_FEATURES)
        writers = _with(head.writer_features, feature, apply.WRITER_FEATURES)
        if (readers, writers) == (head.reader_features, head.writer_features):
            return Answer(None)
        return [Protocol(head.reader_version, head.writer_version, readers, writers)]

    connection.appender.call(effect(decide, ONE_PROTOCOL))


def _with(features: tuple[str, ...], feature: str, known: frozenset[str]) -> tuple[str, ...]:
    return features if feature in features or feature not in known else (*features, feature)


__all__ = ["check_known", "enable"]
