"""``ns.maintain``: what a namespace needs from time to time, bounded, in an order that keeps what others read.

Checkpoint; old messages deleted, as the settings of their topics say; topics compacted by their keys; small segments
merged; the Delta tables of topics with ``delta="auto"`` brought up to date; then vacuum, so that none of these tables
shows a file that it deletes. Each step stands by itself: a call that ends anywhere is simply made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.validation import Duration, whole_number
from txnlog.engine.log_lines import LogLines
from txnlog.errors import CorruptionError, SchemaMismatch, TopicNotFound, TxnLogError
from txnlog.format.delta_mode import is_auto
from txnlog.maintenance import optimizer, retention, vacuum
from txnlog.maintenance.compaction import Compaction, is_compacted
from txnlog.replies import Rest, as_part_of
from txnlog.results import Compacted, Maintained, Optimized
from txnlog.sentences import Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_logger = LogLines("txnlog.maintain")

DELTA_TABLES: Final = "Delta tables"
"""The key of ``failures`` for why nothing could be published; no topic can have that name."""

Progress = Callable[[str, str, int, int], object]
"""Called with the step, ``optimize`` or ``vacuum``, and the progress of that step."""


@as_part_of(Rest.MAINTAIN)
def maintain(
    connection: Connection,
    *,
    target_size_bytes: int,
    max_bytes: int,
    retain_ms: Duration,
    grace_ms: Duration,
    allow_short_retention: bool = False,
    before: vacuum.Before | None = None,
    progress: Progress | None = None,
) -> Maintained:
    """Look after a namespace. See ``Namespace.maintain``."""
    left = whole_number("max_bytes", max_bytes, 0, MAX_NUMBER)
    optimizer.check_target(target_size_bytes)
    vacuum.check_times(retain_ms, grace_ms, allow_short_retention=allow_short_retention)
    connection.check_writes()
    checkpoint = connection.session.checkpoint()
    retained = retention.retain(connection)
    optimized: list[Optimized] = []
    failures: dict[str, str] = {}
    compacted = _compacted(connection, left, failures)
    left = max(0, left - sum(item.read_bytes for item in compacted))
    finished = all(item.finished for item in compacted)
    for topic in connection.live_topics():
        if optimized and not left:
            finished = False  # nobody looked at the others
            break
        try:
            work = optimizer.begin(
                connection, topic.name, target_size_bytes, max_bytes=left, progress=_reported(progress, "optimize")
            )
        except TopicNotFound:
            continue  # dropped meanwhile
        try:
            done = work.run()
            finished = finished and done.finished
        except TopicNotFound:
            done = work.so_far()
        except (CorruptionError, SchemaMismatch) as error:
            # Rows that are damaged, or that cannot be written anew, must not keep all others from being looked after.
            _logger.warning("%r was not optimized: %s", topic.name, error.message)
            _report(failures, topic.name, error)
            done = work.so_far()
        left = max(0, left - done.read_bytes)
        if done.entries:
            optimized.append(done)
    published, unpublished = _published(connection)
    for name, failure in unpublished.items():
        if name == DELTA_TABLES:
            _logger.warning("The Delta tables were not brought up to date: %s", failure.message)
        else:
            _logger.warning("The Delta table of %r was not brought up to date: %s", name, failure.message)
        _report(failures, name, failure)
    vacuumed = vacuum.vacuum(
        connection,
        retain_ms,
        grace_ms,
        allow_short_retention=allow_short_retention,
        dry_run=False,
        before=before,
        progress=_reported(progress, "vacuum"),
    )
    connection.session.name_checkpoint(checkpoint)  # where none of these steps had an entry to write
    return Maintained(checkpoint, retained, compacted, tuple(optimized), published, vacuumed, failures, finished)


def _compacted(connection: Connection, most_bytes: int, failures: dict[str, str]) -> tuple[Compacted, ...]:
    """Compact the topics that are to be, as far as enough in them is new."""
    found: list[Compacted] = []
    for topic in connection.live_topics():
        if not is_compacted(topic):
            continue
        work = Compaction(connection, topic, max(0, most_bytes - sum(item.read_bytes for item in found)))
        try:
            if work.is_due():
                found.append(work.run())
        except TopicNotFound:
            found.append(work.so_far())
        except (CorruptionError, SchemaMismatch) as error:
            _logger.warning("%r was not compacted: %s", topic.name, error.message)
            _report(failures, topic.name, error)
            found.append(work.so_far())
    return tuple(found)


def _reported(progress: Progress | None, step: str) -> optimizer.Progress | None:
    return None if progress is None else partial(progress, step)


def _report(failures: dict[str, str], name: str, error: TxnLogError) -> None:
    """Add why one of the steps failed, with the way out of it."""
    text = Words(error.message, " (", error.advice, ")")
    failures[name] = Words(failures[name], "; ", text) if name in failures else text


def _published(connection: Connection) -> tuple[tuple[str, ...], Mapping[str, TxnLogError]]:
    """Bring the Delta tables of the topics with ``delta="auto"`` up to date; their names, and what failed."""
    publisher = connection.session.auto_publisher
    topics = connection.follower.topics()
    records = [item for item in topics if is_auto(item.properties)]  # of dropped ones as well, whose tables end
    if not records or not publisher.is_installed():
        return (), {}
    wanted = [item.name for item in records if not item.dropped]
    try:
        failed = publisher.publish_auto()
    except TxnLogError as error:
        return (), {DELTA_TABLES: error}
    return tuple(sorted(name for name in wanted if name not in failed)), failed


__all__ = ["DELTA_TABLES", "Progress", "maintain"]
