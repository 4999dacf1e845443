"""Whatever is tried, in whatever order: what must hold of a state holds after every entry."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.memory_log import SCHEMA, Log, tables_of
from tests.unit.action_strategies import KINDS, Palette, of_struct
from tests.unit.random_entries import Watcher, append, entries
from txnlog.errors import TxnLogError
from txnlog.fold.apply import apply, begin_entry, finish_entry
from txnlog.format.codec import decode_entry


@pytest.mark.clause(
    "P-26",
    "P-27",
    "P-40",
    "P-47",
    "P-55",
    "P-60",
    "P-72",
    "P-75",
    "P-85",
    "P-90",
    "P-93",
    "P-94",
    "P-98",
    "P-113",
    "P-128",
)
@settings(max_examples=tries(250, 50), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(entries)
def test_what_must_hold_holds_after_every_entry(todo):
    log = Log()
    log.topic("orders", 2)
    watcher = Watcher()
    for steps in todo:
        if not append(log, steps):
            continue
        entry = decode_entry(log.stored[-1], log.version)
        watcher.look(log.state, entry.actions)
    assert tables_of(log.replayed()) == tables_of(log.state)


FILES = [f"{number:032x}.parquet" for number in range(3)]
CLOSE = Palette(
    st.sampled_from(["orders", "billing", "loader", "a", "name", "crc32:00000000", "exclusive", *FILES]),
    lambda _: st.integers(0, 6) | st.sampled_from([256, 512, 1 << 62]),
    st.just(SCHEMA),
)
"""Few texts and small numbers, so that actions made at random name what there is."""


@pytest.mark.clause("P-138")
@settings(max_examples=tries(300, 50), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.one_of([of_struct(kind, CLOSE) for kind in KINDS]), max_size=6), max_size=12))
def test_any_action_that_can_be_written_is_accepted_or_refused_in_a_typed_way(todo):
    log = Log()
    log.produce(log.topic(partitions=3), {0: 4, 1: 2})
    log.subscription(1, type="shared")
    log.subscription(1, "audit")
    log.producer()
    for actions in todo:
        draft = log.state.draft()
        header = log.header()
        begin_entry(draft, header)
        for action in actions:
            mark = draft.savepoint()
            try:
                apply(draft, action, header)
            except TxnLogError:
                draft.rollback(mark)
        try:
            finish_entry(draft, f"{header.version:032x}")
        except TxnLogError:
            continue
        draft.merge()
    Watcher().look(log.state, ())
