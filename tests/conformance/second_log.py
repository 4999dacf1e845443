"""The second reader: applying entries (sections 5 to 7).

It reads rows, so it applies what rows depend on, and refuses what an entry can say against that. Sequences,
applications, streams and leases change no row, and are decoded only.
"""

from __future__ import annotations

import re

from tests.conformance.second_cursors import Subscriptions, digest_is_allowed, name_is_allowed
from tests.conformance.second_entries import (
    DIGITS,
    MOST,
    Unsupported,
    arrow_type,
    decode_entry,
    digest_of,
    label_is_allowed,
    refuse_if,
)

# --- sections 5 to 7: applying entries --------------------------------------------------------------------------------


class Log(Subscriptions):
    """The state of a namespace, as far as rows depend on it."""

    def __init__(self):
        super().__init__()
        self.version, self.digest, self.time = -1, "", 0
        self.name, self.coordinators, self.next_number, self.oldest = "", [], 0, 0
        self.versions = (0, 0)
        self.features: tuple[set[str], set[str]] = (set(), set())
        self.topics, self.ends, self.starts = {}, {}, {}
        self.blocks, self.used = {}, set()
        self.producers, self.transactions = {}, {}
        self.segments, self.removals = {}, {}
        self.namespaces, self.next_coordinator = {}, 0

    def apply(self, data, version):
        header, actions = decode_entry(data, version)
        refuse_if(header["previous"] != self.digest, "the chain is broken")
        refuse_if(header["timestamp_ms"] < self.time, "back in time")
        named = header["checkpoint"]
        refuse_if(named is not None and named >= version, "a checkpoint of the future")
        self.version, self.time = version, header["timestamp_ms"]
        self.claims: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.opened.clear()
        for action in actions:
            getattr(self, "do_" + action["action"])(action)
        refuse_if(any(left for _, _, left in self.claims.values()), "rows that no commit claims")
        refuse_if(version == 0 and not (self.name and self.versions[0]), "entry 0 lacks an action")
        self.digest = digest_of(data)

    # the log itself

    def do_protocol(self, a):
        if a["reader_version"] > 1 or {*a["reader_features"]} - {"holes"}:
            raise Unsupported("a later reader")
        versions = (a["reader_version"], a["writer_version"])
        refuse_if(versions[0] < max(1, self.versions[0]) or versions[1] < max(1, self.versions[1]))
        features = (set(a["reader_features"]), set(a["writer_features"]))
        refuse_if(self.features[0] - features[0] or self.features[1] - features[1])
        self.versions, self.features = versions, features

    def do_namespace(self, a):
        refuse_if(self.version != 0 or self.name or a["coordinator"] >= 2**16 or a["max_timeout_ms"] == 0)
        if a["name"] != "_catalog":
            name_is_allowed(a["name"])
        self.name, self.coordinators = a["name"], [(0, a["coordinator"])]

    def do_adopt(self, a):
        name_is_allowed(a["name"])
        refuse_if(self.version == 0 or a["coordinator"] in [known for _, known in self.coordinators])
        self.blocks.clear()
        self.name = a["name"]
        self.coordinators.append((self.next_number, a["coordinator"]))

    def do_register(self, a):
        name_is_allowed(a["name"])
        live = [item["name"].lower() for item in self.namespaces.values() if not item["dropped"]]
        refuse_if(a["name"].lower() in live or self.version in self.namespaces)
        refuse_if(a["log"] and not DIGITS.fullmatch(a["log"]), "no digest")
        skips = a["coordinator"] > self.next_coordinator and not a["log"]
        refuse_if(a["coordinator"] < self.next_coordinator or skips or a["coordinator"] >= 2**16, "no coordinator id")
        self.next_coordinator = a["coordinator"] + 1
        self.namespaces[self.version] = a | {"dropped": False}

    def do_unregister(self, a):
        refuse_if(a["namespace"] not in self.namespaces or self.namespaces[a["namespace"]]["dropped"])
        self.namespaces[a["namespace"]]["dropped"] = True

    def do_verdict(self, a):
        pass

    def do_vacuum(self, a):
        refuse_if(not self.oldest <= a["oldest_readable"] <= self.version)
        self.oldest = a["oldest_readable"]

    # topics

    def live_topic(self, number):
        topic = self.topics.get(number)
        refuse_if(topic is None or topic["dropped"] is not None, "no such topic")
        return topic

    def do_topic(self, a):
        name_is_allowed(a["name"])
        same = [topic for topic in self.topics.values() if topic["name"].lower() == a["name"].lower()]
        refuse_if(any(topic["dropped"] is None for topic in same), "the topic exists")
        refuse_if(self.version in self.topics or not 1 <= a["partitions"] <= 10_000)
        schema_is_allowed(a["schema"], a["key"])
        folder = f"{a['name']}~{self.version}" if same else a["name"]
        self.topics[self.version] = {
            "id": self.version,
            "name": a["name"],
            "folder": folder,
            "schemas": [(self.version, a["schema"])],
            "partitions": a["partitions"],
            "key": a["key"],
            "dropped": None,
        }

    def do_alter_topic(self, a):
        topic = self.live_topic(a["topic"])
        if a["schema"] is not None:
            schema_is_allowed(a["schema"], topic["key"])
            topic["schemas"] = [*topic["schemas"], (self.version, a["schema"])]

    def do_drop_topic(self, a):
        topic = self.live_topic(a["topic"])
        topic["dropped"] = self.version
        for number in [n for n, item in self.subscriptions.items() if item["topic"] == topic["id"]]:
            self.remove_subscription(number)

    def do_delete_records(self, a):
        topic = self.live_topic(a["topic"])
        for partition, offset in a["before"]:
            place = (topic["id"], partition)
            refuse_if(partition >= topic["partitions"])
            refuse_if(not self.starts.get(place, 0) <= offset <= self.ends.get(place, 0), "an offset outside")
            self.starts[place] = offset

    # numbers

    def use(self, number):
        refuse_if(number in self.used, "a number used before")
        refuse_if(not any(first <= number < first + count for first, count in self.blocks.items()), "no open block")
        self.used.add(number)

    def do_reserve(self, a):
        refuse_if(a["first"] != self.next_number or a["first"] % 256 or a["count"] % 256 or not a["count"])
        self.blocks[a["first"]] = a["count"]
        self.next_number = a["first"] + a["count"]

    def do_renew(self, a):
        refuse_if(a["first"] not in self.blocks)

    def do_close(self, a):
        refuse_if(a["first"] not in self.blocks)
        end = a["first"] + self.blocks[a["first"]]
        refuse_if(any(a["first"] <= number < end for number in self.transactions), "an open transaction")
        del self.blocks[a["first"]]

    # transactions

    def do_producer(self, a):
        label_is_allowed(a["name"])
        refuse_if(self.producers.get(a["name"]) == self.version)
        for number in [n for n, t in self.transactions.items() if t["producer"] == a["name"] and t["state"] == "OPEN"]:
            self.end_aborted(number)
        self.producers[a["name"]] = self.version

    def do_forget_app(self, a):
        label_is_allowed(a["app_id"])

    def do_begin(self, a):
        self.use(a["txn"])
        self.owner_is_allowed(a)
        self.transactions[a["txn"]] = {
            "state": "OPEN",
            "segments": [],
            "producer": a["producer"],
            "epoch": a["epoch"],
            "claimed": False,
        }

    def owner_is_allowed(self, a):
        refuse_if((a["producer"] is None) != (a["epoch"] is None), "a producer without its epoch")
        refuse_if((a["app_id"] is None) != (a["app_version"] is None), "an application without its version")
        if a["app_id"] is not None:
            label_is_allowed(a["app_id"])
        refuse_if(a["producer"] is not None and self.producers.get(a["producer"]) != a["epoch"], "fenced")

    def open_transaction(self, number):
        transaction = self.transactions.get(number)
        refuse_if(transaction is None or transaction["state"] != "OPEN", "no open transaction")
        return transaction

    def do_segment(self, a):
        transaction = None if a["txn"] is None else self.open_transaction(a["txn"])
        self.use(a["segment"])
        topic = self.live_topic(a["topic"])
        refuse_if(not re.fullmatch(r"[0-9a-f]{32}\.parquet", a["file"]), "no file name")
        refuse_if(not a["slices"], "no slices")
        refuse_if(sum(item[1] for item in a["slices"]) != a["rows"], "slices do not add up")
        refuse_if(not re.fullmatch(r"(footer-)?crc32:[0-9a-f]{8}", a["checksum"]) or a["size_bytes"] == 0)
        refuse_if(a["compacted"] and (transaction is None or len(a["slices"]) != 1))
        partitions = [item[0] for item in a["slices"]]
        refuse_if(partitions != sorted(set(partitions)) or partitions[-1] >= topic["partitions"], "slices out of order")
        refuse_if(a["extent"] is None and any(item[1] == 0 for item in a["slices"]), "a slice without rows")
        if a["extent"] is not None:
            refuse_if("holes" not in self.features[0] or not a["compacted"], "no extent without the feature")
            refuse_if(not max(1, a["rows"]) <= a["extent"], "an extent of other rows")
        segment = {
            name: a[name] for name in ("topic", "file", "rows", "size_bytes", "checksum", "txn", "compacted", "extent")
        }
        segment |= {"number": a["segment"], "logged": self.version, "ended": None, "state": "pending", "time": None}
        slices = [[partition, rows, None] for partition, rows, *_ in a["slices"]]
        if transaction is not None:
            transaction["segments"].append(a["segment"])
        else:
            for item in slices:
                item[2] = self.advance(topic["id"], item[0], item[1])
                self.claims[a["segment"], item[0]] = (topic["id"], item[2], item[1])
            segment |= {"state": "visible", "ended": self.version, "time": self.time}
        self.segments[a["segment"]] = segment | {"slices": slices}

    def advance(self, topic, partition, rows):
        offset = self.ends.get((topic, partition), 0)
        self.ends[topic, partition] = offset + rows
        refuse_if(offset + rows > MOST, "an end of 64 bits")
        return offset

    def do_acknowledge(self, a):
        transaction = self.open_transaction(a["txn"])
        wanted = a["acknowledgement"]
        self.claim_messages(a["txn"], wanted)
        transaction["claimed"] |= bool(wanted["ranges"] or wanted["cumulative"])

    def do_prepare(self, a):
        transaction = self.open_transaction(a["txn"])
        digest_is_allowed(a["digest"])
        refuse_if(any(self.segments[number]["compacted"] for number in transaction["segments"]))
        transaction["state"] = "PREPARED"

    def do_commit(self, a):
        transaction = self.transactions.get(a["txn"])
        own = []
        if transaction is None:
            self.use(a["txn"])
            self.owner_is_allowed(a)
        else:
            named = [a[name] for name in ("producer", "epoch", "app_id", "app_version") if a[name] is not None]
            refuse_if(named, "its begin says that")
            prepared = transaction["state"] == "PREPARED"
            refuse_if(prepared and (a["shares"] or a["acknowledgements"] or a["stream"] is not None))
            stale = not prepared and self.producers.get(transaction["producer"]) != transaction["epoch"]
            refuse_if(transaction["producer"] is not None and stale, "fenced")
            own = transaction["segments"]
        if a["stream"] is not None:
            label_is_allowed(a["stream"]["identity"])
        digest_is_allowed(a["digest"])
        gone = [self.topics.get(number) for number in a["dropped_topics"]]
        refuse_if(any(topic is None or topic["dropped"] is None for topic in gone), "a topic that was not dropped")
        late = [
            number for number in a["dropped_subscriptions"] if number > self.version or number in self.subscriptions
        ]
        refuse_if(late, "a subscription that was not dropped")
        pending = set()
        for number in own:
            segment = self.segments[number]
            refuse_if(segment["compacted"], "it replaces others")
            if self.topics[segment["topic"]]["dropped"] is not None:
                segment |= {"state": "aborted", "ended": self.version}
                continue
            for item in segment["slices"]:
                item[2] = self.advance(segment["topic"], item[0], item[1])
                pending.add((segment["topic"], item[0]))
            segment |= {"state": "visible", "ended": self.version, "time": self.time}
        for number, partition, rows, *_ in a["shares"]:
            refuse_if((number, partition) not in self.claims, "no shared rows of this entry")
            topic, offset, left = self.claims[number, partition]
            refuse_if((topic, partition) in pending, "they would overtake pending rows")
            refuse_if(not 0 < rows <= left, "a share of other rows")
            self.claims[number, partition] = (topic, offset + rows, left - rows)
        for wanted in a["acknowledgements"]:
            self.claim_messages(a["txn"], wanted)
        self.settle(a["txn"], committed=True)
        self.forget(a["txn"])

    def forget(self, number):
        self.transactions.pop(number, None)
        self.holds.pop(number, None)

    def end_aborted(self, number):
        for segment in self.transactions[number]["segments"]:
            self.segments[segment] |= {"state": "aborted", "ended": self.version}
        self.settle(number, committed=False)
        self.forget(number)

    def do_abort(self, a):
        transaction = self.transactions.get(a["txn"])
        if transaction is None:
            self.use(a["txn"])
            return
        refuse_if(transaction["state"] == "PREPARED" and a["reason"] not in {"user", "admin"}, "prepared")
        self.end_aborted(a["txn"])

    def do_replace(self, a):
        transaction = self.open_transaction(a["txn"])
        refuse_if(transaction["claimed"] or len(a["offsets"]) != len(transaction["segments"]))
        self.live_topic(a["topic"])
        old: set[tuple[int, int]] = set()
        new: set[tuple[int, int]] = set()
        for number in a["removed"]:
            segment = self.segments.get(number)
            refuse_if(segment is None or segment["state"] != "visible" or number in self.removals, "not visible")
            refuse_if(segment["topic"] != a["topic"])
            self.removals[number] = self.version
            for p, rows, offset in segment["slices"]:
                old |= {(p, offset + place) for place in range(width(segment, rows))}
        for number, offset in zip(transaction["segments"], a["offsets"], strict=True):
            segment = self.segments[number]
            refuse_if(segment["topic"] != a["topic"] or not segment["compacted"])
            ((partition, rows, _),) = segment["slices"]
            refuse_if(offset + width(segment, rows) > self.ends.get((a["topic"], partition), 0), "behind the end")
            covered = {(partition, offset + place) for place in range(width(segment, rows))}
            refuse_if(covered & new, "an offset twice")
            new |= covered
            segment["slices"] = [[partition, rows, offset]]
            segment |= {"state": "visible", "ended": self.version, "time": self.time}
        missing = {(p, offset) for p, offset in old - new if offset >= self.starts.get((a["topic"], p), 0)}
        refuse_if(missing or new - old, "other offsets")
        self.forget(a["txn"])


def width(segment, rows):
    """How many offsets rows of a segment stand for: some of them may have no row any more."""
    return rows if segment["extent"] is None else segment["extent"]


DEAD_LETTERS = {"_dead_reason": "string", "_source_topic": "string", "_source_offset": "long"}
DEAD_LETTERS |= dict.fromkeys(("_source_partition", "_redeliveries"), "integer")


def schema_is_allowed(schema, key):
    names = [field["name"] for field in schema["fields"]]
    refuse_if(not 1 <= len(names) <= 2_000)
    for field in schema["fields"]:
        own = field["name"].startswith("_")
        refuse_if(own and DEAD_LETTERS.get(field["name"]) != field["type"], "a reserved column")
    refuse_if(key is not None and key not in names)
    fields_are_allowed(schema["fields"], 1)
    for field in schema["fields"]:
        arrow_type(field["type"])


FORBIDDEN = {*map(chr, range(0x20)), "\x7f", *" ,;{}()="}


def fields_are_allowed(fields, level):
    refuse_if(not fields or len({field["name"].casefold() for field in fields}) < len(fields), "names that are equal")
    for field in fields:
        name = field["name"]
        refuse_if(not 1 <= len(name) <= 255 or FORBIDDEN & {*name}, "no name of a column")
        type_is_allowed(field["type"], level)


def type_is_allowed(kind, level):
    refuse_if(level > 32, "too many levels")
    if isinstance(kind, dict):
        fields_are_allowed(kind["fields"], level + 1) if kind["type"] == "struct" else None
        for name in ("elementType", "keyType", "valueType"):
            type_is_allowed(kind[name], level + 1) if name in kind else None
