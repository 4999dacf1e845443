"""What fresh processes do after a crash run: ask for every outcome in doubt, then look at everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import txnlog
from tests.crash import checks
from tests.crash.evidence import Evidence, Told, answers_path, gather, read_journals
from tests.crash.plan import NAMESPACE, Plan
from txnlog.ids import TxnId

MOST_EXPLAINED = 8


def count_ambiguous(plan: Plan) -> tuple[int, int]:
    """Attempts in doubt so far, and those of them for which OutcomeUnknown was raised."""
    known = checks.attempts(read_journals(plan)).values()
    return sum(item.ambiguous for item in known), sum(item.unknown for item in known)


def ask(plan: Plan, name: str) -> int:
    """Ask for every attempt that was ever in doubt, and write down what was told."""
    told: dict[str, Told] = {}
    with txnlog.open(plan.root, NAMESPACE, storage_options=plan.options) as ns:
        for label, item in checks.attempts(read_journals(plan)).items():
            if item.ambiguous and item.intent["txn"] is not None:
                seen = ns.transaction(item.intent["txn"])
                definite = ns.abort(item.intent["txn"], by="crash test", why=name)
                told[label] = Told(seen.state, definite.state, definite.version)
    answers_path(plan, name).write_text(json.dumps({label: asdict(item) for label, item in told.items()}))
    return 0


def main(plan: Plan) -> int:
    """Gather, check, explain; the findings and figures are in ``found.json``."""
    with txnlog.open(plan.root, NAMESPACE, mode="r", storage_options=plan.options) as ns:
        evidence = gather(plan, ns)
        findings = checks.check(evidence)
        explained = [explain(ns, evidence, finding) for finding in findings[:MOST_EXPLAINED]]
    report = {"findings": len(findings), "explained": explained, "figures": figures(evidence)}
    (Path(plan.folder) / "found.json").write_text(json.dumps(report))
    return 0


def figures(evidence: Evidence) -> dict[str, int]:
    """What there was to check."""
    known = checks.attempts(evidence).values()
    return {
        "attempts": len(known),
        "acknowledged": sum(item.committed is not None for item in known),
        "visible": sum(bool(item.rows) for item in known),
        "ambiguous": sum(item.ambiguous for item in known),
        "unknown": sum(item.unknown for item in known),
        "without answer": sum(not item.outcomes for item in known),
        "in doubt, then committed": sum(item.ambiguous and bool(item.rows) for item in known),
        "answers": sum(map(len, evidence.asked.values())),
        "rows": sum(map(len, evidence.rows.values())),
        "sequenced rows": sum(row.sequence is not None for rows in evidence.rows.values() for row in rows),
        "consumed": sum(row.source is not None for row in evidence.rows["derived"]),
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
    while batch := ns.follower.log.get_many(version, 64):
        for data in batch:
            for line in data.decode().splitlines():
                if f'"txn":{number},' in line or f'"txn":{number}}}' in line:
                    yield f"entry {version}: {line}"
            version += 1
