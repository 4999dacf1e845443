"""The simulation: the same seed is the same run, good clients pass, and every planted bug is found."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.effort import tries
from tests.sim.planted import ALARM, Mutant, run_planted, schedules_until_found
from tests.sim.planted_all import ALL_MUTANTS
from tests.sim.run import BESIDES, failed, kept_seeds, what_runs
from txnlog.errors import Durable, StoreError
from txnlog.format import keys
from txnlog.maintenance import compaction, rewriting
from txnlog.results import Committed
from txnlog.store.wrappers import StoreCall
from txnlog.testing import runner
from txnlog.testing.__main__ import main
from txnlog.testing.actors import ACTOR_KINDS
from txnlog.testing.actors.ending import complete, end_somehow, produce_in, table_of
from txnlog.testing.actors.failover import Standby
from txnlog.testing.actors.writer import Writer
from txnlog.testing.client import Client, live, reported_produce
from txnlog.testing.faults import Faults
from txnlog.testing.operations import Produce, Receive
from txnlog.testing.runner import Tally, run_many, run_seeds
from txnlog.testing.simulated_store import Request
from txnlog.testing.simulation import Failure, Report, Simulation
from txnlog.testing.workloads import Workload
from txnlog.testing.world import FAILOVER, NAMESPACE, SCHEMA

ROOT = Path(__file__).parent.parent.parent
HASHES = """
from txnlog.testing.simulation import Simulation
for seed in range(12):
    print(Simulation(seed).run().trace_hash)
for workload in ("maintained", "crowded", "retained", "restored", "compacted", "truncated"):
    print(Simulation(39356420039, workload=workload).run().trace_hash)
"""


def trace_hashes(hash_seed: str) -> list[str]:
    """Of twelve seeds, and of one with each workload, as another process sees them."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", HASHES]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    return run.stdout.split()


def test_one_seed_is_one_run_in_any_process_under_any_hash_seed():
    first = trace_hashes("1")
    assert len(set(first)) == 12 + 6
    assert trace_hashes("4242") == first
    assert [Simulation(seed).run().trace_hash for seed in range(12)] == first[:12]


@pytest.fixture(scope="module")
def some_runs() -> Tally:
    return run_seeds(range(10_000, 10_000 + tries(100, 50)))


def test_a_good_client_passes(some_runs: Tally):
    assert some_runs.failures == {}


def test_schedules_are_long_and_faulty_enough(some_runs: Tally):
    middle = some_runs.schedules // 2
    assert sorted(some_runs.requests)[middle] >= 200
    assert sorted(some_runs.actors)[middle] >= 3
    assert sorted(some_runs.faults)[middle] >= 3


def test_many_situations_are_reached_soon(some_runs: Tally):
    reached = [name for name in runner.REACHED if some_runs.labels[name]]
    assert len(reached) >= 40


def test_seeds_that_found_something_once_pass():
    assert run_seeds(kept_seeds()).failures == {}


@pytest.mark.some(8)
@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_planted_bug_replaces_is_called_as_it_is_replaced(mutant: Mutant):
    """Else it is the replacement that is found."""
    run_planted(mutant, range(6))


@pytest.mark.some(1)
@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant):
    assert schedules_until_found(mutant) is not None


def test_the_page_says_how_many_bugs_and_situations_there_are():
    text = " ".join((ROOT / "docs" / "testing.md").read_text(encoding="utf-8").split())
    files = (
        "`tests/sim/planted.py`, `planted_proposals.py`, `planted_retention.py`, `planted_holes.py`, "
        "`planted_backups.py`, `planted_compaction.py` and `planted_truncation.py`"
    )
    assert f"each of the {len(ALL_MUTANTS)} bugs that {files} plant" in text
    assert f"one of {len(runner.REACHED)} named situations was never reached" in text


def test_a_planted_bug_that_is_not_found_fails_make_sim():
    good = {ALARM.name: 1, "another": 7}
    fine = Tally()
    crowded = BESIDES["crowded"].reached
    some = [(fine, crowded)]
    assert not failed(fine, good, fine, some)
    assert failed(fine, good | {"another": None}, fine, some)
    assert failed(fine, good | {ALARM.name: 2}, fine, some)
    bad = Tally(failures={3: [Failure("state", "planted")]})
    long = Tally(schedules=runner.LONG)
    assert failed(bad, good, fine, some)
    for wrong in (bad, long):
        assert failed(fine, good, wrong, some)
        for besides in BESIDES.values():
            assert failed(fine, good, fine, [*some, (wrong, besides.reached)])
    full = Tally(schedules=runner.LONG, labels=Counter(crowded))
    assert not failed(fine, good, fine, [(full, crowded)])


@pytest.fixture(scope="module")
def maintained_runs() -> Tally:
    return run_seeds(range(20_000, 20_000 + tries(80, 40)), make=partial(Simulation, workload="maintained"))


def test_a_good_client_passes_next_to_one_who_merges_and_alters(maintained_runs: Tally):
    assert maintained_runs.failures == {}
    assert maintained_runs.labels["segments were merged"] >= 10
    assert maintained_runs.labels["a topic was altered"] >= 10


@pytest.fixture(scope="module")
def retained_runs() -> Tally:
    return run_seeds(range(40_000, 40_000 + tries(90, 30)), make=partial(Simulation, workload="retained"))


def test_a_good_client_passes_next_to_one_who_deletes_messages(retained_runs: Tally):
    assert retained_runs.failures == {}
    assert retained_runs.labels["messages were deleted by hand"] >= 10
    assert retained_runs.labels["messages were deleted by retention"] >= 2


@pytest.fixture(scope="module")
def expired_runs() -> Tally:
    return run_seeds(range(50_000, 50_000 + tries(90, 30)), make=partial(Simulation, workload="expired"))


def test_a_good_client_passes_next_to_one_who_lets_messages_expire(expired_runs: Tally):
    assert expired_runs.failures == {}
    assert expired_runs.labels["messages expired"] >= 2


@pytest.fixture(scope="module")
def restored_runs() -> Tally:
    return run_seeds(range(60_000, 60_000 + tries(15, 6)), make=partial(Simulation, workload="restored"))


def test_backups_are_restored_whatever_happens_meanwhile(restored_runs: Tally):
    assert restored_runs.failures == {}
    assert restored_runs.labels["a backup was continued"] >= 6
    assert restored_runs.labels["a namespace was restored"] >= 6


@pytest.fixture(scope="module")
def compacted_runs() -> Tally:
    return run_seeds(range(70_000, 70_000 + tries(30, 10)), make=partial(Simulation, workload="compacted"))


def test_a_good_client_passes_next_to_one_who_compacts(compacted_runs: Tally):
    assert compacted_runs.failures == {}
    assert compacted_runs.labels["messages were compacted"] >= 3
    assert compacted_runs.labels["settings of compaction were altered"] >= 2


@pytest.fixture(scope="module")
def truncated_runs() -> Tally:
    return run_seeds(range(80_000, 80_000 + tries(40, 10)), make=partial(Simulation, workload="truncated"))


def test_a_good_client_passes_next_to_one_who_replaces_topics(truncated_runs: Tally):
    assert truncated_runs.failures == {}
    assert truncated_runs.labels["a topic was truncated"] >= 3


def steps() -> tuple[object, object]:
    """How much of a compaction goes at once."""
    return compaction._MOST_KEYS, vars(rewriting)["MOST_REPLACED"]


def test_small_steps_end_with_their_run():
    before = steps()
    seen: set[object] = set()

    def look(_client: Client) -> None:
        seen.add(steps())

    for seed in range(9):
        Simulation(seed, kinds={"look": look}, faults=Faults(), workload="compacted").run()
    assert (len(seen), steps()) == (9, before)


@pytest.fixture(scope="module")
def crowded_runs() -> Tally:
    return run_seeds(range(30_000, 30_000 + tries(120, 40)), make=partial(Simulation, workload="crowded"))


def test_a_good_client_passes_in_a_crowd_that_proposes(crowded_runs: Tally):
    assert crowded_runs.failures == {}
    assert crowded_runs.labels["a proposal was put"] >= 20
    assert crowded_runs.labels["a commit was brought by another writer"] >= 10
    assert crowded_runs.labels["a proposal was made void"] >= 10


def test_a_release_by_messages_that_were_received_again_since_releases_nothing():
    """The checker took it for one: who received a message last has it, whatever was received of it before."""
    assert run_seeds([483169577804], make=partial(Simulation, workload="maintained")).failures == {}


def test_a_seed_does_what_it_did_before_there_was_one_who_merges():
    """Seeds that found something once are worth nothing where they draw another actor."""
    for seed in range(5):
        plain, more = Simulation(seed).run(), Simulation(seed, workload="maintained").run()
        assert not any(name.startswith("optimizer") for name in plain.actors)
        assert more.actors[: len(plain.actors)] == plain.actors
        assert more.actors[len(plain.actors)].startswith("optimizer")
    assert "optimizer" not in ACTOR_KINDS


def test_the_alarm_rings_in_every_run():
    with pytest.MonkeyPatch.context() as patch:
        ALARM.plant(patch)
        assert len(run_seeds(range(20), make=ALARM.simulation).failures) == 20


def test_an_error_that_is_none_of_ours_is_a_failure():
    def broken(client: Client) -> None:
        client.open()
        raise KeyError("a bug")

    report = Simulation(1, kinds={"writer": broken}, faults=Faults()).run()
    assert {failure.kind for failure in report.failures} == {"crash"}
    assert "KeyError" in str(report.failures[0])


def test_an_actor_that_never_ends_is_a_failure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("txnlog.testing.simulation.MOST_EVENTS", 500)

    def endless(client: Client) -> None:
        while True:
            client.sleep(1)

    report = Simulation(1, kinds={"writer": endless}, faults=Faults()).run()
    assert [failure.kind for failure in report.failures] == ["liveness", "liveness"]


def test_users_bring_actors_of_their_own():
    seen: list[int] = []

    def mine(client: Client) -> None:
        ns = client.open()
        ns.produce("orders", [{"value": value} for value in client.world.values(2)], partition=0)
        seen.append(ns.snapshot().end_offsets("orders")[0])

    for seed in range(8):  # in some of them the actor is killed before it is done
        report = Simulation(
            seed, kinds={"mine": mine, **ACTOR_KINDS}, faults=Faults({"lost": 0.3, "delayed": 0.3})
        ).run()
        assert report.actors[0] == "mine0"
    assert seen


class Dropper(Writer):
    """A writer whose transactions write to a topic of their own too, which is dropped before they end."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, None)
        self.tokens: list[str] = []

    def step(self) -> None:
        client = self.client
        client.world.next_topic += 1
        name = f"extra{client.world.next_topic}"
        self.ns.create_topic(name, SCHEMA, if_not_exists=True)
        txn = self.begin()
        folder = client.folder(name)
        for topic in (name, "orders"):
            produce_in(client, txn, topic, 0, 1, **self.identity)
        if client.hits(0.3):
            txn.flush()
        if client.hits(0.7):
            client.call("prepare", txn.prepare, txn=str(txn.id))
            client.world.decisions[str(txn.id)] = True
            self.tokens.append(str(txn.id))
        client.call("drop_topic", lambda: self.ns.drop_topic(name), topic=folder)
        if txn.state != "PREPARED":
            end_somehow(client, self.ns, txn)
        elif client.hits(0.8):
            if client.hits(0.3):
                self.ns.checkpoint()
            complete(client, self.ns, client.chance.choice(self.tokens))


@pytest.mark.parametrize("refused", [False, True], ids=["produced", "refused"])
def test_the_history_has_the_topic_that_a_call_by_name_went_to(refused):
    """The topic is made again when the call was written down, and before it looks for the name."""
    seen = []

    def mine(client: Client) -> None:
        ns = client.open()
        ns.create_topic("extra", SCHEMA)

        def produce() -> Committed:
            ns.drop_topic("extra")
            ns.create_topic("extra", SCHEMA)
            done = ns.produce("extra", table_of((7_001,)), 0)
            if refused:
                raise StoreError("its answer got lost", durable=Durable.MAYBE)
            return done

        before = client.folder("extra")
        with contextlib.suppress(StoreError):
            client.produce(
                produce, partial(reported_produce, client), txn=None, topic="extra", partition=0, values=(7_001,)
            )
        seen.append((before, client.folder("extra")))

    report = Simulation(1, kinds={"mine": mine, **ACTOR_KINDS}, faults=Faults({})).run()
    (((before, after)),) = seen
    produced = (op.arguments for op in report.history.operations if isinstance(op.arguments, Produce))
    assert [item.topic for item in produced if item.values == (7_001,)] == [after]
    assert before == "extra" != after
    assert not report.failures


def test_everybody_hears_the_same_of_what_was_dropped_before_a_commit():
    def dropper(client: Client) -> None:
        role = Dropper(client)
        live(client, role.step, role.reopen)

    kinds = {"dropper": dropper, "resolver": ACTOR_KINDS["resolver"], "checkpointer": ACTOR_KINDS["checkpointer"]}
    told: Counter[str] = Counter()
    for seed in range(30):
        report = Simulation(seed, kinds=kinds).run()
        assert report.failures == [], seed
        told.update(report.labels)
    assert told["committed without what was dropped"] > 3
    assert told["completed without what was dropped"] > 9


def test_the_last_consumer_waits_for_another_lease_after_a_sign_of_life_that_landed_late():
    def silent(client: Client) -> None:
        ns = client.open()
        role = Standby(client, ns)
        role.reopen()
        role.receive(1)
        store, key = client.world.shared_store, keys.heartbeat_key(ns.subscription(*FAILOVER).id, role.shown_epoch())
        for number in client.world.values(1_000):  # a third of them within 100 s: the audit meets some
            store.send_late(Request(-number - 1, client.actor, StoreCall.PUT, f"{NAMESPACE}/{key}", b"%d" % number, ""))
        while not client.over():
            ns._connection.follower.refresh()

    report = Simulation(1, kinds={"writer": silent}, faults=Faults()).run()
    assert report.failures == []
    audited = [call.arguments for call in report.history.operations if call.actor == "auditor.0"]
    assert sum(isinstance(call, Receive) and call.subscription == FAILOVER[1] for call in audited) > 2


def test_a_run_without_faults_has_no_errors():
    for seed in range(3):
        report = Simulation(seed, faults=Faults()).run()
        assert report.failures == []
        errors = {operation.error for operation in report.history.operations} - {None}
        assert not errors & {"StoreError", "OutcomeUnknown", "CorruptionError", "ClockSkew"}


@pytest.mark.parametrize("workload", BESIDES)
def test_an_option_of_the_command_line_is_the_workload_of_its_name(workload: Workload):
    run = CliRunner().invoke(main, ["--replay", "5", f"--{workload}"])
    assert f"seed 5, trace {Simulation(5, workload=workload).run().trace_hash}\n" in run.output
    both = CliRunner().invoke(main, ["--replay", "5", *(f"--{name}" for name in BESIDES)])
    assert (both.exit_code, "give one of --maintained, --crowded, --retained" in both.output) == (2, True)


def test_the_command_line_counts_and_exits_with_zero():
    run = CliRunner().invoke(main, ["--schedules", "30", "--seed", "7"])
    assert run.exit_code == 0, run.output
    assert "schedules a second and core" in run.output
    assert "lost a race for a slot" in run.output


def test_the_command_line_replays_the_seed_of_the_environment():
    one, two = (
        CliRunner().invoke(main, ["--trace"], env={"TXNLOG_SIM_SEED": "3"}).output.partition("seed 3, trace ")
        for _ in range(2)
    )
    assert one[0] == two[0]
    assert one[2][:32] == two[2][:32]
    assert "faults" in one[2]


def test_the_command_line_exits_with_one_on_a_failure(monkeypatch: pytest.MonkeyPatch):
    def found(self: Simulation) -> Report:
        report = run(self)
        report.failures.append(Failure("state", "planted"))
        return report

    run = Simulation.run
    monkeypatch.setattr(Simulation, "run", found)
    result = CliRunner().invoke(main, ["--schedules", "1"])
    assert result.exit_code == 1
    assert f"{'schedules that failed':<28}{1:>10}\n" in result.output
    assert "TXNLOG_SIM_SEED=0 python -m txnlog.testing" in result.output


def test_a_long_run_that_reaches_too_little_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "LONG", 1)
    monkeypatch.setattr(runner, "REACHED", ("the end of the world",))
    result = CliRunner().invoke(main, ["--schedules", "1"])
    assert result.exit_code == 1
    assert "NEVER  the end of the world" in result.output


def test_two_processes_find_what_one_finds():
    one, two = run_many(50, 10), run_many(50, 10, jobs=2)
    assert sorted(one.requests) == sorted(two.requests)
    assert one.labels == two.labels


def test_parts_of_a_run_belong_together_whatever_the_comments_say():
    module = '"""Limits."""\n\nLIMIT = 3  # of a folder\n"""Of names."""\n'
    assert what_runs(module) == what_runs("LIMIT = 3\n")
    assert what_runs(module) != what_runs(module.replace("3", "4"))
