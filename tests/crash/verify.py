"""What fresh processes do after a crash run: ask for every outcome in doubt, then look at everything."""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import txnlog
from tests.crash import checks
from tests.crash.evidence import Evidence, Told, answers_path, drained_path, gather, read_journals
from tests.crash.plan import LEASE_MS, MINUTE_MS, NAMESPACE, SUBSCRIPTIONS, TOPICS, Board, Plan
from tests.crash.worker import carry_out, make_definite
from txnlog.common.ids import TxnId
from txnlog.common.limits import MIN_GRACE_MS
from txnlog.engine.runtime import Clock

MOST_EXPLAINED = 8
_DRAINED_AT_ONCE = 1_000


def ask(plan: Plan, clock: Clock, name: str) -> int:
    """Ask for every attempt that was ever in doubt or prepared, and write down what was told."""
    told: dict[str, Told] = {}
    with txnlog.open(plan.root, NAMESPACE, storage_options=plan.options, clock=clock) as ns:
        for label, item in checks.attempts(read_journals(plan)).items():
            if (item.ambiguous or item.prepared) and item.intent["txn"] is not None:
                told[label] = Told(*make_definite(ns, item.intent["txn"], name))
        for left in ns.transactions(state="PREPARED"):
            carry_out(ns, str(left.txn_id))
    answers_path(plan, name).write_text(json.dumps({label: asdict(item) for label, item in told.items()}))
    return 0


def clean(plan: Plan, board: Board) -> int:
    """Nobody is at work any more: after two nights a vacuum leaves what committed readers need, and no more.

    After the first one it ends what was left open; what it ended then is garbage after the second.
    """
    with txnlog.open(plan.root, NAMESPACE, storage_options=plan.options, clock=board) as ns:
        for _ in range(2):
            board.pass_time(2 * 60 * MINUTE_MS)
            ns.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=MIN_GRACE_MS)
    return 0


def drain(plan: Plan, clock: Clock) -> int:
    """Fresh consumers take what nobody took: everything that was not acknowledged comes, and nothing else."""
    drained: dict[str, dict[int, list[int]]] = {}
    with txnlog.open(plan.root, NAMESPACE, storage_options=plan.options, clock=clock) as ns:
        for name in SUBSCRIPTIONS:
            found = drained[name] = {partition: [] for partition in range(TOPICS["orders"])}
            with ns.consumer("orders", name) as consumer:
                # The first call waits for the lease of whoever was active on Failover.
                messages = consumer.receive(_DRAINED_AT_ONCE, timeout_ms=4 * LEASE_MS)
                while len(messages):
                    for _, partition, offset in messages.positions:
                        found[partition].append(offset)
                    consumer.acknowledge(messages)
                    messages = consumer.receive(_DRAINED_AT_ONCE, timeout_ms=0)
    drained_path(plan).write_text(json.dumps(drained))
    return 0


def main(plan: Plan) -> int:
    """Gather, check, explain; the findings and figures are in ``found.json``."""
    with txnlog.open(plan.root, NAMESPACE, mode="r", storage_options=plan.options) as ns:
        evidence = gather(plan, ns)
        findings = checks.check(evidence)
        explained = [explain(ns, evidence, finding) for finding in findings[:MOST_EXPLAINED]]
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    known = {**figures(evidence), "megabytes of checks": megabytes}
    report = {"findings": len(findings), "explained": explained, "figures": known}
    (Path(plan.folder) / "found.json").write_text(json.dumps(report))
    return 0


def journal_figures(evidence: Evidence) -> dict[str, int]:
    """What the journals tell, of a run that goes on as well."""
    known = checks.attempts(evidence).values()
    return {
        "attempts": len(known),
        "acknowledged": sum(item.committed is not None for item in known),
        "ambiguous": sum(item.ambiguous for item in known),
        "unknown": sum(item.unknown for item in known),
        "without answer": sum(not item.outcomes for item in known),
        "prepared": sum(item.prepared for item in known),
        "decided from outside": sum(map(len, evidence.decided.values())),
        "nights": evidence.nights,
        "files deleted": evidence.deleted,
        "blocks closed": evidence.closed,
    }


def figures(evidence: Evidence) -> dict[str, int]:
    """What there was to check."""
    known = checks.attempts(evidence).values()
    sources = (row.source for row in evidence.rows["derived"])
    consumed = Counter(SUBSCRIPTIONS[source] for source in sources if source is not None)
    return {
        **journal_figures(evidence),
        "visible": sum(bool(item.rows) for item in known),
        "in doubt, then committed": sum(item.ambiguous and bool(item.rows) for item in known),
        "answers": sum(map(len, evidence.asked.values())),
        "rows": sum(map(len, evidence.rows.values())),
        "sequenced rows": sum(row.sequence is not None for rows in evidence.rows.values() for row in rows),
        "consumed": consumed.total(),
        **{f"consumed, {kind}": consumed[kind] for kind in sorted(set(SUBSCRIPTIONS.values()))},
        "dead letters": len(evidence.letters),
        "drained": sum(len(found) for parts in evidence.drained.values() for found in parts.values()),
        "prepared, then committed": sum(item.prepared and bool(item.rows) for item in known),
        "version": evidence.version,
    }


def explain(ns: txnlog.Namespace, evidence: Evidence, finding: checks.Finding) -> str:
    """A finding with the journal and the entries of the attempt that shows it."""
    text, label = finding
    lines = [text]
    if label in evidence.intents:
        intent = evidence.intents[label]
        lines += [f"  intended: {json.dumps(intent)}"]
        lines += [f"  outcome: {json.dumps(line)}" for line in evidence.outcomes.get(label, [])]
        lines += [f"  asked: {told}" for told in evidence.asked.get(label, [])]
        txns = {row.txn for rows in evidence.rows.values() for row in rows if row.label == label}
        txns |= {intent["txn"]} - {None}
        for txn in sorted(txns):
            lines += [f"  {line}" for line in entries_about(ns, TxnId.parse(txn).number)]
    return "\n".join(lines)


def entries_about(ns: txnlog.Namespace, number: int) -> Iterator[str]:
    """The lines of the log that name a transaction, each with its version."""
    version = 0
    while batch := ns._connection.follower.log.get_many(version, 64):
        for data in batch:
            for line in data.decode().splitlines():
                if f'"txn":{number},' in line or f'"txn":{number}}}' in line:
                    yield f"entry {version}: {line}"
            version += 1
