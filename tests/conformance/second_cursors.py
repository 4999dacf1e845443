"""The second reader: subscriptions, and what they let a line claim, lease and release (sections 6.9 and 6.10).

Rows depend on none of it but for what is refused.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.second_entries import NAME, RESERVED, label_is_allowed, refuse_if

# --- sections 6.9 and 6.10: cursors -----------------------------------------------------------------------------------


class Cursor:
    """A cursor: its position, what was acknowledged above it, and what transactions that have not ended claim."""

    def __init__(self, position, acknowledged=(), holds=(), cumulative=None):
        self.position, self.acknowledged = position, [tuple(item) for item in acknowledged]
        self.holds, self.cumulative = [(txn, tuple(item)) for txn, item in holds], cumulative

    def claim_ranges(self, txn, ranges):
        for start, end in ranges:
            refuse_if(start < self.position or any(a < end and start < b for a, b in self.acknowledged), "acknowledged")
            refuse_if(any(a < end and start < b for _, (a, b) in self.holds), "claimed")
            refuse_if(self.cumulative is not None and start < self.cumulative[1], "claimed cumulatively")
        self.holds += [(txn, (start, end)) for start, end in ranges]

    def claim_below(self, txn, end):
        refuse_if(end <= self.position, "acknowledged")
        refuse_if(self.cumulative is not None and (self.cumulative[0] != txn or end <= self.cumulative[1]), "claimed")
        refuse_if(any(other != txn and a < end for other, (a, _) in self.holds), "claimed one by one")
        self.cumulative = (txn, end)

    def settle(self, txn, *, committed):
        mine = [item for other, item in self.holds if other == txn]
        self.holds = [item for item in self.holds if item[0] != txn]
        end = 0
        if self.cumulative is not None and self.cumulative[0] == txn:
            end, self.cumulative = self.cumulative[1], None
        if committed:
            self.position = max(self.position, end)
            waiting = sorted(self.acknowledged + mine)
            while waiting and waiting[0][0] <= self.position:
                self.position = max(self.position, waiting.pop(0)[1])
            self.acknowledged = waiting


def ranges_are_allowed(ranges, end):
    refuse_if(not ranges, "no ranges")
    last = -1
    for start, stop in ranges:
        refuse_if(not last < start < stop <= end, "ranges out of order or behind the end")
        last = stop


def digest_is_allowed(digest):
    if digest:
        label_is_allowed(digest)


def name_is_allowed(name):
    refuse_if(not NAME.fullmatch(name) or len(name) > 100 or RESERVED.fullmatch(name), "no name")


class Subscriptions:
    """The part of a log's state that subscriptions are."""

    version: int
    ends: dict[tuple[int, int], int]
    transactions: dict[int, Any]
    live_topic: Any
    end_aborted: Any

    def __init__(self):
        self.subscriptions, self.holds = {}, {}
        self.cursors: dict[tuple[int, int], Cursor] = {}
        self.opened: set[int] = set()

    def do_subscription(self, a):
        name_is_allowed(a["name"])
        topic = self.live_topic(a["topic"])
        refuse_if(len(a["start"]) != topic["partitions"] or a["lease_ms"] == 0)
        if a["dead_letter_topic"] is not None:
            name_is_allowed(a["dead_letter_topic"])
        ends = [self.ends.get((a["topic"], partition), 0) for partition in range(topic["partitions"])]
        refuse_if(any(offset > end for offset, end in zip(a["start"], ends, strict=True)), "behind the end")
        refuse_if(any((s["topic"], s["name"]) == (a["topic"], a["name"]) for s in self.subscriptions.values()))
        self.subscriptions[self.version] = {
            "topic": a["topic"],
            "name": a["name"],
            "type": a["type"],
            "epoch": self.version,
        }
        for partition, offset in enumerate(a["start"]):
            self.cursors[self.version, partition] = Cursor(offset)

    def live_subscription(self, number):
        refuse_if(number not in self.subscriptions, "no such subscription")
        return self.subscriptions[number]

    def do_drop_subscription(self, a):
        self.live_subscription(a["subscription"])
        self.remove_subscription(a["subscription"])

    def remove_subscription(self, number):
        del self.subscriptions[number]
        self.cursors = {key: cursor for key, cursor in self.cursors.items() if key[0] != number}
        for held in self.holds.values():
            held.discard(number)

    def do_consumer(self, a):
        subscription = self.live_subscription(a["subscription"])
        label_is_allowed(a["name"])
        if subscription["type"] == "shared":
            return
        refuse_if(a["subscription"] in self.opened, "two consumers")
        self.opened.add(a["subscription"])
        subscription["epoch"] = self.version
        for number in [n for n, held in self.holds.items() if a["subscription"] in held]:
            if self.transactions[number]["state"] == "OPEN":
                self.end_aborted(number)

    def do_seek(self, a):
        subscription = self.live_subscription(a["subscription"])
        for partition, offset in a["positions"]:
            cursor = self.cursor(a["subscription"], partition)
            refuse_if(cursor.holds or cursor.cumulative is not None, "pending acknowledgements")
            refuse_if(offset > self.end_of(a["subscription"], partition), "behind the end")
            self.cursors[a["subscription"], partition] = Cursor(offset)
        subscription["epoch"] = self.version

    def do_lease(self, a):
        refuse_if(self.live_subscription(a["subscription"])["type"] != "shared")
        label_is_allowed(a["consumer"])
        for partition, ranges in a["ranges"]:
            self.cursor(a["subscription"], partition)
            ranges_are_allowed(ranges, self.end_of(a["subscription"], partition))

    do_release = do_lease

    # claims

    def cursor(self, subscription, partition):
        refuse_if((subscription, partition) not in self.cursors, "no such partition")
        return self.cursors[subscription, partition]

    def end_of(self, subscription, partition):
        return self.ends.get((self.subscriptions[subscription]["topic"], partition), 0)

    def claim_messages(self, txn, wanted):
        number = wanted["subscription"]
        subscription = self.subscriptions.get(number)
        refuse_if(subscription is None or subscription["epoch"] != wanted["epoch"], "fenced")
        below = dict(wanted["cumulative"])
        for partition, position in wanted["expected"]:
            cursor = self.cursor(number, partition)
            refuse_if(cursor.position != position, "the cursor is elsewhere")
            refuse_if(any(a < below.get(partition, 0) for a, _ in cursor.acknowledged), "acknowledged by itself")
        for partition, ranges in wanted["ranges"]:
            ranges_are_allowed(ranges, self.end_of(number, partition))
            self.cursor(number, partition).claim_ranges(txn, ranges)
        for partition, end in wanted["cumulative"]:
            refuse_if(subscription["type"] == "shared" or end > self.end_of(number, partition), "cumulative")
            self.cursor(number, partition).claim_below(txn, end)
        if wanted["ranges"] or wanted["cumulative"]:
            self.holds.setdefault(txn, set()).add(number)

    def settle(self, txn, *, committed):
        for cursor in self.cursors.values():
            cursor.settle(txn, committed=committed)
