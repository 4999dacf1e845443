"""How far queries are behind, as text for Prometheus. docs/operations/monitoring.md has a table made of this."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_ext.streaming.lag import TopicLag
from txnlog.api.metric_families import Metric
from txnlog.common.open_metrics import Family, Labels, encoded

_LABELS: Final = ("query", "source", "topic", "subscription")

OF_QUERIES: Final[dict[str, Metric]] = {
    "txnlog_query_lag_messages": Metric(
        "gauge", "Messages that can be read and that no finished batch of the query has processed.", _LABELS
    ),
    "txnlog_query_lag_seconds": Metric(
        "gauge", "Age of the oldest message that the query has not processed; 0 where there is none.", _LABELS
    ),
    "txnlog_query_lag_versions": Metric(
        "gauge", "Versions of the namespace since that message became visible, its own included.", _LABELS
    ),
    "txnlog_query_min_offsets_behind_latest": Metric(
        "gauge", "Offsets between the query and the end of the topic in the partition with the fewest of them.", _LABELS
    ),
    "txnlog_query_max_offsets_behind_latest": Metric(
        "gauge", "Offsets between the query and the end of the topic in the partition with the most of them.", _LABELS
    ),
    "txnlog_query_avg_offsets_behind_latest": Metric(
        "gauge", "Offsets between the query and the end of the topic, on average over the partitions.", _LABELS
    ),
    "txnlog_query_lag_failures": Metric(
        "counter",
        "How often the lag of a query could not be computed, since the monitor was made (_created). It has no label "
        "namespace: which one it was may be unknown.",
    ),
}
"""By its name each metric of a monitor. A counter is written with ``_total`` behind it."""


def lag_text(lags: Iterable[TopicLag], failures: int, since_ms: int) -> str:
    """OpenMetrics text; see ``Monitor.metrics``."""
    gauges = [_family(name) for name, metric in OF_QUERIES.items() if metric.kind == "gauge"]
    # By name once: where a run takes over from another one, both may be there.
    named = {(item.query, item.source, item.namespace, item.topic, item.subscription or ""): item for item in lags}
    for _, lag in sorted(named.items()):
        labels = Labels(
            {
                "namespace": lag.namespace,
                "query": lag.query,
                "source": str(lag.source),
                "topic": lag.topic,
                "subscription": lag.subscription or "",
            }
        )
        values = (
            lag.behind_messages,
            (lag.behind_ms or 0) / 1000,
            lag.behind_versions,
            lag.min_offsets_behind_latest,
            lag.max_offsets_behind_latest,
            lag.avg_offsets_behind_latest,
        )
        for family, value in zip(gauges, values, strict=True):
            family.add(value, labels)
    failed = _family("txnlog_query_lag_failures", since_ms)
    failed.add(failures, Labels({}))
    return encoded([*gauges, failed])


def _family(name: str, created_ms: int | None = None) -> Family:
    return Family(name, OF_QUERIES[name].kind, OF_QUERIES[name].help, created_ms)


__all__ = ["OF_QUERIES", "lag_text"]
