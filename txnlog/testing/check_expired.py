"""Messages that expired: old enough by the time of the log, and nobody at work on them."""

from __future__ import annotations

from collections.abc import Iterator

from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.facts import Facts


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of what was acknowledged because of its age."""
    for item in facts.expired:
        place = f"{item.topic}:{item.subscription}/{item.partition}: {item.ranges} expired at {item.version}"
        if item.ttl_ms is None:
            yield Finding(Anomaly.EXPIRED_EARLY, f"{place}, and its topic lets nothing expire")
        elif item.age_ms < item.ttl_ms:
            yield Finding(Anomaly.EXPIRED_EARLY, f"{place}, {item.age_ms} ms old where {item.ttl_ms} are asked for")
        if item.busy:
            yield Finding(Anomaly.EXPIRED_AT_WORK, f"{place}, and somebody was at work on {item.busy}")


__all__ = ["check"]
