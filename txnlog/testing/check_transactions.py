"""Transactions and plain batches: whole or not there, as everybody was answered, and fenced."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding, first_of
from txnlog.testing.facts import Answer, Facts, Opened, Place, Unit, asked, goes_to, result_of
from txnlog.testing.history import Operation


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of single transactions and of the epochs that fence them."""
    producers, consumers = facts.opened_producers, facts.opened_consumers
    for unit in facts.units:
        if unit.runs:
            yield from _check_visible(facts, unit)
        elif facts.final is not None:
            yield from _check_invisible(facts, unit)
        yield from _check_answers(unit)
        yield from _check_dropped(unit)
        yield from _check_places(facts, unit)
        yield from _check_fenced(facts, unit, producers, consumers)
    for name, opened in (*producers.items(), *consumers.items()):
        yield from _check_epochs(name, opened)
    yield from _check_order(facts)


# --- the order of calls -----------------------------------------------------------------------------------------------


def _check_order(facts: Facts) -> Iterator[Finding]:
    """Nobody's later commit comes before an earlier one of the same client. Without an answer nothing is known.

    Of each transaction its first call counts, and none of one that was prepared: others may decide about that.
    """
    called: dict[str, list[tuple[Operation, Unit]]] = {}
    for unit in facts.units:
        first = unit.attempts[0] if unit.attempts else None
        if first is None or not unit.runs or unit.prepares or not first.succeeded:
            continue
        if first.kind in {"commit", "produce"}:
            called.setdefault(first.actor, []).append((first, unit))
    for calls in called.values():
        calls.sort(key=lambda item: item[0].invoked)
        for (op, unit), (later, behind) in pairwise(calls):
            if op.completed is not None and op.completed < later.invoked:
                continue  # it was visible before: that is another rule
            (version, ends), (version_behind, ends_behind) = _ends_of(unit), _ends_of(behind)
            mixed = [
                place for place, (_, last) in ends.items() if place in ends_behind and last > ends_behind[place][0]
            ]
            if version > version_behind or (version == version_behind and mixed):
                text = f"{behind.name} was committed behind {unit.name} by the same client, and came before it"
                yield Finding(Anomaly.OVERTAKEN_COMMIT, text, (op, later))


def _ends_of(unit: Unit) -> tuple[int, dict[Place, tuple[int, int]]]:
    """The version of a unit, and by partition its first and its last offset."""
    ends: dict[Place, tuple[int, int]] = {}
    for run in unit.runs:
        offsets = [row.offset for row in run.rows]
        first, last = ends.get(run.place, (offsets[0], offsets[0]))
        ends[run.place] = min(first, *offsets), max(last, *offsets)
    return unit.runs[0].rows[0].version, ends


# --- contents -------------------------------------------------------------------------------------------------------


def _check_visible(facts: Facts, unit: Unit) -> Iterator[Finding]:
    """All of it once and at one version, and somebody may have committed it."""
    shown: dict[Place, list[int]] = {}
    versions: set[int] = set()
    for run in unit.runs:
        shown.setdefault(run.place, []).extend([row.value for row in run.rows])
        versions.update([row.version for row in run.rows])
    wanted = facts.contents(unit)
    for place in sorted(shown.keys() | wanted.keys()):
        yield from _check_contents(unit, place, shown.get(place, []), wanted.get(place, []))
    if len(versions) > 1:
        yield Finding(Anomaly.TORN_COMMIT, f"{unit.name} is visible at the versions {sorted(versions)}", _all(unit))
    yield from _check_permitted(unit)


def _check_contents(unit: Unit, place: Place, shown: list[int], sure: list[Operation]) -> Iterator[Finding]:
    """What a unit shows in one partition is what was produced there."""
    if len(sure) == len(unit.produces) == 1 and list(asked(sure[0], of.Produce).values) == shown:
        return
    known = set(shown)
    produced: set[int] = set()
    for op in unit.produces:
        item = asked(op, of.Produce)
        if not goes_to(item, place):
            continue
        there = [value for value in item.values if value in known]
        produced.update(item.values)
        missing = len(item.values) - len(there)
        if there and not unit.plain and not op.possible and not op.succeeded:
            text = f"{unit.name} shows {first_of(there)} in {place[0]}/{place[1]}, of which nothing was written"
            yield Finding(Anomaly.FAILED_BUT_VISIBLE, text, (op,))
        elif missing and (there or op in sure):
            values = first_of(value for value in item.values if value not in known)
            yield Finding(
                Anomaly.TORN_COMMIT, f"{unit.name} is visible without {values} in {place[0]}/{place[1]}", (op,)
            )
    strange = known - produced
    if strange:
        text = f"{unit.name} shows {first_of(sorted(strange))} in {place[0]}/{place[1]}, which it did not produce"
        yield Finding(Anomaly.GARBAGE, text, _all(unit))


def _check_permitted(unit: Unit) -> Iterator[Finding]:
    """Something visible was asked to be, and nobody got the answer that it is not."""
    attempts = unit.attempts
    name = unit.name
    if not attempts:
        if not unit.aborts:
            yield Finding(Anomaly.INTERMEDIATE_READ, f"{name} is visible, and its commit was never called", _all(unit))
    elif not any(op.possible or op.error == "TransactionTimedOut" for op in attempts):
        text = f"{name} is visible, and every attempt said that nothing was written"
        yield Finding(Anomaly.FAILED_BUT_VISIBLE, text, tuple(attempts))
    late = [op for op in _calls(unit) if op.error == "TransactionTimedOut" and not op.possible]
    # Before the first commit every call may say so; afterwards only the commit itself asks the log.
    late = [op for op in late if op.kind == "commit" or op.invoked < unit.first_attempt]
    if late:
        yield Finding(
            Anomaly.COMMIT_AFTER_TIMEOUT, f"{name} is visible, and its owner got a timeout as the answer", tuple(late)
        )
    aborted = [answer.operation for answer in unit.answers_of("ABORTED")]
    aborted = [op for op in aborted if op.kind != "outcome" and op.error != "TransactionTimedOut"]
    if aborted:
        text = f"{name} is visible, and its owner got the answer that it is aborted"
        yield Finding(Anomaly.ABORTED_READ, text, tuple(aborted))
    if unit.ended is not None and unit.ended.state == "ABORTED":
        yield Finding(Anomaly.ABORTED_READ, f"{name} is visible, and the log says that it is aborted", _all(unit))
    if any(op.succeeded and result_of(op, of.Committed).skipped for op in unit.commits):
        text = f"{name} is visible, and its commit returned that it was skipped"
        yield Finding(Anomaly.FAILED_BUT_VISIBLE, text, tuple(unit.commits))


def _check_invisible(facts: Facts, unit: Unit) -> Iterator[Finding]:
    """What was acknowledged is there."""
    wanted = facts.contents(unit)
    if not wanted:
        return
    committed = [answer.operation for answer in unit.answers_of("COMMITTED")]
    if committed or (unit.ended is not None and unit.ended.state == "COMMITTED"):
        text = f"{unit.name} is committed, and not in the final read"
        yield Finding(Anomaly.LOST_WRITE, text, tuple(committed) or _all(unit))
    repeated = [op for op in unit.attempts if _is_duplicate(op)]
    if repeated and facts.visible_values.isdisjoint(_produced(unit)) and not _committed_by_another(facts, unit):
        text = f"{unit.name} was answered as a duplicate, and is not in the final read"
        yield Finding(Anomaly.LOST_WRITE, text, tuple(repeated))


def _committed_by_another(facts: Facts, unit: Unit) -> bool:
    """Whether the producer may have used the sequence for other values: those of a batch whose sequence was assigned.

    A duplicate is known by its sequence alone, as in Kafka; the last sequence, asked for meanwhile, may be too low.
    """
    places = {(item.topic, item.partition): item for op in unit.produces for item in [asked(op, of.Produce)]}
    for other in facts.units:
        if other is unit or other.producer is None or other.producer != unit.producer or not other.runs:
            continue
        for op in other.produces:
            item = asked(op, of.Produce)
            mine = places.get((item.topic, item.partition))
            if mine is not None and item.sequence in {None, mine.sequence}:
                return True
    return False


def _is_duplicate(op: Operation) -> bool:
    return isinstance(op.result, of.Produced | of.Committed) and op.result.duplicate


def _produced(unit: Unit) -> list[int]:
    return [value for op in unit.produces for value in asked(op, of.Produce).values]


def _calls(unit: Unit) -> list[Operation]:
    return [
        *unit.produces,
        *unit.acknowledges,
        *(() if unit.plain else [*unit.commits, *unit.prepares, *unit.completes]),
    ]


def _all(unit: Unit) -> tuple[Operation, ...]:
    return tuple(sorted({*_calls(unit), *unit.aborts, *unit.asked}, key=lambda op: op.number))


# --- answers --------------------------------------------------------------------------------------------------------


def _check_answers(unit: Unit) -> Iterator[Finding]:
    """Everybody who asked how it ended got the same answer, for ever."""
    if not unit.has_effects:
        return  # Nothing was written of it: whoever asks makes it aborted.
    answers: list[tuple[str, int | None, Operation | None]] = [(a.state, a.version, a.operation) for a in unit.answers]
    if unit.ended is not None and unit.ended.state in {"COMMITTED", "ABORTED"}:
        answers.append((unit.ended.state, unit.ended.version, None))
    shown = tuple(dict.fromkeys(op for _, _, op in answers if op is not None))
    states = {state for state, _, _ in answers}
    versions = {version for state, version, _ in answers if state == "COMMITTED" and version is not None}
    anomaly = Anomaly.TWO_ANSWERS if unit.unanswered else Anomaly.CHANGED_OUTCOME
    if len(states) > 1:
        yield Finding(anomaly, f"{unit.name} was said to be committed, and to be aborted", shown)
    elif len(versions) > 1:
        yield Finding(anomaly, f"{unit.name} was said to be committed at the versions {sorted(versions)}", shown)
    elif unit.runs and any(answer.operation.kind == "outcome" for answer in unit.answers_of("ABORTED")):
        yield Finding(anomaly, f"{unit.name} is visible, and who asked got the answer that it is aborted", shown)
    yield from _check_reopened(unit)


def _check_reopened(unit: Unit) -> Iterator[Finding]:
    """After a definite answer it is never open again. UNKNOWN is no answer: what nobody remembers is unknown.

    The owner stops at its own deadline, which the log may show later: until then others hear that it is open.
    """
    answers = [answer for answer in unit.answers if answer.operation.error != "TransactionTimedOut"]
    if not answers:
        return
    first: Answer = answers[0]
    for op in unit.asked:
        if op.succeeded and result_of(op, of.OutcomeShown).state in {"OPEN", "PREPARED"} and op.invoked > first.event:
            text = f"{unit.name} was {first.state}, and then {result_of(op, of.OutcomeShown).state}"
            yield Finding(Anomaly.CHANGED_OUTCOME, text, (first.operation, op))
    if unit.ended is not None and unit.ended.state in {"OPEN", "PREPARED"} and unit.has_effects:
        text = f"{unit.name} was {first.state}, and is {unit.ended.state} in the end"
        yield Finding(Anomaly.CHANGED_OUTCOME, text, (first.operation,))


def _check_dropped(unit: Unit) -> Iterator[Finding]:
    """Everybody who heard of its commit heard the same about what was dropped before it."""
    first: tuple[Operation, tuple[str, ...]] | None = None
    for op in unit.attempts:
        if not isinstance(op.result, of.Committed | of.Completed) or _elsewhere(op):
            continue
        if first is None:
            first = (op, op.result.dropped)
        elif not _same_names(first[1], op.result.dropped):
            anomaly = Anomaly.TWO_ANSWERS if unit.unanswered else Anomaly.CHANGED_OUTCOME
            text = f"{unit.name} was said to be committed without {first[1]}, and without {op.result.dropped}"
            yield Finding(anomaly, text, (first[0], op))


def _same_names(one: Sequence[str], other: Sequence[str]) -> bool:
    """A number stands for a name that could not be read."""
    return len(one) == len(other) and all(
        left == right or left.isdigit() or right.isdigit() for left, right in zip(one, other, strict=True)
    )


def _check_places(facts: Facts, unit: Unit) -> Iterator[Finding]:
    """Where the commit says that the messages are, there they are."""
    version = unit.shown_version
    if version is None:
        return
    for answer in unit.answers_of("COMMITTED"):
        if answer.version is not None and answer.version != version:
            text = f"{unit.name} is visible at version {version}, the answer was {answer.version}"
            yield Finding(Anomaly.MISPLACED_COMMIT, text, (answer.operation,))
    if unit.ended is not None and unit.ended.state == "COMMITTED" and unit.ended.version not in {None, version}:
        text = f"{unit.name} is visible at version {version}, its outcome says {unit.ended.version}"
        yield Finding(Anomaly.MISPLACED_COMMIT, text, _all(unit))
    shown: dict[Place, tuple[int, int]] = {}
    for run in unit.runs:
        start, end = shown.get(run.place, (run.rows[0].offset, 0))
        shown[run.place] = (start, max(end, run.rows[-1].offset + 1))
    for op in unit.attempts:
        if (
            isinstance(op.result, of.Produced | of.Committed | of.Completed)
            and op.result.offsets
            and not _elsewhere(op)
        ):
            said = {(span.topic, span.partition): (span.start, span.end) for span in op.result.offsets}
            odd = [place for place in sorted(shown.keys() | said.keys()) if shown.get(place) != said.get(place)]
            odd = [place for place in odd if facts.lives(place[0])]
            if odd:
                text = f"{unit.name} in {odd[0]} is at {shown.get(odd[0])}, the answer was {said.get(odd[0])}"
                yield Finding(Anomaly.MISPLACED_COMMIT, text, (op,))


def _elsewhere(op: Operation) -> bool:
    """Whether an answer is about an original that another transaction brought."""
    return isinstance(op.result, of.Committed) and (op.result.skipped or op.result.duplicate)


# --- epochs ---------------------------------------------------------------------------------------------------------


def _check_fenced(facts: Facts, unit: Unit, producers: Opened, consumers: Opened) -> Iterator[Finding]:
    """Nothing lands behind the entry that opened a newer epoch."""
    version = unit.version
    if version is None or facts.fate(unit) != "committed" or not (unit.runs or unit.has_effects):
        return
    if any(op.possible for op in unit.prepares):
        yield from _check_prepared(unit, producers)
        return
    if unit.producer is not None and unit.epoch is not None:
        yield from _fence(unit, version, unit.producer, unit.epoch, producers.get(unit.producer, ()))
    for op in unit.acknowledges:
        item = asked(op, of.Acknowledge)
        if op.succeeded and item.epoch is not None:
            name = f"{item.topic}:{item.subscription}"
            yield from _fence(unit, version, name, item.epoch, consumers.get(name, ()))


def _check_prepared(unit: Unit, producers: Opened) -> Iterator[Finding]:
    """What was prepared in time is not fenced any more, and lands whenever that is decided.

    In time is also what a call of unknown outcome prepared that began before: the one that repeats it gives the same
    answer.
    """
    first = min((item.invoked for item in unit.prepares if item.possible), default=0)
    for newer, op in producers.get(unit.producer or "", ()):
        late = [item for item in unit.prepares if item.succeeded and first > (op.completed or 0)]
        if late and unit.epoch is not None and newer > unit.epoch:
            text = f"{unit.name} with epoch {unit.epoch} of {unit.producer} was prepared after epoch {newer} was opened"
            yield Finding(Anomaly.ZOMBIE_COMMIT, text, (op, *late))


def _fence(
    unit: Unit, version: int, name: str, epoch: int, opened: Sequence[tuple[int, Operation]]
) -> Iterator[Finding]:
    at = bisect_right(opened, epoch, key=lambda pair: pair[0])
    if at < len(opened) and opened[at][0] < version:
        newer, op = opened[at]
        text = f"{unit.name} with epoch {epoch} of {name} landed at version {version}, behind epoch {newer}"
        yield Finding(Anomaly.ZOMBIE_COMMIT, text, (op, *unit.attempts))


def _check_epochs(name: str, opened: Sequence[tuple[int, Operation]]) -> Iterator[Finding]:
    """A later open never gets a lower epoch."""
    newest: tuple[int, Operation] | None = None
    by_call = sorted(opened, key=lambda pair: pair[1].invoked)
    done = sorted(opened, key=lambda pair: pair[1].completed or 0)
    at = 0
    for epoch, op in by_call:
        while at < len(done) and (done[at][1].completed or 0) < op.invoked:
            if newest is None or done[at][0] > newest[0]:
                newest = done[at]
            at += 1
        if newest is not None and epoch < newest[0]:
            text = f"{name} was opened with epoch {epoch} after epoch {newest[0]}"
            yield Finding(Anomaly.EPOCH_MOVED_BACK, text, (newest[1], op))


__all__ = ["check"]
