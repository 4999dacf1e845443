"""All metrics: what each is, and what its values mean. docs/operations/monitoring.md has a table made of this."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from txnlog.common.format_limits import EXPIRY_GRACE_MS
from txnlog.common.limits import AUTO_MERGE_BYTES
from txnlog.common.open_metrics import Family
from txnlog.log.small_segments import small_bytes

Kind = Literal["gauge", "counter", "histogram"]

_SINCE_ASKED: Final = (
    "since metrics were asked of this handle for the first time (_created), which was answered with 0: the log has no "
    "count of all"
)
_SINCE_OPENED: Final = "since this handle was opened (_created)"


class Metric(NamedTuple):
    """What the metrics of one name are.

    Attributes:
        kind: what its values are.
        help: what a value means, as a sentence.
        labels: what distinguishes its values, besides the namespace.
    """

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def suffix(self) -> str:
        """What the name of a sample has behind that of the family; a histogram has several."""
        return "_total" if self.kind == "counter" else ""


_TOPIC: Final = ("topic",)
_SUBSCRIPTION: Final = ("topic", "subscription")
_PARTITION: Final = (*_SUBSCRIPTION, "partition")

OF_NAMESPACE: Final[dict[str, Metric]] = {
    "txnlog_entries": Metric(
        "counter", "Entries of the log since the namespace was created. Each is one object, and none is ever deleted."
    ),
    "txnlog_newest_version": Metric("gauge", "Version of the newest entry of the log."),
    "txnlog_oldest_readable_version": Metric("gauge", "Oldest version that can be read: a vacuum raises it."),
    "txnlog_newest_entry_age_seconds": Metric(
        "gauge", "Time since the newest entry, by the clock of this machine; 0 where that is behind the log's time."
    ),
    "txnlog_topics": Metric("gauge", "Topics of the namespace."),
    "txnlog_subscriptions": Metric("gauge", "Subscriptions of the namespace."),
    "txnlog_producers": Metric("gauge", "Names of producers that the log remembers."),
    "txnlog_checkpoint_distance_entries": Metric(
        "gauge",
        "Entries behind the newest usable checkpoint, which whoever opens the namespace applies: all without one.",
    ),
    "txnlog_checkpoint_objects": Metric("gauge", "Objects of the checkpoint that this handle reads from."),
    "txnlog_checkpoint_size_bytes": Metric("gauge", "Size of the parts of the checkpoint that this handle reads from."),
    "txnlog_transactions_committed": Metric(
        "counter",
        f"Transactions of all writers that were committed {_SINCE_ASKED}. Merges of segments are such transactions.",
    ),
    "txnlog_transactions_aborted": Metric(
        "counter",
        f"Transactions of all writers that were aborted, by reason, {_SINCE_ASKED}. With the reason failed, also "
        "proposals that were withdrawn.",
        ("reason",),
    ),
    "txnlog_unended_transactions": Metric(
        "gauge", "Transactions that the log shows, and that have not ended, by state: OPEN or PREPARED.", ("state",)
    ),
    "txnlog_unended_transactions_oldest_age_seconds": Metric(
        "gauge",
        "Time since the first entry of the oldest transaction that has not ended, by state; 0 where there is none.",
        ("state",),
    ),
    "txnlog_overdue_transactions": Metric(
        "gauge",
        f"Open transactions whose deadline was more than {EXPIRY_GRACE_MS // 1_000} seconds ago: the next entry of any "
        "writer ends them.",
    ),
    "txnlog_topic_messages": Metric(
        "counter",
        "Messages that became visible since the topic was created: the end offsets of its partitions. A topic that is "
        "created again under the name has another id.",
        ("topic", "id"),
    ),
    "txnlog_topic_segments": Metric("gauge", "Files that the newest version of a topic consists of.", _TOPIC),
    "txnlog_topic_size_bytes": Metric("gauge", "Size of the files of the newest version of a topic.", _TOPIC),
    "txnlog_topic_small_segments": Metric(
        "gauge",
        f"Files of the newest version of a topic with {small_bytes(AUTO_MERGE_BYTES) >> 20} MiB or less, which merging "
        "in the background, or optimize, merges.",
        _TOPIC,
    ),
    "txnlog_subscription_lag_messages": Metric("gauge", "Messages that are not acknowledged.", _SUBSCRIPTION),
    "txnlog_subscription_lag_seconds": Metric(
        "gauge",
        "Age of the oldest message that is not acknowledged, over all partitions; 0 where there is none.",
        _SUBSCRIPTION,
    ),
    "txnlog_subscription_pending_messages": Metric(
        "gauge", "Messages that are acknowledged in transactions which have not ended.", _SUBSCRIPTION
    ),
    "txnlog_subscription_leased_messages": Metric(
        "gauge",
        "Messages that consumers of a shared subscription have received, or are about to, and not acknowledged.",
        _SUBSCRIPTION,
    ),
    "txnlog_subscription_redelivered_messages": Metric(
        "gauge", "Messages that came back at least once and are not acknowledged.", _SUBSCRIPTION
    ),
    "txnlog_subscription_partition_lag_messages": Metric(
        "gauge", "Messages that are not acknowledged. By partition, where that is asked for.", _PARTITION
    ),
    "txnlog_subscription_partition_lag_seconds": Metric(
        "gauge",
        "Age of the oldest message that is not acknowledged; 0 where there is none. By partition, where that is asked "
        "for.",
        _PARTITION,
    ),
}
"""By its name each metric that is read from the log. A counter is written with ``_total`` behind it."""

OF_HANDLE: Final[dict[str, Metric]] = {
    "txnlog_handle_store_requests": Metric(
        "counter",
        f"Requests that this handle sent to the store, by call and kind of object, {_SINCE_OPENED}.",
        ("call", "kind"),
    ),
    "txnlog_handle_lost_races": Metric(
        "counter",
        f"Entries of this handle that found their slot occupied by that of another writer, {_SINCE_OPENED}.",
    ),
    "txnlog_handle_proposals": Metric(
        "counter",
        "Batches of commands that this handle left to another writer, by result: brought, where that one brought all "
        f"of them into the log, or in_vain, {_SINCE_OPENED}.",
        ("result",),
    ),
    "txnlog_handle_collected_proposals": Metric(
        "counter",
        f"Proposals of other writers that this handle read, by result: decoded or malformed, {_SINCE_OPENED}.",
        ("result",),
    ),
    "txnlog_handle_commit_duration_seconds": Metric(
        "histogram",
        "How long calls of this handle that commit took, as far as they succeeded: from the call until the outcome was "
        f"known, {_SINCE_OPENED}.",
    ),
    "txnlog_handle_commit_failures": Metric(
        "counter",
        f"Calls of this handle that commit and ended with an error, by its name, {_SINCE_OPENED}.",
        ("error",),
    ),
}
"""By its name each metric of what the handle that was asked did itself."""


def family(name: str, created_ms: int | None = None) -> Family:
    """A metric of a name, which begins with ``txnlog_`` in the text, without values; see ``Family``."""
    full = f"txnlog_{name}"
    metric = OF_NAMESPACE.get(full) or OF_HANDLE[full]
    return Family(full, metric.kind, metric.help, created_ms)


__all__ = ["OF_HANDLE", "OF_NAMESPACE", "Metric", "family"]
