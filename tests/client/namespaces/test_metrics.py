"""Metrics: valid text, and each value is what the other calls say of the same namespace."""

from __future__ import annotations

from typing import Any

import pytest

from tests.by_hand import compact
from tests.client.support import Place, begun, busy, prepared, raises, rows, take
from tests.open_metrics import Parsed, parsed
from txnlog.api.metric_families import OF_HANDLE, OF_NAMESPACE
from txnlog.common.open_metrics import Family, Labels, encoded
from txnlog.errors import InvalidInputError, InvalidTransactionState, StoreError
from txnlog.format import keys
from txnlog.testing import ManualClock


def metrics(ns: Any, **options: Any) -> dict[str, Parsed]:
    """The families of a handle without the beginning of their names."""
    return {name.removeprefix("txnlog_"): family for name, family in parsed(ns.metrics(**options)).items()}


def value(ns: Any, name: str, **labels: str) -> float:
    found = metrics(ns)[name]
    return found.total(**labels) if found.kind == "counter" else found.value(**labels)


def segments(ns: Any, topic: str = "orders") -> tuple[float, float]:
    found = metrics(ns)
    return found["topic_segments"].value(topic=topic), found["topic_size_bytes"].value(topic=topic)


def planned(ns: Any, topic: str = "orders") -> tuple[int, int]:
    plan = ns.snapshot().plan(topic).segments
    return len(plan), sum(item.size_bytes for item in plan)


# --- the text ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [False, True])
def test_the_text_is_strictly_what_openmetrics_says(memory: Place, partitions: bool) -> None:
    ns = memory.open()
    busy(ns, 1)
    found = parsed(ns.metrics(partitions=partitions))
    assert len(found) > 25
    assert all(name.startswith("txnlog_") for name in found)
    assert {name for family in found.values() for name in family.labels("namespace")} == {"sales"}


def test_every_metric_is_emitted_as_it_is_described_with_these_labels_alone(memory: Place) -> None:
    ns = memory.open()
    busy(ns, 1)
    found = parsed(ns.metrics(partitions=True))
    described = OF_NAMESPACE | OF_HANDLE
    assert [(name, family.kind, family.help) for name, family in found.items()] == [
        (name, metric.kind, metric.help) for name, metric in described.items()
    ]
    for name, family in found.items():
        labels = {tuple(label for label, _ in pairs if label != "le") for _, pairs in family.samples}
        assert labels <= {("namespace", *described[name].labels)}, name
        assert labels or name == "txnlog_handle_commit_failures", "there are none"


def test_text_of_others_stays_within_its_label() -> None:
    family = Family("txnlog_tried", "gauge", 'with "quotes",\nlines and \\')
    family.add(1, Labels({"topic": 'a"b\\c\nd'}))
    found = parsed(encoded([family]))["txnlog_tried"]
    assert found.labels("topic") == {'a"b\\c\nd'}


def test_the_parser_refuses_what_the_specification_forbids(memory: Place) -> None:
    text = memory.orders(1).metrics()
    for wrong in (
        text.removesuffix("\n"),
        text.replace("# EOF\n", ""),
        text + "\n",
        text.replace("txnlog_entries_total", "txnlog_entries"),
        text.replace("# TYPE txnlog_topics gauge", "# TYPE txnlog_topics gauge\n# TYPE txnlog_topics gauge"),
        text.replace("age_seconds seconds", "age_seconds minutes", 1),
        text.replace('le="1.0"', 'le="1"'),
        text.replace("# EOF", 'txnlog_entries_total{namespace="sales"} 1\n# EOF'),
    ):
        assert wrong != text
        with pytest.raises(AssertionError):
            parsed(wrong)


# --- the log ----------------------------------------------------------------------------------------------------------


def test_entries_versions_and_the_age_of_the_newest_are_those_of_the_log(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(1, clock=clock)
    clock.advance(90_000)
    found = metrics(ns)
    version = ns.snapshot().version
    assert (found["newest_version"].value(), found["entries"].total()) == (version, version + 1)
    assert found["newest_entry_age_seconds"].value() == 90
    assert (found["topics"].value(), found["producers"].value(), found["oldest_readable_version"].value()) == (1, 0, 0)


def test_the_distance_of_the_newest_checkpoint_is_known_without_one_too(memory: Place) -> None:
    ns = memory.orders(1)
    assert value(ns, "checkpoint_distance_entries") == ns.snapshot().version + 1
    assert value(ns, "checkpoint_objects") == 0
    ns.checkpoint()
    assert value(ns, "checkpoint_distance_entries") == 0
    ns.produce("orders", rows(2))
    ns.produce("orders", rows(3))
    assert value(ns, "checkpoint_distance_entries") == 2
    stored = list(ns._connection.store.list(keys.CHECKPOINT_FOLDER))
    assert value(ns, "checkpoint_objects") == len(stored)
    parts = [info.size_bytes for info in stored if isinstance(keys.parse_key(info.key), keys.PartKey)]
    assert value(ns, "checkpoint_size_bytes") == sum(parts)


def test_a_reader_that_is_asked_again_and_again_lets_go_of_what_a_checkpoint_has(memory: Place) -> None:
    writer = memory.orders(1)
    reader = memory.open(mode="r")
    for number in range(4):
        writer.produce("orders", rows(number))
    metrics(reader)
    assert len(reader._connection.follower.state.outcomes) == 5
    writer.checkpoint()
    writer.produce("orders", rows(9))  # its header names the checkpoint
    assert value(reader, "checkpoint_distance_entries") == 1
    assert len(reader._connection.follower.state.outcomes) == 1
    assert segments(reader) == planned(reader) == planned(writer)


def test_asked_again_it_takes_one_request(memory: Place) -> None:
    ns, store = memory.counted()
    busy(ns, 1)
    ns.checkpoint()
    metrics(ns)
    before = store.counts()
    metrics(ns)
    assert {key: count - before.get(key, 0) for key, count in store.counts().items() if count != before.get(key)} == {
        ("get", "entry"): 1
    }


# --- transactions -----------------------------------------------------------------------------------------------------


def test_ended_transactions_are_counted_from_the_first_call_on_whoever_ends_them(
    memory: Place, clock: ManualClock
) -> None:
    ns, other = memory.orders(1, clock=clock), memory.open(clock=clock)
    first = metrics(ns)
    assert first["transactions_committed"].total() == 0
    assert first["transactions_committed"].value("_created") == clock.now_ms() / 1000
    clock.advance(5_000)
    ns.produce("orders", rows(2))
    other.produce("orders", rows(3))
    begun(other, 4, flush=True).abort()
    hanging = begun(other, 5, flush=True)
    ns.abort(hanging.id)
    found = metrics(ns)
    assert found["transactions_committed"].total() == 2
    assert found["transactions_committed"].value("_created") == (clock.now_ms() - 5_000) / 1000
    aborted = found["transactions_aborted"]
    assert {reason: aborted.total(reason=reason) for reason in aborted.labels("reason")} == {
        "user": 1,
        "admin": 1,
        "timeout": 0,
        "fenced": 0,
        "failed": 0,
    }
    assert value(other, "transactions_committed") == 0, "each handle begins with 0"


def test_transactions_that_have_not_ended_are_counted_by_state_and_age(lake: Any, clock: ManualClock) -> None:
    assert value(lake, "unended_transactions_oldest_age_seconds", state="OPEN") == 0
    begun(lake, 1, flush=True, timeout_ms=60_000)
    clock.advance(20_000)
    begun(lake, 2, flush=True, timeout_ms=60_000)
    prepared(lake, 3)
    clock.advance(45_000)
    found = metrics(lake)
    assert found["unended_transactions"].value(state="OPEN") == 2
    assert found["unended_transactions"].value(state="PREPARED") == 1
    assert found["unended_transactions_oldest_age_seconds"].value(state="OPEN") == 65
    assert found["unended_transactions_oldest_age_seconds"].value(state="PREPARED") == 45
    assert found["overdue_transactions"].value() == 1
    clock.advance(60_000)
    assert value(lake, "overdue_transactions") == 2, "a prepared one has no deadline"


def test_all_ages_are_by_the_time_of_the_log_where_it_is_ahead(memory: Place) -> None:
    ns = memory.orders(1, clock=ManualClock(1_000_000))
    ns.create_subscription("orders", "billing", start="earliest")
    opened = begun(ns, 2, flush=True, timeout_ms=60_000)
    memory.open(clock=ManualClock(1_030_000)).create_topic("audit")
    (listed,) = ns.transactions("OPEN", min_age_ms=30_000)
    assert (listed.txn_id, listed.age_ms, ns.transaction(opened.id).age_ms) == (opened.id, 30_000, 30_000)
    assert value(ns, "unended_transactions_oldest_age_seconds", state="OPEN") == 30
    assert (
        value(ns, "subscription_lag_seconds", subscription="billing") == ns.lag("orders", "billing")[0].behind_ms / 1000
    )
    assert value(ns, "newest_entry_age_seconds") == 0


# --- topics and subscriptions -----------------------------------------------------------------------------------------


def test_segments_are_those_of_the_newest_version_through_checkpoints_and_merges(memory: Place) -> None:
    ns = memory.orders(partitions=1)
    ns.create_topic("audit")
    seen = []
    for number in range(6):
        ns.produce("orders", rows(number))
    begun(ns, 7, flush=True).abort()
    begun(ns, 8, flush=True)
    for step in ("memory", "checkpoint", "merged", "checkpoint", "more", "merged again"):
        if step == "checkpoint":
            ns.checkpoint()
        elif step == "more":
            ns.produce("orders", rows(*range(20, 23)))
        elif step != "memory":
            numbers = [item.number for item in ns.snapshot().plan("orders").segments]
            compact(ns, "orders", numbers[:3], 0)
        fresh = memory.open(mode="r")
        assert segments(ns) == planned(ns) == segments(fresh), step
        assert value(ns, "topic_small_segments", topic="orders") == planned(ns)[0], step
        seen.append(planned(ns)[0])
    assert seen == [6, 6, 4, 4, 5, 3]
    assert segments(ns, "audit") == (0, 0)
    assert value(ns, "topic_messages", topic="orders") == 9


def test_a_topic_that_is_created_again_has_another_id_and_is_none_before(memory: Place) -> None:
    ns = memory.orders(1, 2, 3)
    first = metrics(ns)["topic_messages"]
    ns.drop_topic("orders")
    assert "orders" not in metrics(ns)["topic_messages"].labels("topic")
    ns.create_topic("orders")
    again = metrics(ns)["topic_messages"]
    assert (first.total(), again.total()) == (3, 0)
    assert first.labels("id") != again.labels("id") == {str(ns.topic("orders").id)}


def test_the_lag_is_that_of_the_log_in_messages_and_in_time(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(partitions=2, clock=clock)
    ns.create_subscription("orders", "billing")
    ns.create_subscription("orders", "many", type="shared", max_redeliveries=3, dead_letter_topic="dead")
    assert value(ns, "subscription_lag_seconds", subscription="billing") == 0
    for number in range(6):
        ns.produce("orders", rows(number), partition=number % 2)
        clock.advance(1_000)
    consumer = ns.consumer("orders", "many")
    messages = take(consumer, 4)
    consumer.negative_acknowledge(messages[0])
    ns.begin().acknowledge(messages[1])
    reader = ns.consumer("orders", "billing")
    reader.acknowledge(take(reader, 1))  # of partition 0
    numbers = [item.number for item in ns.snapshot().plan("orders").segments]
    for step in ("memory", "checkpoint", "merged"):
        if step == "checkpoint":
            ns.checkpoint()
        elif step == "merged":
            compact(ns, "orders", numbers[1::2], 1)
        for handle in (ns, memory.open(mode="r", clock=clock)):
            found = metrics(handle, partitions=True)
            for name in ("billing", "many"):
                lag = handle.lag("orders", name)
                assert found["subscription_lag_messages"].value(subscription=name) == sum(
                    item.behind_messages for item in lag
                )
                assert found["subscription_lag_seconds"].value(subscription=name) == (6 if name == "many" else 5)
                for item in lag:
                    one = {"subscription": name, "partition": str(item.partition)}
                    ages = found["subscription_partition_lag_seconds"]
                    assert ages.value(**one) == item.behind_ms / 1000, step
                    behind = found["subscription_partition_lag_messages"]
                    assert behind.value(**one) == item.behind_messages, step
            info = handle.subscription("orders", "many")
            assert found["subscription_pending_messages"].value(subscription="many") == info.pending == 1
            assert found["subscription_redelivered_messages"].value(subscription="many") == info.redelivered == 1
            assert found["subscription_leased_messages"].value(subscription="many") == info.leased > 0
    assert not any("partition" in name for name in metrics(ns))


@pytest.mark.parametrize("kind", ["segments", "removals"])
def test_with_a_checkpoint_that_cannot_be_read_the_values_are_the_same(memory: Place, kind: str) -> None:
    ns = memory.orders()
    for number in range(4):
        ns.produce("orders", rows(number))
    compact(ns, "orders", [item.number for item in ns.snapshot().plan("orders").segments][:2], 0)
    ns.checkpoint()
    base = ns._connection.follower.base
    ns._connection.store.delete(keys.part_key(base.runs(kind)[0].unique))
    assert segments(memory.open(mode="r")) == segments(ns) == planned(ns) != (0, 0)


# --- the handle -------------------------------------------------------------------------------------------------------


def test_requests_are_those_that_the_handle_counts(memory: Place) -> None:
    ns = memory.orders(1)
    found = metrics(ns)["handle_store_requests"]
    for (call, kind), count in ns.store_requests.items():
        assert found.total(call=call, kind=kind) == count
    assert found.total(call="put", kind="segment") == 1


def test_every_way_to_commit_is_in_the_histogram_and_failures_are_not(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    row = rows(1)

    def count() -> float:
        return metrics(ns)["handle_commit_duration_seconds"].value("_count")

    assert count() == 0
    ns.produce("orders", row)
    with ns.begin() as txn:
        txn.produce("orders", row)
    later = ns.begin()
    later.produce("orders", row)
    later.commit_async().result()
    later.commit()
    assert count() == 3
    assert metrics(ns)["handle_commit_failures"].samples == {}
    failed = ns.begin()
    failed.produce("orders", row)
    store.script.append("refused")
    with raises(StoreError):
        failed.commit()
    store.script.append("refused")
    with raises(StoreError):
        ns.produce("orders", row)
    assert (count(), value(ns, "handle_commit_failures", error="StoreError")) == (3, 2)
    failed.commit()
    assert count() == 4


def test_a_duration_is_in_the_bucket_of_the_next_bound(memory: Place) -> None:
    ns = memory.orders()
    times = ns._connection.session.commit_times
    for milliseconds in (0.2, 1.0, 1.1, 60_000.0):
        times.note(milliseconds)
    found = metrics(ns)["handle_commit_duration_seconds"]
    buckets = {bound: found.value("_bucket", le=bound) for bound in ("0.001", "0.0025", "30.0", "+Inf")}
    assert buckets == {"0.001": 2, "0.0025": 3, "30.0": 3, "+Inf": 4}
    assert found.value("_sum") == pytest.approx(60.0023)


def test_lost_races_are_counted(pair: Any) -> None:
    ns, store, rival = pair
    assert value(ns, "handle_lost_races") == 0
    store.script.append(lambda: rival.produce("audit", rows(1)))
    ns.produce("orders", rows(1))
    assert value(ns, "handle_lost_races") == 1
    assert value(rival, "handle_lost_races") == 0


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_closed_handle_says_so_as_in_every_other_call(memory: Place) -> None:
    ns = memory.orders(1)
    ns.close()
    for call in (ns.metrics, ns.history, lambda: ns.table("files"), ns.topics):
        with raises(InvalidTransactionState, "was closed"):
            call()


def test_partitions_is_true_or_false(memory: Place) -> None:
    with raises(InvalidInputError, "partitions is True or False"):
        memory.orders().metrics(partitions="no")
