"""Every store call of small scenarios, with every fate that it may have.

A run without faults counts the calls of a scenario. Then each of them fails before it was applied, or after, or is
applied late or twice, for itself or with all that follow until the client hears of an error; the client repeats what
may be repeated, or dies. In the end a client without faults asks for outcomes and reads everything, before and after
what is still late has arrived.
"""

from __future__ import annotations

import importlib
import logging
from functools import cache
from pathlib import Path

import pytest

from tests.effort import every
from tests.sim.fates import Fate, FateStore, fates_of
from tests.sim.scenario import Dead, Run, Scenario
from tests.sim.scopes import check_folds, copied, founded, has, new_store, open_client, outcome, rows
from txnlog.api.namespace import Namespace
from txnlog.log import root_log
from txnlog.store import MemoryStore
from txnlog.store.identity import identity_of
from txnlog.store.probe import Passed
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

pytest.register_assert_rewrite("tests.sim.scenarios")
MODULES = [
    importlib.import_module(f"tests.sim.scenarios.{file.stem}")
    for file in sorted(Path(__file__).with_name("scenarios").glob("*.py"))
]
SCENARIOS = {
    item.script.__name__: item for module in MODULES for item in vars(module).values() if isinstance(item, Scenario)
}


@cache
def _prepared(name: str) -> MemoryStore:
    found, clock = SCENARIOS[name], ManualClock(START_MS)
    return new_store(clock) if found.prepare is None else founded(found.prepare, clock)


def play(name: str, at: int | None = None, fate: Fate | None = None) -> list[tuple[str, str]]:
    """Run a scenario and judge it; the calls of its client."""
    found = SCENARIOS[name]
    clock = ManualClock(START_MS + 1_000 + found.later_ms)
    honest = copied(_prepared(name))
    store = FateStore(honest, at, fate)
    run = Run(store, clock, fate)
    if found.opens:
        run.ns = open_client(store, "client", clock)
        run.ns._connection.appender.create_attempts = 2
    store.counting = True
    died = False
    try:
        found.script(run)
    except Dead:
        died = True
    calls, store.counting, store.down = store.calls, False, False
    if not died:
        run.does(lambda: run.ns.produce("probes", rows(100)), run.expect(has(probes=(100,))), repeats=False)
        assert run.promises[-1].told == "done", "the handle is not usable any more"
    store.land("next")
    store.land("end")
    if died and "create" in name:
        open_client(honest, "heir", clock, create=True)
    _judge(run, honest, clock, [] if died else [run.ns])
    return calls


def _judge(run: Run, honest: MemoryStore, clock: ManualClock, clients: list[Namespace]) -> None:
    fresh = open_client(honest, "fresh", clock)
    for check in run.checks:
        check(fresh)
    ids = {text for promise in run.promises for text in promise.txn_ids}
    outcomes = {text: outcome(fresh, text) for text in sorted(ids)}
    fresh.producer("asker")  # a negative answer needs an append: what was under way has lost its slot now
    there = [promise.effect(fresh) for promise in run.promises]
    for promise, found in zip(run.promises, there, strict=True):
        states = {outcomes[text] for text in promise.txn_ids}
        if promise.told == "done":
            assert found, "acknowledged, and not there"
        elif promise.told != "unknown":
            assert not found, f"there, but the client was told {promise.told}"
        if states and promise.told != "refused":
            assert found == ("COMMITTED" in states), f"outcome {states}, there: {found}"
    clients.append(fresh)
    if run.store.land("asked"):
        last = open_client(honest, "last", clock)
        assert {text: outcome(last, text) for text in outcomes} == outcomes, "an outcome changed"
        assert [promise.effect(last) for promise in run.promises] == there, "what was late changed the answer"
        clients.append(last)
    check_folds(clients, honest)


@pytest.fixture(autouse=True)
def _no_probe(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="txnlog")
    monkeypatch.setattr(root_log, "probe", lambda store, *_: Passed(identity_of(store), 1, 1, 0))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_keeps_its_promises_whatever_becomes_of_any_call(name: str):
    calls = play(name)
    failed = []
    first, step = every(4)
    for at, (call, key) in list(enumerate(calls))[first::step]:
        for fate in fates_of(call):
            try:
                play(name, at, fate)
            except Exception as error:  # noqa: BLE001 - shown with what it takes to see it again
                failed.append(f"{name}, call {at} ({call} {key}), {fate.name}: {type(error).__name__}: {error}")
    assert not failed, "\n".join(failed)
