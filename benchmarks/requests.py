"""Requests that reach S3 for a commit when nobody else writes, counted where the client library sends them.

Expected: one PUT for each segment (one a topic) and one for the entry; no GET, no LIST, whatever the number of
partitions and messages. Checkpoints are counted apart.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import unquote, urlsplit

from aiobotocore.httpsession import AIOHTTPSession

import txnlog
from benchmarks.report import Row, report
from tools.servers import s3_server
from txnlog.format import keys

COMMITS = 20
ROOT = "lake"


class RequestCounter:
    """Counts what aiobotocore sends, by method and kind of object."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def install(self) -> None:
        """Count from now on, in this process."""
        send = AIOHTTPSession.send
        counts = self.counts

        async def counted(session: Any, request: Any) -> Any:
            counts[f"{request.method} {kind_of(request.url)}"] += 1
            return await send(session, request)

        AIOHTTPSession.send = counted


def kind_of(url: str) -> str:
    """What a request is about."""
    parts = urlsplit(url)
    if "list-type=2" in parts.query or "prefix=" in parts.query:
        return "list"
    return keys.kind_of(unquote(parts.path).partition(f"/{ROOT}/")[2])


def main() -> list[Row]:
    counter = RequestCounter()
    counter.install()
    rows: list[Row] = []
    with s3_server() as server:
        options = server.storage_options
        with txnlog.open(server.url(ROOT), namespace="bench", create=True, storage_options=options) as ns:
            for topic, partitions in (("one", 1), ("many", 100)):
                ns.create_topic(topic, partitions=partitions)
            for topics, messages in ((["one"], 1), (["many"], 1_000), (["one", "many"], 1_000)):
                with ns.begin() as txn:
                    txn.produce("one", [{"value": b"x"}])
                counter.counts.clear()
                for _ in range(COMMITS):
                    with ns.begin() as txn:
                        for topic in topics:
                            partitions = 1 if topic == "one" else 100
                            for partition in range(partitions):
                                count = max(1, messages // partitions)
                                txn.produce(topic, [{"value": b"x"}] * count, partition=partition)
                seen = {name: count / COMMITS for name, count in sorted(counter.counts.items())}
                expected = {"PUT entry": 1.0, "PUT segment": float(len(topics))}
                rows.append(
                    Row(
                        f"requests of a commit, {messages} messages a topic, topics {'+'.join(topics)}",
                        ", ".join(f"{count:g} {name}" for name, count in seen.items()),
                        ", ".join(f"{count:g} {name}" for name, count in expected.items()),
                        seen == expected,
                    )
                )
            counter.counts.clear()
            ns.checkpoint()
            seen_now = ", ".join(f"{count} {name}" for name, count in sorted(counter.counts.items()))
            rows.append(Row("requests of one checkpoint, off the commit path", seen_now, "reported", True))
    return rows


if __name__ == "__main__":
    report(main())
