"""What must hold after a crash run. Pure: evidence in, findings out; none is the only good answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise

from tests.crash.evidence import Evidence, Row
from tests.crash.journal import Line, producer_of
from tests.crash.plan import MAX_REDELIVERIES, TOPICS, decision
from txnlog.common import ranges

Place = tuple[str, int]
"""Subscription and partition."""

Finding = tuple[str, str | None]
"""What is wrong, and the label of the attempt that shows it."""


@dataclass(frozen=True)
class Attempted:
    """One attempt and all that is known of it."""

    label: str
    intent: Line
    outcomes: list[Line]
    rows: dict[str, list[Row]]

    @property
    def final(self) -> str | None:
        """The last definite answer: committed, aborted, refused; None where there was none."""
        known = [line["answer"] for line in self.outcomes if line["answer"] in {"committed", "aborted", "refused"}]
        return known[-1] if known else None

    @property
    def committed(self) -> Line | None:
        """The line that acknowledges the commit."""
        return next((line for line in self.outcomes if line["answer"] == "committed"), None)

    @property
    def ambiguous(self) -> bool:
        """Whether anybody ever had to ask: the answer was unknown, or never came."""
        return (self.final is None and not self.prepared) or self.unknown

    @property
    def prepared(self) -> bool:
        """Whether the owner was told that it is prepared: the end is for others to bring."""
        return any(line["answer"] == "prepared" for line in self.outcomes)

    @property
    def unknown(self) -> bool:
        """Whether OutcomeUnknown was raised."""
        return any(line["answer"] == "unknown" for line in self.outcomes)


def attempts(evidence: Evidence) -> dict[str, Attempted]:
    """All attempts by label."""
    rows: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for topic, found in evidence.rows.items():
        for row in found:
            rows[row.label][topic].append(row)
    return {
        label: Attempted(label, intent, evidence.outcomes.get(label, []), rows.get(label, {}))
        for label, intent in evidence.intents.items()
    }


def check(evidence: Evidence) -> list[Finding]:
    """All findings."""
    known = attempts(evidence)
    findings: list[Finding] = [(text, None) for text in (*evidence.broken, *evidence.damage)]
    strange = {row.label for rows in evidence.rows.values() for row in rows} - known.keys()
    findings.extend((f"{label} is visible, and nobody intended it", None) for label in sorted(strange))
    for item in known.values():
        findings.extend((text, item.label) for text in _check_attempt(item, evidence))
    findings.extend(_check_items(known.values()))
    findings.extend(_check_prepared(known.values(), evidence))
    findings.extend((f"{key} is on the store, and nobody needs it", None) for key in evidence.stray)
    findings.extend(_check_offsets(evidence))
    findings.extend(_check_older(evidence))
    findings.extend(_check_sequences(evidence))
    findings.extend(_check_subscriptions(evidence))
    findings.extend(_check_letters(evidence))
    findings.extend(_check_fencing(known.values(), evidence))
    return findings


def _check_attempt(item: Attempted, evidence: Evidence) -> Iterator[str]:
    yield from _check_whole(item)
    in_log = evidence.outcomes_in_log.get(item.intent["txn"] or "")
    visible = bool(item.rows)
    acknowledged = item.committed
    if acknowledged is not None:
        if not visible:
            yield f"{item.label} was acknowledged at version {acknowledged['version']}, and is not there"
        yield from _check_place(item, acknowledged)
    if item.final in {"aborted", "refused"} and visible:
        yield f"{item.label} was {item.final}, and is visible"
    if item.final in {"aborted", "refused"} and acknowledged is not None:
        yield f"{item.label} was acknowledged, and {item.final} as well"
    if item.intent["how"] in {"abort", "expire"} and visible:
        yield f"{item.label} was to {item.intent['how']}, and is visible"
    if item.intent["txn"] is not None and visible != (in_log is not None and in_log[0] == "COMMITTED"):
        yield f"{item.label} is {'' if visible else 'not '}visible, and the log says {in_log}"
    yield from _check_answers(item, evidence, visible=visible)


def _check_whole(item: Attempted) -> Iterator[str]:
    """All rows once, at one version, of one transaction, or none."""
    if not item.rows:
        return
    rows = [row for found in item.rows.values() for row in found]
    contents = {topic: sorted(row.part for row in found) for topic, found in item.rows.items()}
    wanted = {topic: list(range(count)) for topic, count in item.intent["contents"].items()}
    if contents != wanted:
        yield f"{item.label} is torn or doubled: its parts by topic are {contents}, not {wanted}"
    said = ",".join(f"{topic}:{count}" for topic, count in sorted(item.intent["contents"].items()))
    if {row.contents for row in rows} != {said}:
        yield f"{item.label} has other contents than it says: { ({row.contents for row in rows}) }"
    if len({row.version for row in rows}) != 1:
        yield f"{item.label} is visible at several versions: {sorted({row.version for row in rows})}"
    txns = {row.txn for row in rows}
    if len(txns) != 1 or item.intent["txn"] not in {None, *txns}:
        yield f"{item.label} is of the transactions {sorted(txns)}, intended was {item.intent['txn']}"


def _check_place(item: Attempted, acknowledged: Line) -> Iterator[str]:
    """Where the acknowledgement says that the rows are, there they are."""
    versions = {row.version for found in item.rows.values() for row in found}
    if item.intent["how"] != "plain" and versions - {acknowledged["version"]}:
        yield f"{item.label} is at version {sorted(versions)}, acknowledged was {acknowledged['version']}"
    told = {
        (topic, partition, offset) for topic, partition, *span in acknowledged["offsets"] for offset in range(*span)
    }
    found = {(topic, row.partition, row.offset) for topic, rows in item.rows.items() for row in rows}
    if told and item.rows and told != found:
        yield f"{item.label} is at {sorted(found)[:5]}…, acknowledged was {sorted(told)[:5]}…"


def _check_answers(item: Attempted, evidence: Evidence, *, visible: bool) -> Iterator[str]:
    """Everybody who asked for a definite answer got the same one, and it is true."""
    told = evidence.asked.get(item.label, [])
    truth = "COMMITTED" if visible else "ABORTED"
    for index, answer in enumerate(told):
        # Of a plain produce the sequence is asked for, which a stopped process and its successor may both have meant.
        other = answer.state == "COMMITTED" and item.intent["how"] == "plain" and _has_sequence(item, evidence)
        if answer.state != truth and not other:
            yield f"{item.label}: asker {index} was told {answer.state}, the truth is {truth}"
        if answer.seen in {"COMMITTED", "ABORTED"} and answer.seen != answer.state:
            yield f"{item.label}: asker {index} saw {answer.seen}, and was told {answer.state} then"
    versions = {answer.version for answer in told if answer.version is not None}
    if len(versions) > 1:
        yield f"{item.label}: askers were told the versions {sorted(versions)}"
    if (
        (item.ambiguous or item.prepared)
        and item.intent["txn"] is not None
        and len([a for a in told if a.version is not None]) < 2
    ):
        yield f"{item.label} was in doubt, and was not asked for twice: {told}"


def _has_sequence(item: Attempted, evidence: Evidence) -> bool:
    topic, partition, sequence = item.intent["sequence"]
    producer = producer_of(item.label)
    return any(
        (row.partition, row.sequence, producer_of(row.label)) == (partition, sequence, producer)
        for row in evidence.rows[topic]
    )


def _check_items(known: Iterable[Attempted]) -> Iterator[Finding]:
    """What was done again was not there before."""
    visible = Counter(item.intent["item"] for item in known if item.rows)
    for name, count in visible.items():
        if count > 1:
            yield f"the work {name} was done {count} times", name


def _check_prepared(known: Iterable[Attempted], evidence: Evidence) -> Iterator[Finding]:
    """What was prepared ended as the outside system decided, however late that was and whoever was fenced meanwhile."""
    for item in known:
        txn = item.intent["txn"]
        truth = "COMMITTED" if item.rows else "ABORTED"
        for state, _ in evidence.decided.get(txn, []):
            if state != truth:
                yield f"{item.label}: who brought the decision was told {state}, the truth is {truth}", item.label
        if item.intent["how"] != "prepare":
            if txn in evidence.decided:
                yield f"{item.label} was decided from outside, and never prepared", item.label
            continue
        wanted = decision(txn)
        if item.rows and not wanted:
            yield f"{item.label} is visible, and the outside system decided against it", item.label
        if item.prepared and wanted and not item.rows:
            yield f"{item.label} was prepared, and is not there though the outside system decided for it", item.label


def _check_offsets(evidence: Evidence) -> Iterator[Finding]:
    for topic, rows in evidence.rows.items():
        for partition in range(TOPICS[topic]):
            mine = [row for row in rows if row.partition == partition]
            offsets = [row.offset for row in mine]
            if offsets != list(range(len(offsets))):
                at = next((i for i, offset in enumerate(offsets) if i != offset), len(offsets))
                yield f"offsets of {topic}/{partition} are not dense at {at}: {offsets[max(0, at - 2) : at + 3]}", None
            if any(later.version < earlier.version for earlier, later in pairwise(mine)):
                yield f"offsets of {topic}/{partition} are not in the order of commits", None


def _check_older(evidence: Evidence) -> Iterator[Finding]:
    for version, topics in evidence.older.items():
        for topic, seen in topics.items():
            wanted = [
                (row.partition, row.offset, row.label, row.part)
                for row in evidence.rows[topic]
                if row.version <= version
            ]
            if seen != wanted:
                odd = sorted(set(seen) ^ set(wanted))[:5]
                yield f"at version {version}, {topic} has {len(seen)} rows, not {len(wanted)}: {odd}", None


def _check_sequences(evidence: Evidence) -> Iterator[Finding]:
    for topic, rows in evidence.rows.items():
        found: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for row in rows:
            if row.sequence is not None:
                found[producer_of(row.label), row.partition].append(row)
        for (producer, partition), mine in found.items():
            for expected, row in enumerate(mine):
                if row.sequence != expected:
                    yield (
                        f"{producer} in {topic}/{partition}: sequence {row.sequence} where {expected} follows",
                        row.label,
                    )
                    break


def _check_subscriptions(evidence: Evidence) -> Iterator[Finding]:
    """Every message went one way on every subscription, once: derived from, to the dead letters, or left to the end."""
    derived: dict[Place, Counter[int]] = defaultdict(Counter)
    labels: dict[tuple[str, int, int], str] = {}
    for row in evidence.rows.get("derived", []):
        if row.source is not None:
            derived[row.source, row.source_partition][row.source_offset] += 1
            labels[row.source, row.source_partition, row.source_offset] = row.label
    dead: dict[Place, Counter[int]] = defaultdict(Counter)
    for letter in evidence.letters:
        dead["shared", letter.partition][letter.offset] += 1
    for name, cursors in evidence.cursors.items():
        for partition, (acknowledged, pending) in cursors.items():
            place = (name, partition)
            ways = {
                "derived": derived.pop(place, Counter()),
                "dead": dead.pop(place, Counter()),
                "drained": Counter(evidence.drained.get(name, {}).get(partition, [])),
            }
            taken = {offset for start, end in acknowledged for offset in range(start, end)}
            for offset, text in _check_ways(ways, taken):
                yield f"{name}/{partition}: {text}", labels.get((*place, offset))
            ends = sum(row.partition == partition for row in evidence.rows["orders"])
            if missing := sorted(set(range(ends)) - taken):
                yield f"{name}/{partition}: never delivered, not even at the end: {missing[:5]}", None
            if pending:
                yield f"{name}/{partition}: {pending} messages are pending, and nobody is left", None
            if not ranges.is_normal(acknowledged):
                yield f"{name}/{partition}: the acknowledged ranges are not normal: {acknowledged}", None
    for name, partition in (*derived, *dead):
        yield f"{name}/{partition} has derived rows or dead letters, and no cursor", None


def _check_ways(ways: Mapping[str, Counter[int]], taken: Set[int]) -> Iterator[tuple[int, str]]:
    """Of one partition of a subscription: offsets that went two ways, or none, or that are not acknowledged."""
    all_ways = sum(ways.values(), Counter[int]())
    for offset, count in all_ways.items():
        if count > 1:
            said = ", ".join(f"{way} {found[offset]}" for way, found in ways.items())
            yield offset, f"{offset} was consumed {count} times: {said}"
        if offset not in taken:
            yield offset, f"{offset} was consumed, and is not acknowledged"
    if lost := sorted(taken - all_ways.keys()):
        yield lost[0], f"acknowledged, and nothing became of it: {lost[:5]}"


def _check_letters(evidence: Evidence) -> Iterator[Finding]:
    """A dead letter is the message that it says it was, and was delivered often enough before."""
    messages = {(row.partition, row.offset): (row.label, row.part) for row in evidence.rows["orders"]}
    for letter in evidence.letters:
        where = f"the dead letter of orders/{letter.partition}, {letter.offset}"
        known = messages.get((letter.partition, letter.offset))
        if known != (letter.label, letter.part):
            yield f"{where} holds {letter.label}, part {letter.part}: there was {known}", letter.label
        if letter.redeliveries <= MAX_REDELIVERIES:
            yield f"{where} was redelivered {letter.redeliveries} times only", letter.label


def _check_fencing(known: Iterable[Attempted], evidence: Evidence) -> Iterator[Finding]:
    """Of a producer with an older epoch nothing is visible from the entry on that started a newer one."""
    for item in known:
        process = evidence.epochs.get(item.intent["process"])
        if process is None or not item.intent["named"] or item.intent["how"] == "prepare":
            continue  # what is prepared is not fenced
        producer, epoch = process
        ended = min((version for version in evidence.started[producer] if version > epoch), default=None)
        late = [
            row.version for rows in item.rows.values() for row in rows if ended is not None and row.version >= ended
        ]
        if late:
            yield f"{item.label} of epoch {epoch} is visible at {late[0]}, fenced since {ended}", item.label
