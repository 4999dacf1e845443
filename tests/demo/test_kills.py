"""Kills happen where and when the plan says, for real, and nowhere else."""

from __future__ import annotations

import signal
import sys
import textwrap

import pyarrow as pa
import pytest

import txnlog
from examples.demo.kills import Kill, KillStore, KillSwitch, Place, batches_for, kill_plan
from examples.demo.runs import DemoFailed, run_with_kills
from txnlog.store import MemoryStore


@pytest.mark.parametrize("per_place", [0, 1, 2, 5, 9])
def test_a_plan_kills_at_every_place_as_often_and_never_twice_in_a_batch(per_place):
    batches = batches_for(per_place)
    plan = kill_plan(per_place, batches)
    assert {place: sum(kill.place is place for kill in plan) for place in Place} == dict.fromkeys(Place, per_place)
    numbers = [kill.batch for kill in plan]
    assert numbers == sorted(set(numbers))
    assert all(0 < number < batches - 1 for number in numbers)


def test_a_plan_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="need 17 batches"):
        kill_plan(5, 12)


def test_a_kill_is_text_and_back():
    kill = Kill(Place.BEFORE_ENTRY, 7)
    assert Kill.parse(str(kill)) == kill
    with pytest.raises(ValueError, match="nowhere"):
        Kill.parse("nowhere:1")


class Dead(Exception):
    """Stands for SIGKILL where a test must live on."""


def die():
    raise Dead


def test_a_switch_ends_the_process_at_its_place_of_its_batch_only(capfd):
    switch = KillSwitch(Kill(Place.BEFORE_DATA, 1), die)
    switch.reached(Place.BEFORE_DATA)
    switch.enter(0)
    switch.reached(Place.BEFORE_DATA)
    switch.enter(1)
    switch.reached(Place.BEFORE_ENTRY)
    with pytest.raises(Dead):
        switch.reached(Place.BEFORE_DATA)
    assert '"event": "kill"' in capfd.readouterr().out


def with_a_topic(switch):
    store = MemoryStore()
    with txnlog.open("memory://kills", "sales", create=True, store=store) as ns:
        ns.create_topic("orders", pa.schema([("id", pa.int64())]))
    return store, txnlog.open("memory://kills", "sales", store=KillStore(store, switch))


@pytest.mark.parametrize(
    ("place", "visible"), [(Place.BEFORE_ENTRY, 0), (Place.BEFORE_SPARK, 1)], ids=["before-entry", "before-spark"]
)
def test_the_store_knows_the_instants_around_the_entry_of_a_commit(place, visible, capfd):
    places = []
    switch = KillSwitch(Kill(place, 0), lambda: places.append(capfd.readouterr().out))
    store, ns = with_a_topic(switch)
    with ns:
        switch.enter(0)
        ns.create_topic("other", pa.schema([("id", pa.int64())]))
        assert places == []
        counts = []
        switch._die = lambda: counts.append(rows_of(store))
        ns.produce("orders", [{"id": 1}])
    assert counts == [visible]


def rows_of(store):
    with txnlog.open("memory://kills", "sales", mode="r", store=store) as ns:
        return ns.snapshot().read("orders").num_rows


PIPELINE = """
    import argparse, pathlib
    from examples.demo.kills import Kill, KillSwitch, Place, say
    parser = argparse.ArgumentParser()
    parser.add_argument("done", type=pathlib.Path)
    parser.add_argument("--kill", type=Kill.parse)
    options = parser.parse_args()
    switch = KillSwitch(options.kill)
    for batch in range(len(list(options.done.iterdir())), 6):
        switch.enter(batch)
        switch.reached(Place.BEFORE_DATA)
        switch.reached(Place.BEFORE_ENTRY)
        (options.done / str(batch)).touch()
        switch.reached(Place.BEFORE_SPARK)
        say("batch", batch=batch)
"""


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """A pipeline without Spark, as a module of its own; gives its name and the folder of its batches."""

    def make(source):
        (tmp_path / "small_pipeline.py").write_text(textwrap.dedent(source))
        (tmp_path / "done").mkdir()
        monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
        return "small_pipeline", tmp_path / "done"

    return make


def test_a_pipeline_is_killed_for_real_and_started_again_until_it_is_done(pipeline, tmp_path):
    module, done = pipeline(PIPELINE)
    plan = kill_plan(1, 6)
    events: list[dict] = []
    deaths = run_with_kills(module, [str(done)], plan, tmp_path / "log", events.append)
    assert [death.kill for death in deaths] == plan
    assert sorted(path.name for path in done.iterdir()) == [str(number) for number in range(6)]
    assert [event["event"] for event in events].count("kill") == 3


@pytest.mark.parametrize(
    ("source", "plan", "message"),
    [
        ("raise SystemExit(7)", [], "exit code 7"),
        ("pass", [Kill(Place.BEFORE_DATA, 0)], "was to be killed at before-data:0"),
        ("import os; os.kill(os.getpid(), 9)", [Kill(Place.BEFORE_DATA, 0)], f"exit code -{signal.SIGKILL.value}"),
    ],
    ids=["failed", "not killed", "killed by another"],
)
def test_a_process_that_ends_otherwise_than_planned_fails_the_demo(pipeline, tmp_path, source, plan, message):
    module, done = pipeline(source)
    with pytest.raises(DemoFailed, match=message):
        run_with_kills(module, [str(done)], plan, tmp_path / "log", lambda _event: None)
