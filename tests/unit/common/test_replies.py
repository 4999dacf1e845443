"""Errors are values: whoever knows more about a failed call raises another error, and the first one stays as it was."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable

import pytest

from txnlog import errors
from txnlog.errors import (
    AccessDenied,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    StoreError,
    TransactionAborted,
    TxnLogError,
)
from txnlog.replies import (
    IfUnknown,
    Replying,
    Rest,
    advising,
    after_writing,
    as_part_of,
    in_parts,
    not_sent,
    note_written,
    only_looking,
    refused_write,
    reworded,
    unknown_outcome,
)
from txnlog.sentences import Call, Words, up_to_last

KINDS = [getattr(errors, name) for name in errors.__all__ if name[0].isupper() and name != "Durable"]


def raised(error: TxnLogError) -> TxnLogError:
    """The error as a caller gets it: with a cause, a note and a traceback."""
    try:
        raise error from OSError("disk")
    except TxnLogError as caught:
        caught.add_note("a note")
        return caught


def _raise(error: TxnLogError) -> None:
    raise error


def through(context: Replying, error: TxnLogError) -> TxnLogError:
    """What comes out of the context where this error is raised in it."""
    with pytest.raises(TxnLogError) as caught:
        context(_raise)(error)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["message", "advice", "durable"])
def test_an_error_of_any_class_cannot_be_changed(kind: type[TxnLogError], name: str) -> None:
    error = kind("x")
    with pytest.raises(AttributeError):
        setattr(error, name, getattr(error, name))


@pytest.mark.parametrize("kind", KINDS)
def test_a_reworded_error_of_any_class_is_another_one_with_all_that_the_first_one_has(kind: type[TxnLogError]) -> None:
    error = raised(kind("x", advice="do y", durable=Durable.NOTHING))
    error.__dict__["own"] = 7
    before = (str(error), dict(error.__dict__))
    other = reworded(error, message="z", advice="do it", durable=Durable.MAYBE)
    other.add_note("another note")
    assert type(other) is kind
    assert str(other) == "z (do it; data may be durable)"
    assert other.args == ("z",)
    assert other.__dict__["own"] == 7
    assert isinstance(other.__cause__, OSError)
    assert other.__context__ is None
    assert other.__suppress_context__
    assert other.__notes__ == ["a note", "another note"]
    assert traceback.extract_tb(other.__traceback__)[-1].name == "raised"
    assert error.__notes__ == ["a note"]
    assert (str(error), dict(error.__dict__) | {"__notes__": before[1]["__notes__"]}) == before
    assert str(pickle.loads(pickle.dumps(other))) == str(other)


def fail(how: str) -> None:
    try:
        raise OSError("disk")
    except OSError as error:
        if how == "from":
            raise StoreError("x") from error
        if how == "from None":
            raise StoreError("x") from None
        raise StoreError("x")  # noqa: B904 - as by somebody who forgot it


@pytest.mark.parametrize("how", ["from", "from None", ""])
def test_what_is_raised_in_place_of_an_error_came_of_the_same(how: str) -> None:
    with pytest.raises(StoreError) as plain:
        fail(how)
    with pytest.raises(StoreError) as caught, refused_write():
        fail(how)
    kinds = [
        (type(item.__cause__), type(item.__context__), item.__suppress_context__)
        for item in (plain.value, caught.value)
    ]
    assert kinds[0] == kinds[1]
    assert isinstance(caught.value.__context__, OSError), "and not the error that it replaces"


def test_attributes_of_a_class_are_kept() -> None:
    assert reworded(OutcomeUnknown("x", txn_ids=("a", "b")), advice="y").txn_ids == ("a", "b")
    assert reworded(TransactionAborted("x", reason="timeout"), advice="y").reason == "timeout"
    denied = reworded(AccessDenied("x", right="write", url="u"), durable=Durable.MAYBE)
    assert (denied.right, denied.url) == ("write", "u")


MAYBE, NOTHING = Durable.MAYBE, Durable.NOTHING


@pytest.mark.parametrize(
    ("context", "error", "durable", "advice"),
    [
        (not_sent, StoreError("x", advice="a", durable=MAYBE), NOTHING, "a"),
        (not_sent, OutcomeUnknown("x", advice="a"), MAYBE, "a"),
        (in_parts, StoreError("x", advice="a", durable=NOTHING), NOTHING, "a"),
        (lambda: after_writing("b"), InvalidInputError("x", advice="a"), MAYBE, "a; then b"),
        (lambda: after_writing("b"), RetriableError("x", advice="a"), MAYBE, "a"),
        (lambda: after_writing("b"), InvalidTransactionState("x", advice="a"), MAYBE, "a"),
        (lambda: as_part_of("b"), OutcomeUnknown("x", advice="a"), MAYBE, "b"),
        (lambda: as_part_of("b"), StoreError("x", advice="fix; then a", durable=MAYBE), MAYBE, "fix; then b"),
        (lambda: as_part_of("b"), StoreError("x", advice="a", durable=MAYBE), MAYBE, "a"),
        (lambda: unknown_outcome("b"), OutcomeUnknown("x", advice="a"), MAYBE, "b"),
        (lambda: unknown_outcome("b"), OutcomeUnknown("x", advice="fix; then a"), MAYBE, "fix; then b"),
        (lambda: unknown_outcome("b"), RetriableError("x", advice="a"), NOTHING, "a"),
    ],
)
def test_a_context_replies_in_place_of_the_error(
    context: Callable[[], Replying], error: TxnLogError, durable: Durable, advice: str
) -> None:
    before = str(error)
    reply = through(context(), error)
    assert (reply.durable, reply.advice) == (durable, advice)
    assert str(error) == before


def test_whether_a_text_says_that_nothing_was_written_depends_on_the_call() -> None:
    missing, wrong = errors.TopicNotFound("x", advice="a"), InvalidInputError("x", advice="a")
    assert str(missing) == str(through(only_looking(), wrong)) == "x (a)"
    assert str(wrong) == str(through(refused_write(), missing)) == "x (a; nothing was written)"
    store = StoreError("x", advice="a", durable=NOTHING)
    assert through(only_looking(), store) is store


def test_several_callers_that_get_one_error_each_hear_of_their_own_call() -> None:
    shared = RetriableError("x")
    replies = [through(after_writing("b"), shared), through(Replying(lambda error: advising(error, "c")), shared)]
    assert [(item.durable, item.advice) for item in replies] == [(MAYBE, shared.advice), (NOTHING, "c")]
    assert (shared.durable, shared.advice) == (NOTHING, RetriableError._default_advice)


def test_each_call_of_the_tables_has_an_advice_of_its_own() -> None:
    rows = [value for table in (IfUnknown, Rest) for name, value in vars(table).items() if name.isupper()]
    assert len(rows) >= 18
    assert all(isinstance(row, str) and row == row.strip(" ;.") and row for row in rows)
    assert isinstance(IfUnknown.COMMIT, Words)


def test_an_error_of_another_kind_passes_through() -> None:
    with pytest.raises(KeyboardInterrupt), refused_write(), unknown_outcome("b"):
        raise KeyboardInterrupt


def test_what_has_to_be_done_first_stays_the_call_that_it_names() -> None:
    first = Words("see ", Call("topics"))
    advised = advising(OutcomeUnknown("x", advice=Words(first, "; then ", Call("checkpoint"))), Rest.VACUUM).advice
    assert isinstance(advised, Words)
    assert (
        advised.rendered(str, lambda call: call.name) == "see topics; then call vacuum again, with the same arguments"
    )
    assert up_to_last("a; b; c", "; ").parts == ("a; b; ",)
    assert not up_to_last(Words("a", Call("topics")), "; ")


@pytest.mark.parametrize("depth", [1, 2])
def test_a_call_of_which_a_part_was_written_says_so_and_so_does_the_call_that_it_is_a_part_of(depth: int) -> None:
    def failing(depth: int) -> None:
        with in_parts():
            if depth == 1:
                note_written()
                raise StoreError("x", advice="a", durable=NOTHING)
            failing(depth - 1)

    with pytest.raises(StoreError) as caught, in_parts():
        failing(depth)
    assert (caught.value.durable, caught.value.advice) == (MAYBE, "a")
