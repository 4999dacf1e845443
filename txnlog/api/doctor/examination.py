"""One look at everything. It changes nothing; with a probe it puts two small objects, and deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnlog.api.doctor import contents, surroundings
from txnlog.api.doctor.notes import Notes
from txnlog.results import DoctorReport

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


def examine(connection: Connection, *, probe: bool) -> DoctorReport:
    """Look for what somebody should do. See ``Namespace.doctor``."""
    if probe:
        connection.check_writes()
    version = connection.follower.refresh()
    connection.follower.adopt_checkpoint()
    notes = Notes()
    surroundings.look_at_store(notes, connection)
    surroundings.look_at_rights(notes, connection, probe=probe)
    surroundings.look_at_clock(notes, connection, probe=probe)
    surroundings.look_at_versions(notes)
    contents.look_at_format(notes, connection)
    contents.look_at_checkpoint(notes, connection)
    contents.look_at_limits(notes, connection)
    contents.look_at_transactions(notes, connection)
    contents.look_at_subscriptions(notes, connection)
    contents.look_at_topics(notes, connection)
    return DoctorReport(version, notes.seen, notes.findings())


__all__ = ["examine"]
