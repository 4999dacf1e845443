from __future__ import annotations

import pytest

from tests.memory_log import SCHEMA, individually
from txnlog.errors import (
    InvalidInputError,
    LimitExceeded,
    NameNotAllowed,
    OffsetOutOfRange,
    SchemaMismatch,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
)
from txnlog.fold import topics
from txnlog.fold.state import SchemaVersion
from txnlog.format.actions import AlterTopic, Begin, Commit, DeleteRecords, DropTopic, Subscription, Topic
from txnlog.format.schema import StructField, StructType

WIDER = StructType((*SCHEMA.fields, StructField("note", "string")))


# --- creation ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-9")
def test_the_id_of_a_topic_is_the_version_of_its_entry(log):
    topic = log.topic("orders", 3)
    record = log.state.topics[topic]
    assert topic == log.version
    assert (record.id, record.name, record.folder, record.partitions) == (topic, "orders", "orders", 3)
    assert record.schemas == (SchemaVersion(topic, SCHEMA),)


@pytest.mark.clause("P-9")
def test_one_entry_creates_one_topic(log):
    with pytest.raises(InvalidInputError, match="one topic"):
        log.entry(Topic("orders", SCHEMA, 1), Topic("audit", SCHEMA, 1))


@pytest.mark.clause("P-7")
def test_a_topic_that_exists_is_refused(log):
    log.topic("orders")
    with pytest.raises(TopicExists):
        log.topic("orders")


@pytest.mark.clause("P-7")
def test_a_topic_that_exists_but_for_case_is_refused(log):
    log.topic("orders")
    with pytest.raises(NameNotAllowed, match="only in case"):
        log.topic("Orders")


@pytest.mark.clause("P-5", "P-6")
@pytest.mark.parametrize("name", ["", "../x", "_log", "_txnlog_segment", "a/b", "con", "x" * 101])
def test_a_topic_with_a_bad_name_is_refused(log, name):
    with pytest.raises(NameNotAllowed):
        log.topic(name)


@pytest.mark.clause("P-31")
@pytest.mark.parametrize(
    ("partitions", "kind"), [(0, InvalidInputError), (10_001, LimitExceeded), (1 << 40, LimitExceeded)]
)
def test_a_topic_with_no_partition_or_too_many_is_refused(log, partitions, kind):
    with pytest.raises(InvalidInputError, match="partition") as refused:
        log.topic("orders", partitions)
    assert type(refused.value) is kind
    log.topic("orders", 10_000)


@pytest.mark.clause("P-31")
def test_nothing_changes_the_number_of_partitions():
    assert {"partitions"} & set(AlterTopic.__struct_fields__) == set()


@pytest.mark.clause("P-37", "P-38", "P-39")
@pytest.mark.parametrize(
    "schema",
    [
        StructType(()),
        StructType((StructField("_partition", "long"),)),
        StructType((StructField("a", "long"), StructField("A", "long"))),
        StructType((StructField("a", "void"),)),
    ],
)
def test_a_topic_with_a_bad_schema_is_refused(log, schema):
    with pytest.raises(SchemaMismatch):
        log.topic(schema=schema)


@pytest.mark.clause("P-32")
def test_a_key_must_be_a_column_that_can_be_hashed(log):
    with pytest.raises(SchemaMismatch):
        log.topic(key="nmae")
    with pytest.raises(SchemaMismatch):
        log.topic(schema=StructType((StructField("d", "double"),)), key="d")
    assert log.state.topics[log.topic(key="name")].key == "name"


@pytest.mark.clause("P-36")
def test_too_many_topics_are_refused(log, monkeypatch):
    monkeypatch.setattr(topics, "MAX_TOPICS", 2)
    first = log.topic("a")
    log.topic("b")
    with pytest.raises(LimitExceeded):
        log.topic("c")
    log.entry(DropTopic(first))
    log.topic("c")


# --- incarnations -----------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-10", "P-33")
@pytest.mark.parametrize("again", ["orders", "Orders", "ORDERS"])
def test_a_topic_created_again_is_another_one_in_another_folder(log, again):
    first = log.topic("orders")
    log.produce(first, 3)
    log.entry(DropTopic(first))
    second = log.topic(again)
    assert second != first
    assert log.state.topics[second].folder == f"{again}~{second}"
    assert log.ends(second) == {0: 0}
    assert log.ends(first) == {0: 3}


@pytest.mark.clause("P-10")
def test_a_name_that_was_never_used_is_its_own_folder(log):
    log.entry(DropTopic(log.topic("orders")))
    assert log.state.topics[log.topic("orders2")].folder == "orders2"


# --- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-34")
def test_every_version_has_the_schema_that_held_there(log):
    topic = log.topic()
    changed = log.entry(AlterTopic(topic, WIDER))
    record = log.state.topics[topic]
    assert record.schema == WIDER
    assert record.schema_at(topic) == record.schema_at(changed - 1) == SCHEMA
    assert record.schema_at(changed) == record.schema_at(changed + 5) == WIDER


@pytest.mark.clause("P-34")
def test_a_topic_exists_from_its_creation_up_to_its_drop(log):
    topic = log.topic()
    log.entry()
    dropped = log.entry(DropTopic(topic))
    record = log.state.topics[topic]
    assert [record.exists_at(version) for version in range(topic - 1, dropped + 2)] == [False, True, True, False, False]


def test_properties_are_replaced_as_a_whole_and_what_is_left_out_stays(log):
    topic = log.entry(Topic("orders", SCHEMA, 1, None, {"a": "1", "b": "2"}))
    log.entry(AlterTopic(topic, WIDER))
    assert log.state.topics[topic].properties == {"a": "1", "b": "2"}
    log.entry(AlterTopic(topic, None, {"b": "3"}))
    assert log.state.topics[topic].properties == {"b": "3"}
    assert log.state.topics[topic].schema == WIDER


@pytest.mark.clause("P-32")
@pytest.mark.parametrize(
    "schema",
    [
        StructType((StructField("amount", "long"),)),
        StructType((StructField("name", "binary"), StructField("amount", "long"))),
    ],
    ids=["dropped", "another type"],
)
def test_the_key_keeps_its_column_and_type(log, schema):
    topic = log.topic(key="name")
    with pytest.raises(SchemaMismatch):
        log.entry(AlterTopic(topic, schema))
    log.entry(AlterTopic(topic, WIDER))


def test_a_changed_schema_must_be_a_schema(log):
    topic = log.topic()
    with pytest.raises(SchemaMismatch):
        log.entry(AlterTopic(topic, StructType(())))


# --- drop -------------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-33")
def test_a_dropped_topic_takes_nothing_any_more(log):
    topic = log.topic()
    txn = log.number()
    log.entry(Begin(txn), DropTopic(topic))
    for action in (
        DropTopic(topic),
        AlterTopic(topic, WIDER),
        DeleteRecords(topic, ((0, 0),)),
        Subscription(topic, "billing", "shared", (0,), 1_000),
        log.segment(topic, {0: 1}, txn),
        log.segment(topic, {0: 1}),
    ):
        with pytest.raises(TopicNotFound):
            log.entry(action)


@pytest.mark.parametrize("action", [DropTopic(99), AlterTopic(99, WIDER), DeleteRecords(99, ((0, 0),))])
def test_a_topic_that_never_was_is_not_found(log, action):
    with pytest.raises(TopicNotFound):
        log.entry(action)


@pytest.mark.clause("P-33")
def test_dropping_a_topic_drops_its_subscriptions_and_no_others(log):
    orders, audit = log.topic("orders", 2), log.topic("audit")
    gone, stays = log.subscription(orders), log.subscription(audit)
    log.entry(DropTopic(orders))
    assert set(log.state.subscriptions) == {stays}
    assert set(log.state.cursors) == {(stays, 0)}
    assert log.state.subscription_names == {(audit, "billing"): stays}
    with pytest.raises(SubscriptionNotFound):
        log.entry(Commit(log.number(), acknowledgements=(individually(gone, {0: [(0, 1)]}),)))


# --- earliest offsets -------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-35")
def test_the_earliest_offset_moves_up(log):
    topic = log.topic(partitions=2)
    log.produce(topic, {0: 5, 1: 5})
    log.entry(DeleteRecords(topic, ((0, 3), (1, 5))))
    assert log.state.starts == {(topic, 0): 3, (topic, 1): 5}
    log.entry(DeleteRecords(topic, ((0, 3),)))
    assert log.state.starts[topic, 0] == 3


@pytest.mark.clause("P-242")
def test_of_two_earliest_offsets_of_a_partition_in_one_line_the_second_goes_on(log):
    topic = log.topic()
    log.produce(topic, 5)
    log.entry(DeleteRecords(topic, ((0, 2), (0, 4))))
    assert log.state.starts == {(topic, 0): 4}


@pytest.mark.clause("P-35", "P-242")
@pytest.mark.parametrize("before", [((0, 2),), ((0, 6),), ((1, 0),), ((0, 4), (0, 3))])
def test_an_earliest_offset_that_goes_back_or_too_far_is_refused(log, before):
    topic = log.topic()
    log.produce(topic, 5)
    log.entry(DeleteRecords(topic, ((0, 3),)))
    with pytest.raises(OffsetOutOfRange):
        log.entry(DeleteRecords(topic, before))


def test_pending_rows_are_no_reason_to_go_beyond_the_end(log):
    topic = log.topic()
    txn = log.number()
    log.entry(Begin(txn), log.segment(topic, {0: 5}, txn))
    with pytest.raises(OffsetOutOfRange):
        log.entry(DeleteRecords(topic, ((0, 1),)))
