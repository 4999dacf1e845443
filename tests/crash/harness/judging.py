"""What fresh processes do after a run: ask for every outcome that nobody knows, read all, and judge the history."""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

import txnlog
from tests.crash.harness import journal
from tests.crash.harness.member import ProcessClient, carry_out, make_definite
from tests.crash.harness.plan import NAMESPACE, Plan
from txnlog.common.ids import TxnId
from txnlog.common.writer_text import writer_of
from txnlog.engine.runtime import Clock
from txnlog.fold.state import State
from txnlog.format.actions import Reserve
from txnlog.format.codec import Entry
from txnlog.testing import audit
from txnlog.testing.actors.reader import read
from txnlog.testing.anomalies import Finding
from txnlog.testing.client import rows_of
from txnlog.testing.facts import Facts, Subscribed, Unit
from txnlog.testing.history import History, Operation

MOST_EXPLAINED = 8
_MOST_OPERATIONS = 12
OLDER_VERSIONS = 3
_ENDS = ("fenced", "gave up", "broken")
"""Notes of which the supervisor has counted what they say."""


def operations_of(unit: Unit) -> list[Operation]:
    """All calls about a transaction or batch."""
    ends = (*unit.commits, *unit.prepares, *unit.completes, *unit.aborts)
    return [*unit.produces, *unit.acknowledges, *ends, *unit.asked]


def is_unanswered(unit: Unit) -> bool:
    """Whether somebody had to ask how it ended: an attempt did not say, or its owner never came to its end."""
    if unit.plain:
        return unit.unanswered
    own = any(answer.operation.kind in {"commit", "abort"} for answer in unit.answers)
    return unit.unanswered or (unit.has_effects and not own and not is_prepared(unit))


def _without_clients(entry: Entry) -> Entry:
    """The same, with blocks that name their writers by the digits alone, as headers do."""
    actions = tuple(
        msgspec.structs.replace(action, writer=writer_of(action.writer)) if isinstance(action, Reserve) else action
        for action in entry.actions
    )
    return replace(entry, actions=actions)


def is_prepared(unit: Unit) -> bool:
    """Whether its owner heard that it is prepared: the end is for others to bring."""
    return any(op.succeeded for op in unit.prepares)


def ask(plan: Plan, clock: Clock, name: str) -> int:
    """Ask for the end of every transaction that nobody knows it of, or that was prepared."""
    history, _ = journal.read_all(plan.journals)
    client = ProcessClient(plan, name, plan.random(name))
    with txnlog.open(plan.root, NAMESPACE, storage_options=plan.options, clock=clock) as ns:
        for unit in Facts(history).transactions.values():
            if is_unanswered(unit) or is_prepared(unit):
                make_definite(client, ns, unit.name)
        for left in ns.transactions(state="PREPARED"):
            carry_out(client, ns, str(left.txn_id))
    return 0


class Judge:
    """The last reader of a run.

    Attributes:
        problems: what is wrong that no history shows.
        zero: the state from entry 0 on, without checkpoints.
        together: figures of commits that processes made together.
    """

    def __init__(self, plan: Plan, ns: txnlog.Namespace) -> None:
        self._plan = plan
        self._ns = ns
        self._client = ProcessClient(plan, "judge", plan.random("judge"))
        self.problems: list[str] = []
        self.zero = State()
        self.together: Counter[str] = Counter()

    def problem(self, kind: str, text: str) -> None:
        """Note one."""
        self.problems.append(f"{kind}: {text}")

    def read_everything(
        self,
        subscriptions: Collection[Subscribed] = (),
        dead: tuple[str, str] | None = None,
        left_out: Collection[str] = (),
    ) -> None:
        """Some older versions, then everything at the end; ``dead`` is a topic of dead letters and its subscription.

        Topics that are ``left_out`` are not in the history.
        """
        ns, client = self._ns, self._client
        follower = ns._connection.follower
        readable = range(follower.state.head.oldest_readable, ns.snapshot().version)
        for version in [] if left_out else sorted(client.chance.sample(readable, min(OLDER_VERSIONS, len(readable)))):
            read(client, ns, version)
        self.zero, entries = audit.replay(follower.log, self.problem)
        entries = [_without_clients(entry) for entry in entries]
        self.together.update(audit.labels_of(entries), collectors=len(audit.collectors_of(entries)))
        audit.compare_state("the last reader", self.zero, follower, self.problem)
        token = client.journal.invoke(client.name, "final")
        snapshot = ns.snapshot()
        rows = rows_of(ns, snapshot)
        rows = {place: found for place, found in rows.items() if place[0].partition("~")[0] not in left_out}
        cursors = audit.cursors_of(ns, subscriptions)
        audit.check_ends(rows, {place: snapshot.end_offsets(place[0]) for place in cursors}, cursors, self.problem)
        txns = Facts(journal.read_all(self._plan.journals)[0]).transactions
        client.journal.ok(
            token,
            rows=rows,
            outcomes=audit.ends_of(self.zero, txns),
            cursors=cursors,
            dead=() if dead is None else audit.dead_letters(snapshot, *dead),
            missing=tuple(audit.missing_files(self.zero, audit.reading(follower.log.store), self.problem)),
        )

    def report(self, more: Callable[[Facts], Mapping[str, int]], findings: Iterable[str] = ()) -> None:
        """Judge the history, and write findings and figures to ``found.json``; ``more`` figures are of the facts."""
        history, notes = journal.read_all(self._plan.journals)
        broken = [f"{name}: {note['error']}" for name, found in notes.items() for note in found if _is_broken(note)]
        judged = audit.judge(history)
        found = [*broken, *self.problems, *findings, *(self._explain(finding) for finding in judged[:MOST_EXPLAINED])]
        facts = Facts(history)
        known = {**figures(history, notes, facts), **more(facts)}
        known["version"] = self._ns.snapshot().version
        known["megabytes of checks"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        report = {"findings": len(found), "explained": found[: 2 * MOST_EXPLAINED], "figures": known}
        (Path(self._plan.folder) / "found.json").write_text(json.dumps(report))

    def _explain(self, finding: Finding) -> str:
        """A finding with its operations, and the entries of their transactions."""
        shown = finding.operations[:_MOST_OPERATIONS]
        lines = [str(finding), *(f"  {line}" for line in History(shown).to_lines().splitlines())]
        for txn in dict.fromkeys(txn for op in shown if (txn := getattr(op.arguments, "txn", None)) is not None):
            lines += [f"  {line}" for line in entries_about(self._ns, TxnId.parse(txn).number)]
        return "\n".join(lines)


def _is_broken(note: journal.Note) -> bool:
    return bool(note["note"] == "broken")


def entries_about(ns: txnlog.Namespace, number: int) -> Iterator[str]:
    """The lines of the log that name a transaction, each with its version."""
    version = 0
    while batch := ns._connection.follower.log.get_many(version, 64):
        for data in batch:
            for line in data.decode().splitlines():
                if f'"txn":{number},' in line or f'"txn":{number}}}' in line:
                    yield f"entry {version}: {line}"
            version += 1


def figures(history: History, notes: Mapping[str, list[journal.Note]], facts: Facts | None = None) -> Counter[str]:
    """What there is to check, of a run that goes on as well."""
    known = facts or Facts(history)
    units = [unit for unit in known.units if unit.produces]
    found: Counter[str] = Counter()
    for unit in units:
        operations = operations_of(unit)
        unanswered, prepared = is_unanswered(unit), is_prepared(unit)
        found["acknowledged"] += any(op.succeeded for op in unit.attempts)
        found["refused"] += not unit.runs and bool(unit.answers_of("ABORTED"))
        found["unanswered"] += unanswered
        found["unanswered, then committed"] += unanswered and bool(unit.runs)
        found["unknown"] += any(op.error == "OutcomeUnknown" for op in operations)
        found["without answer"] += any(op.completed is None for op in operations)
        found["prepared"] += prepared
        found["prepared, then committed"] += prepared and bool(unit.runs)
        found["visible"] += bool(unit.runs)
    found["attempts"] = len(units)
    found["decided from outside"] = sum(op.succeeded for op in known.ops("complete"))
    for note in (note for lines in notes.values() for note in lines if note["note"] not in _ENDS):
        found[note["note"]] += 1
        found["merges"] += note.get("merges", 0)
        found["merges lost"] += note.get("lost", 0)
        if note["note"] == "vacuum":
            found["files deleted"] += note["files"]
            found["blocks closed"] += note["blocks"]
            found["vacuums with files"] += note["files"] > 0
    return found
