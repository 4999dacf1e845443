"""A draft against a model of dictionaries: reads through, rolls back, merges."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from txnlog.fold.draft_tables import DraftTable, rollback
from txnlog.fold.state import Head, State, Unclaimed

keys = st.integers(0, 5)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, st.integers(0, 9)),
        st.tuples(st.just("remove"), keys, st.just(0)),
        st.tuples(st.just("savepoint"), st.just(0), st.just(0)),
        st.tuples(st.just("rollback"), st.just(0), st.just(0)),
        st.tuples(st.just("merge"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(st.dictionaries(keys, st.integers(0, 9)), steps)
def test_a_draft_behaves_like_a_dictionary_that_can_go_back(base, todo):
    journal: list[tuple[dict[Any, Any], Any, Any]] = []
    stored = dict(base)
    table: DraftTable[int, int] = DraftTable(stored, journal)
    model = dict(base)
    marks: list[tuple[int, dict[int, int]]] = []
    for step, key, value in todo:
        before = dict(stored)
        if step == "put":
            table.put(key, value)
            model[key] = value
        elif step == "remove":
            table.remove(key)
            model.pop(key, None)
        elif step == "savepoint":
            marks.append((len(journal), dict(model)))
        elif step == "rollback" and marks:
            mark, model = marks.pop()
            rollback(journal, mark)
        elif step == "merge":
            table.merge()
            journal.clear()
            marks.clear()
            before = dict(model)
        assert stored == before, "only a merge changes what is stored"
        assert dict(table.items()) == model
        assert len(table) == len(model)
        assert [table.get(k) for k in range(6)] == [model.get(k) for k in range(6)]
        assert [k in table for k in range(6)] == [k in model for k in range(6)]


def test_a_value_that_is_zero_is_there():
    table: DraftTable[str, int] = DraftTable({"a": 0}, [])
    assert "a" in table
    assert table.get("a") == 0


def test_a_rollback_undoes_every_table_of_a_draft_in_one_go():
    state = State()
    draft = state.draft()
    draft.ends.put((1, 0), 5)
    mark = draft.savepoint()
    draft.ends.put((1, 0), 9)
    draft.topic_names.put("orders", 1)
    draft.unclaimed.put((7, 0), Unclaimed(1, 0, 3))
    draft.head = Head(version=4)
    draft.rollback(mark)
    assert draft.ends.get((1, 0)) == 5
    assert "orders" not in draft.topic_names
    assert draft.unclaimed.get((7, 0)) is None
    assert draft.head == Head()


def test_a_merged_draft_is_empty_and_may_go_on():
    state = State()
    draft = state.draft()
    draft.ends.put((1, 0), 5)
    draft.unclaimed.put((7, 0), Unclaimed(1, 0, 3))
    draft.merge()
    assert state.ends == {(1, 0): 5}
    assert draft.ends.changed() == {}
    assert draft.unclaimed.get((7, 0)) is None, "claims belong to one entry"
    draft.ends.put((1, 0), 6)
    draft.merge()
    assert state.ends == {(1, 0): 6}


def test_a_copy_is_another_state():
    state = State()
    state.ends[1, 0] = 5
    other = state.copy()
    other.ends[1, 0] = 6
    assert state.ends == {(1, 0): 5}
