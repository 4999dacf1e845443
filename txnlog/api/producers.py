"""Names of producers that are started and fenced, and application ids that are forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnlog.common.names import nearest, parse_label, parse_producer_name
from txnlog.errors import InvalidInputError
from txnlog.fold.state import Draft
from txnlog.format.actions import ForgetApp, Header
from txnlog.format.actions import Producer as ProducerAction
from txnlog.log.commands import Answer, Simple, effect, one_start_of
from txnlog.replies import IfUnknown, unknown_outcome

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


def start_producer(connection: Connection, name: str, fenced_by: str | None) -> int:
    """Raise the epoch of a producer name; returns it."""
    label = parse_producer_name(name)
    action = ProducerAction(label, fenced_by)
    return connection.appender.call(
        Simple(lambda _draft, _at: [action], lambda _draft, at: at.version, one_start_of(label))
    )


def fence(connection: Connection, name: str, by: str) -> int:
    """Fence a producer name that was started; returns the new epoch, which nobody owns."""
    label = parse_producer_name(name)
    connection.follower.refresh()
    if label not in connection.follower.state.producers:
        raise InvalidInputError(
            f"no producer {label!r} was started", advice=nearest(label, connection.follower.state.producers)
        )
    with unknown_outcome(IfUnknown.FENCE_PRODUCER):
        return start_producer(connection, label, parse_label("name of the administrator", by))


def forget_app(connection: Connection, app_id: str) -> None:
    """Forget the last version of an application id."""
    label = parse_label("txn_app_id", app_id)

    appender = connection.appender  # a reader is refused before it looks at anything
    connection.follower.refresh()
    known = connection.follower.look(lambda state: list(state.apps))
    if label not in known:
        raise InvalidInputError(
            f"the log knows no txn_version of a txn_app_id {label!r}: there is nothing to forget",
            advice=nearest(label, known),
        )

    def decide(draft: Draft, _at: Header) -> list[ForgetApp] | Answer[None]:
        # It may be done by now: by others, or by a call before this one, whose outcome was unknown.
        return [ForgetApp(label)] if label in draft.apps else Answer(None)

    with unknown_outcome(IfUnknown.FORGET_APP):
        appender.call(effect(decide))


__all__ = ["fence", "forget_app", "start_producer"]
