"""The state of a namespace: what its entries give, applied in order (PROTOCOL.md, sections 5 to 8).

Refusals that change no row are left out (step 9 of the document's "To read rows"): sequences, application versions,
batches of streams, timeouts and limits.
"""

import hashlib
import re
from collections import defaultdict

from .entries import ACTIONS, DAMAGED, FORMS, UNSUPPORTED, Answer, decode, entries, refuse

KEY_TYPES = ("string", "binary", "byte", "short", "integer", "long")
TYPES = (*KEY_TYPES, "boolean", "float", "double", "date", "timestamp", "timestamp_ntz")
DEAD_LETTER = {"_dead_reason string", "_source_topic string", "_source_partition integer", "_source_offset long"}
DEAD_LETTER |= {"_redeliveries integer"}


def decimal(kind):
    """Precision and scale of a decimal type, else None (6.5)."""
    match = re.fullmatch(r"decimal\(([1-9][0-9]?),(0|[1-9][0-9]?)\)", kind)
    return (int(match[1]), int(match[2])) if match and int(match[2]) <= int(match[1]) <= 38 else None


def check_type(kind, levels):
    """A type that may have so many levels (P-37, P-38)."""
    refuse(levels < 1, "more than 32 levels")
    if isinstance(kind, str):
        refuse(kind not in TYPES and not decimal(kind), "no type")
        return
    fields = kind.fields if kind.type == "struct" else []
    refuse(kind.type == "struct" and not fields, "a struct without fields")
    refuse(len({field.name.casefold() for field in fields}) < len(fields), "two columns of one name")
    refuse(any(not re.fullmatch("[^\0-\x20\x7f,;{}()=]{1,255}", field.name) for field in fields), "name of a column")
    parts = [getattr(kind, part) for part in ("elementType", "keyType", "valueType") if hasattr(kind, part)]
    for part in [*parts, *(field.type for field in fields)]:
        check_type(part, levels - 1)


def check_schema(schema, key, older):
    """A schema with its key's column, which has its type in an older schema, too (P-32, P-37 to P-39)."""
    check_type(schema, 33)  # the struct of the schema itself is no level
    columns, before = [{field.name: field.type for field in s.fields} for s in (schema, older)]
    own = [f"{name} {kind}" for name, kind in columns.items() if name.startswith("_")]
    refuse(len(columns) > 2000 or set(own) - DEAD_LETTER, "too many columns, or a reserved name")
    refuse(key is not None and (columns.get(key) not in KEY_TYPES or columns[key] != before[key]), "the key's column")


def width(segment, part):
    """How many offsets a slice has, with or without a row (section 7)."""
    return part.rows if segment.extent is None else segment.extent


def places(segments):
    """Ranges of the offsets that segments have, by partition."""
    result = defaultdict(list)
    for segment in segments:
        for part, offset in zip(segment.slices, segment.offsets):
            result[part.partition].append((offset, offset + width(segment, part)))
    return result


def union(ranges):
    """Ranges in normal form."""
    result = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        elif start < end:
            result.append((start, end))
    return result


def check_offsets(subscription, places):
    """Offsets that are in partitions of a subscription's topic, their ends included (6.9)."""
    ends = subscription.topic.ends
    refuse(any(place.partition >= len(ends) or place.offset > ends[place.partition] for place in places), "offset")


def check_ranges(subscription, parts):
    """Ranges of messages of a subscription's topic (section 4, P-83)."""
    ends = subscription.topic.ends
    for part in parts:
        bounds = [bound for one in part.ranges for bound in (one.start, one.end)]
        refuse(not bounds or bounds != sorted(set(bounds)), "ranges that are empty or not normal")
        refuse(part.partition >= len(ends) or bounds[-1] > ends[part.partition], "behind the end of the partition")


class State:
    """State after the entries that were applied. Every `on_` method applies the line of an action."""

    def __init__(self):
        self.version, self.time, self.digest, self.first_digest = -1, 0, "", None
        self.protocol, self.name, self.coordinators, self.oldest = None, None, [], 0
        self.next_number, self.next_coordinator, self.used, self.segments, self.shared = 0, 0, set(), {}, {}
        self.all_topics, self.producers, self.prepared = {}, {}, {}
        self.namespaces, self.topics, self.blocks, self.open, self.subscriptions = {}, {}, {}, {}, {}
        self.tables = {"namespace": self.namespaces, "topic": self.topics, "block": self.blocks, "open": self.open}
        self.tables["subscription"] = self.subscriptions

    def apply(self, data):
        """Apply one entry (section 5)."""
        header, lines = decode(data, self.version + 1)
        refuse(header.previous != self.digest, "previous is not the digest of the entry before (P-21)")
        refuse(header.timestamp_ms < self.time, "time goes back (P-22)")
        refuse(header.checkpoint is not None and header.checkpoint >= header.version, "checkpoint ahead (P-23)")
        self.version, self.time, self.shared = header.version, header.timestamp_ms, {}
        for number, line in enumerate(lines, 2):
            line.id = self.version  # P-9
            try:
                self.look_up(line)
                getattr(self, f"on_{line.action}", self.ignore)(line)
            except Answer as error:
                code, why = error.args
                raise Answer(code, f"version {self.version}, line {number}, {line.action}: {why}") from None
        refuse(any(rows for left in self.shared.values() for rows in left.values()), "rows without a share (P-95)")
        refuse(None in (self.protocol, self.name), "entry 0 lacks protocol or namespace (P-29)")
        self.digest = hashlib.sha256(data).hexdigest()[:32]  # P-19
        self.first_digest = self.first_digest or self.digest

    def look_up(self, line):
        """Check the texts of a line, and replace the numbers in it by the records that they name."""
        for field, kind, _ in ACTIONS[line.action]:
            value = getattr(line, field)
            if kind in FORMS and value is not None:
                refuse(not re.fullmatch(FORMS[kind], value), f"{field} is no {kind}")
            if kind in self.tables and value is not None:
                refuse(value not in self.tables[kind], f"{field}: there is no such {kind}")
                setattr(line, field, self.tables[kind][value])

    def ignore(self, line):
        """An action that changes no row."""

    # The log itself, and the root log (6.1, 6.2)

    def on_protocol(self, line):
        old = self.protocol or line
        if line.reader_version > 1 or set(line.reader_features) - {"holes"}:
            raise Answer(UNSUPPORTED, "a newer format (P-134)")
        refuse(line.writer_version < old.writer_version or not line.writer_version * line.reader_version, "P-136")
        refuse(set(old.writer_features) - set(line.writer_features), "a feature is missing (P-136)")
        refuse(set(old.reader_features) - set(line.reader_features), "a feature is missing (P-136)")
        self.protocol = line

    def on_namespace(self, line):
        refuse(self.version or self.name is not None, "only once, in entry 0")
        refuse(not re.fullmatch(FORMS["name"], line.name) and line.name != "_catalog", "no name")
        refuse(line.coordinator > 65535, "coordinator id (P-11)")
        self.name, self.coordinators = line.name, [(0, line.coordinator)]

    def on_adopt(self, line):
        refuse(not self.version or line.coordinator > 65535, "in entry 0, or coordinator id")
        refuse(any(line.coordinator == known for _, known in self.coordinators), "a coordinator id again")
        self.name = line.name
        self.coordinators.append((self.next_number, line.coordinator))
        self.blocks.clear()

    def on_register(self, line):
        names = [namespace.name.lower() for namespace in self.namespaces.values()]
        refuse(self.version in self.namespaces or line.name.lower() in names, "a second one, or it exists (P-7, P-9)")
        ahead = line.coordinator - self.next_coordinator
        refuse(ahead < 0 or ahead and not line.log or line.coordinator > 65535, "coordinator id (P-30)")
        self.next_coordinator = line.coordinator + 1
        self.namespaces[self.version] = line

    def on_unregister(self, line):
        del self.namespaces[line.namespace.id]

    def on_vacuum(self, line):
        refuse(not self.oldest <= line.oldest_readable <= self.version, "oldest readable version (P-92)")
        self.oldest = line.oldest_readable

    # Topics (6.3)

    def on_topic(self, line):
        same = [topic for topic in self.all_topics.values() if topic.name.lower() == line.name.lower()]
        refuse(any(topic.dropped is None for topic in same), "the topic exists (P-7)")
        refuse(self.version in self.all_topics, "a second one (P-9)")
        refuse(not 1 <= line.partitions <= 10000, "partitions (P-31)")
        check_schema(line.schema, line.key, line.schema)
        line.schemas, line.dropped = [(line.id, line.schema)], None
        line.folder = f"{line.name}~{line.id}" if same else line.name  # P-10
        line.starts, line.ends = [0] * line.partitions, [0] * line.partitions
        self.topics[line.id] = self.all_topics[line.id] = line

    def on_alter_topic(self, line):
        if line.schema is not None:
            check_schema(line.schema, line.topic.key, line.topic.schema)
            line.topic.schemas.append((self.version, line.schema))

    def on_drop_topic(self, line):
        line.topic.dropped = self.version
        del self.topics[line.topic.id]
        for subscription in [s for s in self.subscriptions.values() if s.topic is line.topic]:
            del self.subscriptions[subscription.id]

    def on_delete_records(self, line):
        starts, ends = line.topic.starts, line.topic.ends
        for place in line.before:
            refuse(place.partition >= len(starts), "no such partition")
            refuse(not starts[place.partition] <= place.offset <= ends[place.partition], "earliest offset (P-35)")
            starts[place.partition] = place.offset

    # Numbers, producers and transactions (6.6 to 6.8, and section 7)

    def use(self, number):
        """Accept a new number (P-40, P-41)."""
        refuse(number in self.used, "the number was used")
        refuse(not any(number in numbers for numbers in self.blocks.values()), "no open block")
        self.used.add(number)

    def on_reserve(self, line):
        refuse(line.first != self.next_number or line.count % 256, "block (P-42)")
        refuse(not 0 < line.count <= 2**40 or line.first + line.count >= 2**63, "count")
        self.next_number += line.count
        self.blocks[line.first] = range(line.first, self.next_number)

    def on_close(self, line):
        refuse(any(number in line.first for number in [*self.open, *self.prepared]), "a transaction is open (P-43)")
        del self.blocks[line.first.start]

    def on_producer(self, line):
        refuse(self.producers.get(line.name) == self.version, "the same name twice")
        self.producers[line.name] = self.version
        for txn in [txn for txn in self.open.values() if txn.producer == line.name]:
            self.end(txn)  # P-48

    def on_begin(self, line):
        self.use(line.txn)
        refuse((line.producer is None) != (line.epoch is None), "producer without epoch")
        refuse((line.app_id is None) != (line.app_version is None), "application without version")
        refuse(line.producer is not None and self.producers.get(line.producer) != line.epoch, "epoch (P-49)")
        line.segments, line.claimed = [], False
        self.open[line.txn] = line
        return line

    def on_segment(self, line):
        self.use(line.segment)
        partitions = [part.partition for part in line.slices]
        refuse(not partitions or partitions != sorted(set(partitions)), "slices do not ascend (P-107)")
        refuse(partitions[-1] >= line.topic.partitions, "no such partition")
        refuse(sum(part.rows for part in line.slices) != line.rows or not line.size_bytes, "rows, or size")
        refuse(line.extent is None and any(not part.rows for part in line.slices), "a slice without rows")
        refuse(line.compacted and (line.txn is None or len(partitions) > 1), "compacted (P-143)")
        if line.extent is not None:
            refuse("holes" not in self.protocol.reader_features or not line.compacted, "an extent (section 13)")
            refuse(not max(1, line.rows) <= line.extent, "fewer offsets than rows")
        line.logged, line.ended, line.time, line.offsets, line.removed = self.version, None, None, None, None
        self.segments[line.segment] = line
        if line.txn is None:
            self.show(line)
            self.shared[line.segment] = {part.partition: part.rows for part in line.slices}
        else:
            line.txn.segments.append(line)

    def show(self, segment, offsets=None):
        """Make a segment visible, at offsets or behind the ends (P-93, P-94)."""
        ends = segment.topic.ends
        segment.offsets = offsets or [ends[part.partition] for part in segment.slices]
        segment.ended, segment.time = self.version, self.time
        for part, offset in zip(segment.slices, segment.offsets):
            ends[part.partition] = max(ends[part.partition], offset + width(segment, part))
            refuse(ends[part.partition] >= 2**63, "end of a partition (6.4)")

    def on_acknowledge(self, line):
        self.claim(line.txn, line.acknowledgement)

    def claim(self, txn, acknowledgement):
        """Note what a transaction acknowledges (P-79, P-83, P-84, P-240)."""
        subscription = self.subscriptions.get(acknowledgement.subscription)
        refuse(subscription is None or subscription.epoch != acknowledgement.epoch, "subscription, or its epoch")
        check_offsets(subscription, acknowledgement.expected + acknowledgement.cumulative)
        refuse(subscription.type == "shared" and acknowledgement.cumulative, "cumulatively on a shared one (P-82)")
        ends = {place.partition: place.offset for place in acknowledgement.cumulative}
        for place in acknowledgement.expected:
            (_, position), *above = subscription.cursors[place.partition]
            refuse(position != place.offset, "the cursor stands elsewhere (P-84)")
            refuse(above and above[0][0] < ends.get(place.partition, 0), "acknowledged by itself (P-84)")
        check_ranges(subscription, acknowledgement.ranges)
        claims = [(part.partition, one.start, one.end) for part in acknowledgement.ranges for one in part.ranges]
        claims += [(place.partition, -1, place.offset) for place in acknowledgement.cumulative]
        for partition, start, end in claims:
            self.hold(subscription, txn, partition, start, end)

    def hold(self, subscription, txn, partition, start, end):
        """Claim messages of a partition, or with the start -1 everything below an end (P-80, P-81)."""
        cursor, holds = subscription.cursors[partition], subscription.holds[partition]
        if start < 0:
            refuse(end <= cursor[0][1], "acknowledged before")
            refuse(any(first < 0 and end <= last for _, first, last in holds), "claimed up to there")
            refuse(any(other != txn.txn and first < end for other, first, _ in holds), "claimed by another")
        else:
            others = cursor + [(first, last) for _, first, last in holds]
            refuse(any(first < end and start < last for first, last in others), "acknowledged or claimed")
        holds.append((txn.txn, start, end))
        txn.claimed = True

    def on_prepare(self, line):
        refuse(any(segment.compacted for segment in line.txn.segments), "a compacted segment")
        line.txn.digest = line.digest
        self.prepared[line.txn.txn] = self.open.pop(line.txn.txn)

    def on_commit(self, line):
        txn = self.open.get(line.txn) or self.prepared.get(line.txn)
        refuse(txn and {line.producer, line.epoch, line.app_id, line.app_version} != {None}, "an owner again")
        txn = txn or self.on_begin(line)
        more = line.shares or line.acknowledgements or line.stream or line.dropped_topics or line.dropped_subscriptions
        if line.txn in self.prepared:
            refuse(more or line.digest not in ("", txn.digest), "more than was prepared (P-59, P-61)")
        refuse(any(t in self.topics or t not in self.all_topics for t in line.dropped_topics), "P-216")
        refuse(any(s in self.subscriptions or s > self.version for s in line.dropped_subscriptions), "P-216")
        refuse(line.stream and not re.fullmatch(FORMS["label"], line.stream.identity), "the stream's identity")
        refuse(any(segment.compacted for segment in txn.segments), "a compacted segment (P-143)")
        pending = [(segment.topic.id, part.partition) for segment in txn.segments for part in segment.slices]
        for share in line.shares:
            left = self.shared.get(share.segment, {})
            refuse(not 0 < share.rows <= left.get(share.partition, 0), "share (P-95)")
            refuse((self.segments[share.segment].topic.id, share.partition) in pending, "behind pending rows (P-96)")
            left[share.partition] -= share.rows
        for acknowledgement in line.acknowledgements:
            self.claim(txn, acknowledgement)
        for segment in txn.segments:
            if segment.topic.dropped is None:  # P-97
                self.show(segment)
        self.end(txn, committed=True)

    def on_abort(self, line):
        refuse(line.txn in self.prepared and line.reason not in ("user", "admin"), "prepared (P-59)")
        txn = self.open.get(line.txn) or self.prepared.get(line.txn)
        if txn:
            self.end(txn)
        else:
            self.use(line.txn)  # P-57

    def end(self, txn, committed=False):
        """End a transaction: segments that were not made visible before are aborted (P-98); the table of 6.10."""
        for segment in txn.segments:
            segment.ended = self.version
        for subscription in self.subscriptions.values() if txn.claimed else ():
            for partition, holds in enumerate(subscription.holds):
                mine = [(start, end) for number, start, end in holds if number == txn.txn and committed]
                subscription.cursors[partition] = union(subscription.cursors[partition] + mine)
                holds[:] = [hold for hold in holds if hold[0] != txn.txn]
        self.open.pop(txn.txn, None)
        self.prepared.pop(txn.txn, None)

    # Subscriptions (6.9): rows need whose transactions a consumer aborts, `expected` needs the cursors

    def on_subscription(self, line):
        ends = line.topic.ends
        refuse(len(line.start) != len(ends) or any(start > end for start, end in zip(line.start, ends)), "start")
        names = [subscription.name for subscription in self.subscriptions.values() if subscription.topic is line.topic]
        refuse(line.name in names or not line.lease_ms, "it exists, or lease_ms")
        refuse(self.version in self.subscriptions, "a second one (P-9)")
        line.epoch, line.moved = self.version, None
        # Of each partition what is acknowledged; it begins with everything below the cursor's position.
        line.cursors = [[(-1, start)] for start in line.start]
        line.holds = [[] for _ in line.start]  # what is claimed: transaction, start (-1: everything below), end
        self.subscriptions[self.version] = line

    def on_drop_subscription(self, line):
        del self.subscriptions[line.subscription.id]

    def on_consumer(self, line):
        if line.subscription.type != "shared":
            refuse(line.subscription.moved == self.version, "a second consumer (P-74)")
            line.subscription.epoch = line.subscription.moved = self.version
            for txn in list(self.open.values()):
                if any(hold[0] == txn.txn for holds in line.subscription.holds for hold in holds):
                    self.end(txn)  # P-73

    def on_seek(self, line):
        check_offsets(line.subscription, line.positions)
        for place in line.positions:
            refuse(line.subscription.holds[place.partition], "pending acknowledgements (P-75)")
            line.subscription.cursors[place.partition] = [(-1, place.offset)]
        line.subscription.epoch = line.subscription.moved = self.version

    def on_lease(self, line):
        refuse(line.subscription.type != "shared", "not shared (P-76)")
        check_ranges(line.subscription, line.ranges)

    on_release = on_lease

    # Replaced segments (6.11), and reading (section 8)

    def on_replace(self, line):
        txn, old = line.txn, [self.segments.get(number) for number in line.removed]
        refuse(txn.claimed or txn.app_id is not None or len(line.offsets) != len(txn.segments), "the transaction")
        refuse(any(s.topic is not line.topic or not s.compacted for s in txn.segments), "a new segment")
        for segment in old:
            refuse(segment is None or segment.topic is not line.topic or segment.offsets is None, "a removed segment")
            refuse(segment.removed is not None, "replaced before")
            segment.removed = self.version
        for segment, offset in zip(txn.segments, line.offsets):
            self.show(segment, [offset])
        old, new = places(old), places(txn.segments)
        for partition in {*old, *new}:  # P-90
            was, now, deleted = old[partition], sorted(new[partition]), [(0, line.topic.starts[partition])]
            refuse(union(was + now) != union(was), "an offset that was not there")
            refuse(union(was + deleted) != union(now + deleted), "an offset is lost")
            refuse(any(one[1] > other[0] for one, other in zip(now, now[1:])), "an offset twice")
        self.end(txn)

    def txn_id(self, number):
        """TxnID of a number as text (P-11, P-231)."""
        coordinator = [coordinator for bound, coordinator in self.coordinators if bound <= number][-1]
        return f"{coordinator:04x}{number:028x}"

    def plan(self, topic, version, uncommitted):
        """Segments to read at a version, each with what it is there (P-99, P-101, P-149)."""
        for segment in self.segments.values():
            if segment.topic is not topic or segment.logged > version:
                continue
            if segment.ended is None or segment.ended > version:
                state = "OPEN"
            else:
                state = "ABORTED" if segment.offsets is None else "COMMITTED"
            if state == "COMMITTED":
                parts = zip(segment.slices, segment.offsets)
                live = any(offset + width(segment, part) > topic.starts[part.partition] for part, offset in parts)
                if live and (segment.removed is None or segment.removed > version):
                    yield segment, state
            elif uncommitted and (segment.offsets or segment.ended is None or segment.ended > self.oldest):
                yield segment, state


def read_log(folder):
    """State after the newest entry of the log in a folder."""
    state = State()
    for data in entries(folder):
        try:
            state.apply(data)
        except RecursionError:
            raise Answer(DAMAGED, "nested too deep (P-138)") from None
    return state
