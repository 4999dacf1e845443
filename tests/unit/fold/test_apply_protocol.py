"""The entry as a whole, the protocol, the namespace, the root log, vacuum."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory_log import PROTOCOL, WRITER, Log, tables_of
from tests.unit.action_strategies import KINDS, Palette, of_struct
from txnlog.common.format_limits import MAX_COORDINATORS, MAX_NUMBER
from txnlog.common.ids import Coordinators, TxnId
from txnlog.errors import (
    CoordinatorFenced,
    CorruptionError,
    InvalidInputError,
    LimitExceeded,
    NameNotAllowed,
    UnsupportedFeature,
)
from txnlog.fold.apply import apply_entry, check_writable
from txnlog.fold.state import NamespaceRecord, State
from txnlog.format.actions import (
    Abort,
    Adopt,
    Begin,
    Commit,
    Namespace,
    Prepare,
    Protocol,
    Register,
    Renew,
    Reserve,
    Unregister,
    Vacuum,
    Verdict,
)
from txnlog.format.codec import decode_entry, encode_action, encode_entry

SALES = Namespace("sales", 7)


def assert_damage(log: Log, *actions, match: str, **header) -> None:
    """A stored entry with such a header is damage and changes nothing."""
    log.now_ms += 1_000
    changed = log.header(**header)
    entry = decode_entry(encode_entry(changed, [encode_action(action) for action in actions]), changed.version)
    before = tables_of(log.state)
    with pytest.raises(CorruptionError, match=match):
        apply_entry(log.state, entry)
    assert tables_of(log.state) == before


# --- header and chain -------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-20")
@pytest.mark.parametrize("version", [0, 1, 2, 5])
def test_an_entry_that_does_not_follow_is_damage(version):
    log = Log()
    log.entry()
    log.entry()
    assert_damage(log, match=f"entry {version} follows entry 2", version=version)


@pytest.mark.clause("P-21")
@pytest.mark.parametrize("previous", ["", "0" * 32, "x" * 100_000])
def test_an_entry_that_continues_another_log_is_damage(previous):
    log = Log()
    assert_damage(log, match="continues another log", previous=previous)


@pytest.mark.clause("P-21")
def test_an_entry_0_that_continues_something_is_damage():
    assert_damage(Log(begun=False), PROTOCOL, SALES, match="continues another log", previous="0" * 32)


@pytest.mark.clause("P-21")
def test_an_entry_swapped_for_a_valid_one_breaks_the_chain_at_the_next():
    log, other = Log(), Log()
    log.entry(Begin(0))
    other.entry(Begin(1))
    log.entry()
    state = State()
    apply_entry(state, decode_entry(log.stored[0], 0))
    apply_entry(state, decode_entry(other.stored[1], 1))
    with pytest.raises(CorruptionError, match="entry 2 continues another log"):
        apply_entry(state, decode_entry(log.stored[2], 2))


@pytest.mark.clause("P-22")
def test_log_time_may_stand_still_but_never_goes_back():
    log = Log()
    log.entry(after_ms=0)
    assert_damage(log, match="goes back in time", timestamp_ms=log.now_ms - 1)


@pytest.mark.clause("P-23")
@pytest.mark.parametrize("checkpoint", [3, 4, 1_000])
def test_a_checkpoint_of_the_future_is_damage(checkpoint):
    log = Log()
    log.entry()
    log.entry()
    assert_damage(log, match="checkpoint of the future", checkpoint=checkpoint)


@pytest.mark.clause("P-23")
def test_the_newest_checkpoint_is_the_highest_that_any_header_named():
    log = Log()
    for _ in range(4):
        log.entry()
    known = []
    for named in (None, 2, 1, None, 3):
        log.fold(encode_entry(log.header(checkpoint=named), []))
        known.append(log.state.head.checkpoint)
    assert known == [None, 2, 2, 2, 3]


# --- all or nothing ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-25")
def test_a_refused_action_in_a_stored_entry_is_damage_and_names_entry_and_line():
    log = Log()
    assert_damage(log, Begin(0), Abort(0), Abort(0), match=r"entry 1, line 4 \(Abort\): .*aborted at version 1")


@pytest.mark.clause("P-25")
def test_an_entry_whose_shared_rows_nobody_claims_is_damage_and_names_its_end():
    log = Log()
    topic = log.topic()
    assert_damage(
        log,
        log.segment(topic, {0: 3}),
        Commit(log.number()),
        match=r"entry 2, line 4 \(end\).* \(restore _log/0+/0+2\.json of",
    )


@pytest.mark.clause("P-25", "P-26")
def test_nothing_of_a_failed_entry_remains():
    log = Log()
    before = tables_of(log.state)
    with pytest.raises(InvalidInputError):
        log.entry(Begin(0), Reserve(WRITER, 1024, 256), Renew(0), Vacuum(99))
    assert tables_of(log.state) == before


@pytest.mark.clause("P-27", "P-128")
def test_folding_the_same_bytes_again_gives_the_same_state():
    log = Log()
    topic = log.topic(partitions=2)
    log.produce(topic, {0: 3, 1: 1})
    log.entry(Begin(log.number()))
    assert tables_of(log.replayed()) == tables_of(log.state)


HOSTILE = "\x1b[2J\u202e" + "\U0001f600" * 5_000


@pytest.mark.clause("P-138", "P-142")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__struct_config__.tag)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_whatever_a_log_holds_is_applied_or_damage_reported_in_a_short_clean_line(kind, data):
    log = Log()
    topic = log.topic()
    log.produce(topic, 3)
    log.subscription(topic)
    action = data.draw(of_struct(kind, Palette(st.sampled_from([HOSTILE, "a", "", "loader"]))))
    entry = decode_entry(encode_entry(log.header(), [encode_action(action)]), log.version + 1)
    try:
        apply_entry(log.state, entry)
        said = ""
    except (CorruptionError, UnsupportedFeature) as error:
        said = str(error)
    assert said == "" or (said.isascii() and said.isprintable() and len(said) < 700)


# --- protocol ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-29")
@pytest.mark.parametrize("actions", [[], [PROTOCOL], [SALES]], ids=["nothing", "no namespace", "no protocol"])
def test_entry_0_must_hold_protocol_and_namespace(actions):
    with pytest.raises(InvalidInputError, match="entry 0 must hold"):
        Log(begun=False).entry(*actions)


@pytest.mark.clause("P-29")
def test_a_namespace_is_named_once_and_in_entry_0():
    with pytest.raises(InvalidInputError, match="once"):
        Log(begun=False).entry(PROTOCOL, SALES, SALES)
    with pytest.raises(InvalidInputError, match="version 0 only"):
        Log().entry(SALES)


def test_the_head_knows_name_coordinator_and_settings():
    log = Log(begun=False)
    log.entry(PROTOCOL, Namespace("sales", 7, 5_000, 864_000_000))
    head = log.state.head
    assert (head.name, head.first_coordinator) == ("sales", 7)
    assert (head.max_timeout_ms, head.outcome_retention_ms) == (5_000, 864_000_000)


@pytest.mark.clause("P-66")
@pytest.mark.parametrize(
    ("namespace", "error"),
    [
        (Namespace("sales", MAX_COORDINATORS), InvalidInputError),
        (Namespace("../sales", 0), NameNotAllowed),
        (Namespace("_log", 0), NameNotAllowed),
        (Namespace("", 0), NameNotAllowed),
        (Namespace("sales", 0, 0), InvalidInputError),
        (Namespace("sales", 0, None, 7 * 86_400_000 - 1), InvalidInputError),
    ],
)
def test_a_namespace_that_makes_no_sense_is_refused(namespace, error):
    with pytest.raises(error):
        Log(begun=False).entry(PROTOCOL, namespace)


@pytest.mark.clause("P-134")
@pytest.mark.parametrize(
    "protocol", [Protocol(2, 1), Protocol(1, 1, ("row_ids",)), Protocol(1, 1, ("row_ids",), ("row_ids",))]
)
def test_what_a_reader_does_not_know_stops_it(protocol):
    log = Log()
    with pytest.raises(UnsupportedFeature, match="entry 1 asks readers"):
        log.entry(protocol)
    with pytest.raises(UnsupportedFeature):
        Log(begun=False).entry(protocol, SALES)


@pytest.mark.clause("P-134", "P-142")
def test_the_error_names_the_missing_features_escaped_and_cut_short():
    with pytest.raises(UnsupportedFeature) as caught:
        Log().entry(Protocol(1, 1, ("row_ids", "\x1b[2J", "x" * 10_000, *(f"f{n}" for n in range(1_000)))))
    text = str(caught.value)
    assert "\x1b" not in text
    assert len(text) < 500


@pytest.mark.clause("P-135")
@pytest.mark.parametrize("protocol", [Protocol(1, 2), Protocol(1, 1, (), ("row_ids",))])
def test_what_a_writer_does_not_know_leaves_the_log_readable(protocol):
    log = Log()
    check_writable(log.state)
    log.entry(protocol)
    log.entry()
    with pytest.raises(UnsupportedFeature, match="asks writers"):
        check_writable(log.state)
    with pytest.raises(UnsupportedFeature, match='mode="r"'):
        check_writable(log.state.draft())


@pytest.mark.clause("P-136")
def test_a_feature_is_never_taken_back():
    log = Log()
    log.entry(Protocol(1, 1, (), ("row_ids",)))
    with pytest.raises(InvalidInputError, match="cannot be disabled"):
        log.entry(PROTOCOL)
    log.entry(Protocol(1, 1, (), ("more", "row_ids")))


@pytest.mark.clause("P-136")
@pytest.mark.parametrize("protocol", [Protocol(0, 2), Protocol(1, 0), Protocol(1, 1)])
def test_versions_begin_at_one_and_never_go_back(protocol):
    log = Log()
    log.entry(Protocol(1, 2))
    with pytest.raises(InvalidInputError, match="cannot go back"):
        log.entry(protocol)


@pytest.mark.clause("P-136")
@pytest.mark.parametrize("protocol", [Protocol(0, 1), Protocol(1, 0)])
def test_a_log_begins_with_versions_that_there_are(protocol):
    with pytest.raises(InvalidInputError, match="begin at 1"):
        Log().entry(protocol)


# --- root log ---------------------------------------------------------------------------------------------------------


DIGEST = "0123456789abcdef" * 2


# --- adoption ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-231")
def test_numbers_keep_the_coordinator_id_that_they_had_and_new_ones_have_the_new_one():
    log = Log()
    log.entry(Begin(100), Begin(101))
    log.entry(Adopt("copy", 9))
    log.entry(Reserve(WRITER, 1024, 256))
    log.entry(Begin(1024), Commit(101))
    log.entry(Adopt("again", 8))
    log.entry(Reserve(WRITER, 1280, 256))
    head = log.state.head
    assert (head.name, head.first_coordinator, head.adoptions) == ("again", 7, ((1024, 9), (1280, 8)))
    assert head.coordinators == Coordinators(((0, 7), (1024, 9), (1280, 8)))
    expected = {0: 7, 100: 7, 1023: 7, 1024: 9, 1279: 9, 1280: 8, MAX_NUMBER: 8}
    assert {number: log.state.txn_id(number) for number in expected} == {n: TxnId(c, n) for n, c in expected.items()}
    assert log.state.draft().txn_id(1279) == TxnId(9, 1279)
    assert set(log.state.transactions) == {100, 1024}
    assert tables_of(log.replayed()) == tables_of(log.state)


@pytest.mark.clause("P-41", "P-43", "P-231")
def test_an_adoption_closes_every_block_and_leaves_transactions_alone():
    log = Log()
    log.entry(Begin(100))
    log.entry(Prepare(100, "digest"))
    log.entry(Reserve("another", 1024, 512))
    log.entry(Adopt("copy", 9))
    assert (log.state.blocks, log.state.used, log.state.head.open_blocks) == ({}, {}, ())
    for number in (101, 1024, 1535):
        with pytest.raises(CoordinatorFenced):
            log.entry(Begin(number))
    log.entry(Commit(100))
    assert log.outcome(100).state == "COMMITTED"


@pytest.mark.parametrize(
    ("action", "match"),
    [
        (Adopt("copy", 7), "had the coordinator id 7 before"),
        (Adopt("copy", 1 << 16), "more than 16 bits"),
        (Adopt("_catalog", 9), "_catalog"),
        (Adopt("a/b", 9), "a/b"),
    ],
)
def test_an_adoption_that_makes_no_sense_is_refused(action, match):
    with pytest.raises(InvalidInputError, match=match):
        Log().entry(action)


@pytest.mark.clause("P-233")
def test_no_coordinator_id_comes_back_by_an_adoption():
    log = Log()
    log.entry(Adopt("copy", 9))
    for known in (7, 9):
        with pytest.raises(InvalidInputError, match="before"):
            log.entry(Adopt("copy", known))


def test_a_log_is_not_adopted_in_its_first_entry():
    log = Log(begun=False)
    with pytest.raises(InvalidInputError, match="behind version 0"):
        log.entry(PROTOCOL, Namespace("sales", 7), Adopt("copy", 9))


@pytest.fixture
def root() -> Log:
    log = Log(begun=False)
    log.entry(PROTOCOL, Namespace("_catalog", 0))
    return log


@pytest.mark.clause("P-9", "P-30")
def test_namespaces_get_coordinators_in_order_and_the_entry_as_id(root):
    first = root.entry(Register("sales", 0))
    second = root.entry(Register("audit", 1))
    assert root.state.namespaces == {
        first: NamespaceRecord(first, "sales", 0),
        second: NamespaceRecord(second, "audit", 1),
    }


@pytest.mark.clause("P-30")
@pytest.mark.parametrize("coordinator", [0, 2, 7])
def test_any_coordinator_but_the_next_is_refused(root, coordinator):
    root.entry(Register("sales", 0))
    with pytest.raises(InvalidInputError, match="next coordinator id is 1"):
        root.entry(Register("audit", coordinator))


@pytest.mark.clause("P-30", "P-233")
def test_ids_that_an_adopted_log_had_before_are_passed_over(root):
    root.entry(Register("sales", 0))
    adopted = root.entry(Register("copy", 3, DIGEST))
    assert root.state.namespaces[adopted] == NamespaceRecord(adopted, "copy", 3, log=DIGEST)
    for passed_over in (1, 2, 3):
        with pytest.raises(InvalidInputError, match="next coordinator id is 4"):
            root.entry(Register("audit", passed_over, DIGEST))
    root.entry(Unregister(adopted), Register("copy", 4, DIGEST))
    assert root.state.head.next_coordinator == 5


@pytest.mark.parametrize("digest", ["0" * 31, "G" * 32, "0" * 33, "\n" * 32])
def test_a_registration_names_a_digest_or_nothing(root, digest):
    with pytest.raises(InvalidInputError, match="32 hexadecimal digits"):
        root.entry(Register("sales", 0, digest))


@pytest.mark.clause("P-30")
def test_a_coordinator_is_not_given_again_after_a_drop(root):
    first = root.entry(Register("sales", 0))
    dropped = root.entry(Unregister(first))
    assert root.state.namespaces[first].dropped_version == dropped
    with pytest.raises(InvalidInputError):
        root.entry(Register("sales", 0))
    again = root.entry(Register("sales", 1))
    assert root.state.namespace_names == {"sales": again}


@pytest.mark.clause("P-30")
def test_a_root_has_65_536_coordinators():
    log = Log(begun=False)
    log.entry(PROTOCOL, Namespace("_catalog", 0))
    log.state.heads["head"] = type(log.state.head)(
        **{
            name: getattr(log.state.head, name)
            for name in log.state.head.__struct_fields__
            if name != "next_coordinator"
        },
        next_coordinator=MAX_COORDINATORS,
    )
    with pytest.raises(LimitExceeded):
        log.entry(Register("sales", MAX_COORDINATORS))


@pytest.mark.clause("P-7")
@pytest.mark.parametrize("name", ["sales", "Sales", "SALES"])
def test_a_namespace_that_exists_but_for_case_is_refused(root, name):
    root.entry(Register("sales", 0))
    with pytest.raises(NameNotAllowed, match="'sales' exists"):
        root.entry(Register(name, 1))


@pytest.mark.clause("P-5")
def test_a_namespace_with_a_bad_name_is_refused(root):
    with pytest.raises(NameNotAllowed):
        root.entry(Register("../sales", 0))


@pytest.mark.clause("P-9")
def test_one_entry_registers_one_namespace(root):
    with pytest.raises(InvalidInputError, match="one namespace"):
        root.entry(Register("sales", 0), Register("audit", 1))


def test_what_is_not_there_cannot_be_dropped(root):
    first = root.entry(Register("sales", 0))
    with pytest.raises(InvalidInputError, match="no namespace"):
        root.entry(Unregister(99))
    root.entry(Unregister(first))
    with pytest.raises(InvalidInputError, match="no namespace"):
        root.entry(Unregister(first))


def test_a_verdict_stands_for_a_store_at_an_address(root):
    root.entry(Verdict("s3", "abc", 8))
    root.entry(Verdict("s3", "abc", 128), Verdict("local", "abc", 8))
    assert root.state.verdicts == {
        ("s3", "abc"): Verdict("s3", "abc", 128),
        ("local", "abc"): Verdict("local", "abc", 8),
    }


# --- vacuum -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-92")
def test_the_oldest_readable_version_only_grows():
    log = Log()
    for _ in range(5):
        log.entry()
    log.entry(Vacuum(3))
    assert log.state.head.oldest_readable == 3
    log.entry(Vacuum(3))
    with pytest.raises(InvalidInputError, match="from 3 up to 8, not to 2"):
        log.entry(Vacuum(2))


@pytest.mark.clause("P-92")
def test_the_future_cannot_be_vacuumed():
    log = Log()
    log.entry(Vacuum(1))
    with pytest.raises(InvalidInputError, match="not to 3"):
        log.entry(Vacuum(3))
