"""What the killed drivers work on: orders, taken batch by batch, and what must come out of them.

Every engine takes the same orders off the same subscription. ``write_stream`` and ``process`` write three topics in a
handler, the sink two by the column ``topic``. Of running counts ``update`` appends those that changed, and ``complete``
replaces all, by a handler and by the sink. A handler may also overwrite a topic next to others to which it appends. All
orders are there before the first driver starts, each batch of them one transaction, and a micro-batch ends between
transactions: so batches are the same whatever happens.

``ingest_kafka`` has the orders from Kafka, of one partition. What it has taken is said by its position in the log.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from txnlog.api.internals import connection_of

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

NAMESPACE: Final = "shop"
ORDERS: Final = "orders"
EVEN: Final = "even"
ODD: Final = "odd"
COUNTS: Final = "counts"
INGESTED: Final = "ingested"
OF_ORDERS: Final = frozenset({EVEN, ODD, INGESTED})
"""The topics whose rows are orders."""
SUBSCRIPTION: Final = "billing"

POSITION: Final = f"kafka:{INGESTED}/{ORDERS}/0"
"""The stream by which the log knows up to which offset it has the messages of Kafka."""

ROWS: Final = 20
"""Orders of a batch."""

_ORDER: Final = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("account", pa.string()), ("amount", pa.int64())]
)
_COUNT: Final = pa.schema([("account", pa.string()), ("count", pa.int64()), ("amount", pa.int64())])


class Engine(enum.Enum):
    """How batches are taken."""

    STREAM = "write_stream"
    SINK = "sink"
    PROCESS = "process"
    UPDATE = "update"
    COMPLETE = "complete"
    COMPLETE_SINK = "complete, sink"
    OVERWRITE = "overwrite"
    INGEST = "ingest_kafka"
    CARELESS = "careless"
    """Wrong on purpose, without Spark: it acknowledges in a transaction of its own. What the checks must find."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The topics that it writes."""
        if self in (Engine.SINK, Engine.CARELESS):
            return EVEN, ODD
        if self is Engine.INGEST:
            return (INGESTED,)
        return (COUNTS,) if self in _RUNNING else (EVEN, ODD, COUNTS)

    @property
    def is_sink(self) -> bool:
        """Whether the format's sink commits, in a process that Spark starts for it."""
        return self in (Engine.SINK, Engine.COMPLETE_SINK)

    @property
    def replaces(self) -> frozenset[str]:
        """The topics of which each batch replaces all rows."""
        return frozenset({COUNTS} if self in _REPLACING else ())

    def counts_shown(self, batches: int) -> Counter[tuple[str, int, int]]:
        """What the topic of counts must show after so many batches."""
        if self in _REPLACING:
            first = 0 if self in _RUNNING else max(0, batches - 1) * ROWS
            return _rows(counts_of(range(first, batches * ROWS)))
        found: Counter[tuple[str, int, int]] = Counter()
        for batch in range(batches):
            now = range(batch * ROWS, (batch + 1) * ROWS)
            if self in _RUNNING:
                changed = counts_of(now)
                total = counts_of(range(now.stop))
                found += _rows({account: total[account] for account in changed})
            else:
                found += _rows(counts_of(now))
        return found


_RUNNING: Final = (Engine.UPDATE, Engine.COMPLETE, Engine.COMPLETE_SINK)
"""Those whose counts are of all orders so far; the counts of the others are those of a batch."""

_REPLACING: Final = (Engine.COMPLETE, Engine.COMPLETE_SINK, Engine.OVERWRITE)
"""Those of which each batch replaces all counts that were there."""

REAL: Final = tuple(engine for engine in Engine if engine is not Engine.CARELESS)


def order(number: int) -> dict[str, Any]:
    """One order."""
    return {"id": number, "account": f"a{number % 5}", "amount": number * 7 % 23}


def orders_of(batch: int) -> list[dict[str, Any]]:
    """The orders of a batch."""
    return [order(number) for number in range(batch * ROWS, (batch + 1) * ROWS)]


def counts_of(numbers: Iterable[int]) -> dict[str, tuple[int, int]]:
    """By account how many of some orders there are, and their amounts."""
    count: Counter[str] = Counter()
    amount: Counter[str] = Counter()
    for row in map(order, numbers):
        count[row["account"]] += 1
        amount[row["account"]] += row["amount"]
    return {account: (number, amount[account]) for account, number in count.items()}


def _rows(counts: Mapping[str, tuple[int, int]]) -> Counter[tuple[str, int, int]]:
    """Each once."""
    return Counter((account, *sums) for account, sums in counts.items())


def taken(ns: Namespace, engine: Engine) -> int:
    """How many orders were taken: that took effect with their rows."""
    if engine is Engine.INGEST:
        record = connection_of(ns).stream(POSITION)
        return 0 if record is None else record.batch
    return sum(item.cursor for item in ns.subscription(ORDERS, SUBSCRIPTION).cursors)


def prepare(ns: Namespace, batches: int) -> None:
    """Make the topics and the subscription, and all orders."""
    ns.enable("holes")  # for what replaces rows
    ns.create_topic(INGESTED, _ORDER)
    ns.create_topic(ORDERS, _ORDER, partitions=2, key="account")
    ns.create_topic(EVEN, _ORDER, partitions=2, key="account")
    ns.create_topic(ODD, _ORDER, partitions=2)
    ns.create_topic(COUNTS, _COUNT)
    ns.create_subscription(ORDERS, SUBSCRIPTION)
    for batch in range(batches):
        ns.produce(ORDERS, orders_of(batch))


@dataclass(frozen=True)
class Step:
    """What one version changed: new rows of each topic, and acknowledged orders. Both in a form that compares."""

    rows: tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...]
    taken: tuple[int, ...]


def expected(engine: Engine, batches: int) -> list[Step]:
    """What must have become visible, version by version, from plain Python alone."""
    steps = []
    for batch in range(batches):
        rows = orders_of(batch)
        written = {
            EVEN: [tuple(row.values()) for row in rows if row["id"] % 2 == 0],
            ODD: [tuple(row.values()) for row in rows if row["id"] % 2 == 1],
            COUNTS: list((engine.counts_shown(batch + 1) - engine.counts_shown(batch)).elements()),
            INGESTED: [tuple(row.values()) for row in rows],
        }
        steps.append(
            Step(
                tuple((topic, tuple(sorted(written[topic]))) for topic in engine.outputs),
                tuple(row["id"] for row in rows),
            )
        )
    return steps


__all__ = [
    "COUNTS",
    "EVEN",
    "INGESTED",
    "NAMESPACE",
    "ODD",
    "OF_ORDERS",
    "ORDERS",
    "POSITION",
    "REAL",
    "ROWS",
    "SUBSCRIPTION",
    "Engine",
    "Step",
    "counts_of",
    "expected",
    "order",
    "orders_of",
    "prepare",
    "taken",
]
