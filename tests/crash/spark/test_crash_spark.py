"""A few kills of Spark, and whether the checks of ``make crash-spark`` find what is wrong.

``TXNLOG_CRASH_SEED`` repeats the choices of a run, not what the machine makes of them.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter

import pytest

from examples.demo.kills import Kill, Place
from tests.crash.spark import run
from tests.crash.spark.deaths import Manner, death_of
from tests.crash.spark.history import _ingested, differences, disagreements
from tests.crash.spark.orders import Blow, Board, Moment, Order, orders_for
from tests.crash.spark.workload import (
    COUNTS,
    EVEN,
    INGESTED,
    ODD,
    POSITION,
    REAL,
    ROWS,
    Engine,
    counts_of,
    expected,
    order,
)
from tests.effort import LONG
from txnlog.fold.state import State, StreamRecord


@pytest.fixture
def seed(monkeypatch: pytest.MonkeyPatch) -> int:
    """Of a run: a new one, unless it is to be repeated."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # set back afterwards
    run.find_project()
    found = int(os.environ.get("TXNLOG_CRASH_SEED") or secrets.randbits(32))
    print(f"seed {found}", flush=True)
    return found


# --- kills ------------------------------------------------------------------------------------------------------------


DEATHS = [
    pytest.param(Engine.SINK, Kill(Place.BEFORE_ENTRY, 1), id="sink"),
    pytest.param(Engine.PROCESS, Kill(Place.BEFORE_SPARK, 1), id="process"),
    pytest.param(Engine.UPDATE, Kill(Place.BEFORE_SPARK, 1), id="update"),
    pytest.param(Engine.COMPLETE, Kill(Place.BEFORE_SPARK, 1), id="complete"),
    pytest.param(Engine.INGEST, Kill(Place.BEFORE_SPARK, 1), id="ingest"),
]


@pytest.mark.timeout(600)  # four drivers are started: half a minute, unless the machine does much else
@pytest.mark.parametrize(("engine", "kill"), DEATHS if LONG else DEATHS[:1])
def test_a_driver_is_killed_and_every_version_is_that_of_an_undisturbed_run(tmp_path, seed, engine, kill):
    outcome = run.with_dead_drivers(tmp_path, engine, seed, [kill], batches=5)
    assert outcome.findings == []
    assert outcome.figures["kills"] == outcome.figures[kill.place.value] == 1
    assert outcome.figures["drivers"] == 2
    assert outcome.history.steps == expected(engine, 5)
    assert outcome.history.versions >= 5


def test_an_acknowledgement_outside_of_the_transaction_is_found(tmp_path, seed):
    kills = [Kill(Place.BEFORE_DATA, 1), Kill(Place.BEFORE_SPARK, 2)]
    outcome = run.with_dead_drivers(tmp_path, Engine.CARELESS, seed, kills, batches=5)
    assert outcome.figures["kills"] == 2
    text = "\n".join(outcome.findings)
    assert "orders took effect twice" in text
    assert "orders took effect and are not acknowledged" in text
    assert "instead of" in text


def test_a_driver_that_does_not_die_as_planned_is_a_finding(tmp_path, seed):
    outcome = run.with_dead_drivers(tmp_path, Engine.CARELESS, seed, [Kill(Place.BEFORE_DATA, 9)], batches=3)
    assert "was to be killed at before-data:9 and ended with exit code 0" in outcome.findings[0]
    assert run.missed([outcome], drivers=1, executors=0) == ["kills: 0, wanted were 1"]


# --- what the checks see ----------------------------------------------------------------------------------------------


def shown(numbers, counts=None):
    """A version's rows, as if these orders had taken effect, and these counts."""
    rows: dict[str, Counter] = {topic: Counter() for topic in (EVEN, ODD)}
    for number in numbers:
        rows[ODD if number % 2 else EVEN][tuple(order(number).values())] += 1
    return rows if counts is None else rows | {COUNTS: counts}


@pytest.mark.parametrize(
    ("rows", "acknowledged", "message"),
    [
        (shown([0, 1, 2, 2]), {0, 1, 2}, "orders took effect twice: 2"),
        (shown([0, 1]), {0, 1, 2}, "orders are acknowledged and took no effect: 2"),
        (shown([0, 1, 2]), {0, 1}, "orders took effect and are not acknowledged: 2"),
        (shown(range(20), Engine.PROCESS.counts_shown(2)), {*range(20)}, "the counts are "),
        (shown(range(19), Engine.PROCESS.counts_shown(0)), {*range(19)}, "other orders are acknowledged than those of"),
    ],
    ids=["twice", "lost", "early", "torn", "part"],
)
def test_what_a_version_shows_that_it_does_not_acknowledge_is_found(rows, acknowledged, message):
    assert any(text.startswith(message) for text in disagreements(Engine.PROCESS, rows, acknowledged))


@pytest.mark.parametrize(
    ("ids", "position", "message"),
    [([0, 1, 1], 2, "orders took effect twice: 1"), ([0], 2, "orders are acknowledged and took no effect: 1")],
)
def test_an_ingestion_whose_position_does_not_fit_its_rows_is_found(ids, position, message):
    state = State()
    state.streams[POSITION] = StreamRecord(POSITION, POSITION, position, "", 7, 3)
    rows = {INGESTED: Counter(tuple(order(number).values()) for number in ids)}
    assert disagreements(Engine.INGEST, rows, _ingested(state)) == [message]
    assert disagreements(Engine.INGEST, {INGESTED: Counter()}, _ingested(State())) == []


def test_a_version_whose_rows_are_its_acknowledged_orders_is_fine():
    assert disagreements(Engine.STREAM, shown(range(40), Engine.STREAM.counts_shown(2)), {*range(40)}) == []
    assert disagreements(Engine.SINK, shown([]), set()) == []


def test_each_output_mode_shows_other_counts():
    both = {*range(2 * ROWS)}
    first, second, total = (
        Counter((account, *sums) for account, sums in counts_of(numbers).items())
        for numbers in (range(ROWS), range(ROWS, 2 * ROWS), both)
    )
    wanted = {
        Engine.STREAM: first + second,
        Engine.UPDATE: first + total,
        Engine.COMPLETE: total,
        Engine.OVERWRITE: second,
    }
    for engine, counts in wanted.items():
        rows = {COUNTS: counts} if engine.outputs == (COUNTS,) else shown(both, counts)
        assert disagreements(engine, rows, both) == []
        for other in wanted.keys() - {engine}:
            assert disagreements(engine, rows | {COUNTS: wanted[other]}, both) != []


def test_histories_that_differ_in_a_batch_or_in_length_are_distinguished():
    steps = expected(Engine.STREAM, 3)
    assert differences(steps, steps) == []
    assert differences(steps[:2], steps) == ["2 batches took effect instead of 3"]
    assert differences([steps[0], steps[2]], steps)[0].startswith("batch 1 is orders 40, 41, 42, 43, 44 and 15 more")


def test_too_few_kills_at_a_place_are_a_finding_where_there_are_many():
    outcome = run.Outcome(Engine.SINK, "drivers")
    outcome.figures.update({"kills": 100, "before-data": 9, "before-entry": 50, "before-spark": 41, "zombies": 3})
    outcome.figures.update({"THERE": 70, "LATER": 30})
    assert run.missed([outcome], drivers=100, executors=0) == ["before-data: 9, wanted were 10"]
    assert run.missed([outcome], drivers=10, executors=1) == ["executors: 0, wanted were 1"]


def test_what_spark_wrote_down_is_counted(tmp_path):
    events = [
        {"Event": "SparkListenerTaskStart", "Task Info": {"Speculative": True}},
        {"Event": "SparkListenerTaskStart", "Task Info": {"Speculative": False}},
        {"Event": "SparkListenerTaskEnd", "Task End Reason": {"Reason": "Success"}},
        {"Event": "SparkListenerTaskEnd", "Task End Reason": {"Reason": "TaskKilled"}},
        {"Event": "SparkListenerExecutorRemoved"},
    ]
    (tmp_path / "app").write_text("\n".join(map(json.dumps, events)))
    assert run.told_by_spark(tmp_path) == {"speculative": 1, "attempts lost": 1, "executors lost": 1}


# --- what is decided beforehand ---------------------------------------------------------------------------------------


def test_a_seed_decides_how_drivers_die_and_what_executors_suffer():
    kills = [Kill(place, batch) for place in Place for batch in range(100)]
    for engine in REAL:
        deaths = [death_of(3, engine, kill) for kill in kills]
        assert deaths == [death_of(3, engine, kill) for kill in kills]
        assert deaths != [death_of(4, engine, kill) for kill in kills]
        manners = {*Manner} if engine.is_sink else {Manner.THERE, Manner.LATER}
        assert {death.manner for death in deaths} == manners
    wanted = {Blow.EXECUTOR: 20, Blow.EXECUTOR_LATER: 4, Blow.WORKER: 5, Blow.SLOW: 7}
    orders = orders_for("3", wanted)
    assert orders == orders_for("3", wanted) != orders_for("4", wanted)
    assert Counter(item.blow for item in orders) == wanted
    assert [Order.parse(f"{item}-stage3") for item in orders] == orders


def test_an_order_is_carried_out_once_at_its_moment_and_a_stage_suffers_one(tmp_path):
    board = Board(tmp_path)
    board.write([Order(0, Moment.AFTER_FILE, Blow.SLOW, 5), Order(1, Moment.AFTER_FILE, Blow.WORKER, 0)])
    taken = [board.take(moment, stage, 1) for stage in range(20) for _ in range(3) for moment in Moment]
    found = [item for item in taken if item is not None]
    assert (
        found
        == board.done()
        == [Order(0, Moment.AFTER_FILE, Blow.SLOW, 5), Order(1, Moment.AFTER_FILE, Blow.WORKER, 0)]
    )
    positions = [taken.index(item) for item in found]
    assert positions[1] - positions[0] > 4, "another stage"
