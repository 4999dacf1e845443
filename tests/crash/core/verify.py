"""What fresh processes do after a run over all of the client: clean up, consume the rest, read and judge everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import txnlog
from tests.crash.core.consumers import consumer_of
from tests.crash.core.workload import DEAD_LETTERS, LEASE_MS, SUBSCRIPTIONS, Role
from tests.crash.harness.judging import Judge
from tests.crash.harness.member import ProcessClient
from tests.crash.harness.plan import MINUTE_MS, NAMESPACE, Board, Plan
from txnlog.common.format_limits import MIN_GRACE_MS
from txnlog.engine.runtime import Clock
from txnlog.fold.state import State
from txnlog.format import keys
from txnlog.log.follower import Follower
from txnlog.testing import operations as of
from txnlog.testing.facts import Facts, asked, result_of

_DRAINED_AT_ONCE = 1_000


def clean(plan: Plan, board: Board) -> int:
    """Nobody is at work any more: after two nights a vacuum leaves what committed readers need, and no more.

    After the first one it ends what was left open; what it ended then is garbage after the second.
    """
    client = ProcessClient(plan, "clean", plan.random("clean"))
    with txnlog.open(plan.root, NAMESPACE, storage_options=plan.options, clock=board) as ns:
        for _ in range(2):
            board.pass_time(2 * 60 * MINUTE_MS)
            client.call(
                "vacuum",
                partial(ns.vacuum, retain_ms=0, allow_short_retention=True, grace_ms=MIN_GRACE_MS),
                lambda done: {"oldest_readable": done.oldest_readable},
            )
    return 0


def drain(plan: Plan, clock: Clock) -> int:
    """Fresh consumers take what nobody took: everything that was not acknowledged comes, and nothing else."""
    client = ProcessClient(plan, "drain", plan.random("drain"))
    with txnlog.open(plan.root, NAMESPACE, storage_options=plan.options, clock=clock) as ns:
        for name, kind in SUBSCRIPTIONS.items():
            consumer = consumer_of(client, ns, Role(name, kind))
            consumer.reopen()
            # The first call waits for the lease of whoever was active on Failover.
            messages = consumer.receive(_DRAINED_AT_ONCE, 4 * LEASE_MS)
            while len(messages):
                consumer.acknowledge(None, messages)
                messages = consumer.receive(_DRAINED_AT_ONCE)
            consumer.close()
    return 0


def main(plan: Plan) -> int:
    """Read and judge; the findings and figures are in ``found.json``."""
    with txnlog.open(plan.root, NAMESPACE, mode="r", storage_options=plan.options) as ns:
        judge = Judge(plan, ns)
        judge.read_everything([("orders", name) for name in SUBSCRIPTIONS], (DEAD_LETTERS, "shared"))
        for number in judge.zero.transactions:
            judge.problem("liveness", f"the transaction {number} stays open")
        for name in SUBSCRIPTIONS:
            if pending := sum(item.pending for item in ns.subscription("orders", name).cursors):
                judge.problem("liveness", f"{name}: {pending} messages are pending, and nobody is left")
        judge.report(
            lambda facts: {**figures(facts), **judge.together}, stray_files(ns._connection.follower, judge.zero)
        )
    return 0


def stray_files(follower: Follower, state: State) -> Iterator[str]:
    """Nobody is at work and a vacuum was there: the files are those that the log shows as visible.

    Of signs of life there are those of the newest consumers, of mailboxes those of writers that could go on.
    """
    for topic in state.topics.values():
        needed = {
            keys.segment_key(topic.folder, record.number, record.file)
            for record in state.segments.values()
            if record.topic == topic.id and record.state == "visible"
        }
        for info in follower.log.store.list(keys.segments_prefix(topic.folder)):
            if info.key not in needed:
                yield f"{info.key} is on the store, and nobody needs it"
    for info in follower.log.store.list(keys.HEARTBEAT_FOLDER):
        key = keys.parse_key(info.key)
        if isinstance(key, keys.HeartbeatKey):
            record = state.subscriptions.get(key.subscription)
            if record is None or key.epoch != record.epoch:
                yield f"{info.key} is on the store, and nobody needs it"
    writers = {block.writer for block in state.blocks.values()}
    for info in follower.log.store.list(keys.PROPOSAL_FOLDER):
        key = keys.parse_key(info.key)
        if isinstance(key, keys.MailboxKey) and key.writer is not None and key.writer not in writers:
            yield f"{info.key} is on the store, and nobody needs it"


def figures(facts: Facts) -> dict[str, int]:
    """What there was to check of consumers and sequences."""
    consumed: Counter[str] = Counter()
    for unit in facts.transactions.values():
        if unit.runs:
            for item in (asked(op, of.Acknowledge) for op in unit.acknowledges):
                consumed[SUBSCRIPTIONS[item.subscription]] += sum(found.end - found.start for found in item.ranges)
    plain = [asked(op, of.Acknowledge) for op in facts.ops("acknowledge") if asked(op, of.Acknowledge).txn is None]
    produced = [asked(op, of.Produce) for unit in facts.units if unit.runs for op in unit.produces]
    return {
        "sequenced rows": sum(len(item.values) for item in produced if item.sequence is not None),
        "consumed": consumed.total(),
        **{f"consumed, {kind}": consumed[kind] for kind in sorted(set(SUBSCRIPTIONS.values()))},
        "dead letters": len(result_of(facts.final, of.FinalState).dead) if facts.final is not None else 0,
        "drained": sum(found.end - found.start for item in plain for found in item.ranges),
    }
