"""What ``top`` shows is a function of two readings and a size: rates, what comes first, and what fits."""

from __future__ import annotations

import dataclasses

import pytest

from txnlog.cli.top_frame import Line, Size, age, cells, commits_of_minute, frame, rate, record, size_text
from txnlog.cli.top_readings import Reading, SubscriptionReading, TopicReading
from txnlog.common.ids import TxnId
from txnlog.results import EntryInfo, TransactionInfo

NOW_MS = 1_795_867_200_000  # 2026-11-28T12:00:00Z
SMALL = Size(80, 24)


def entry(version, before_ms, commits=1):
    return EntryInfo(version, NOW_MS - before_ms, "writer", {"commit": commits}, commits, 300)


def topic(name, written=0, *, messages=None, number=1, files=1, size_bytes=2_048):
    return TopicReading(name, str(number), written, written if messages is None else messages, files, size_bytes)


def lag(name, messages, topic="orders", lag_ms=None, consumer=None):
    return SubscriptionReading(topic, name, consumer, messages, lag_ms)


def unended(number, age_ms, state="OPEN", deadline_ms=None, producer=None):
    opened_ms = NOW_MS - age_ms
    return TransactionInfo(TxnId(0, number), state, 7, opened_ms, None, producer, age_ms, deadline_ms)


def reading(topics=(), subscriptions=(), transactions=(), **changes):
    made = Reading(
        NOW_MS,
        "shop",
        12_345,
        600,
        NOW_MS - 192_000,
        tuple(transactions),
        {item.name: item for item in topics},
        {(item.topic, item.name): item for item in subscriptions},
        (entry(12_345, 2_000), entry(12_344, 30_000, 5), entry(12_343, 61_000)),
    )
    return dataclasses.replace(made, **changes)


def texts(*arguments):
    return [line.text for line in frame(*arguments)]


NOW = reading(
    [topic("orders", 9_000, messages=8_000, files=14, size_bytes=5 << 20), topic("audit", 250), topic("idle", 7)],
    [
        lag("billing", 12, lag_ms=125_000, consumer="worker-1"),
        lag("reports", 9_000, lag_ms=86_400_000 * 3, consumer="nightly"),
        lag("checks", 0, "audit"),
    ],
    [
        unended(9, 7_200_000, "PREPARED", producer="bank"),
        unended(10, 60_000, deadline_ms=NOW_MS - 6_000, producer="loader"),
        unended(12, 5_000, deadline_ms=NOW_MS + 55_000),
    ],
)
EARLIER = reading(
    [topic("orders", 8_000), topic("audit", 250), topic("idle", 7)],
    [lag("billing", 32), lag("reports", 8_000), lag("checks", 0, "audit")],
    at_ms=NOW_MS - 2_000,
)

FRAME = """\
shop  version 12,345  2026-11-28T12:00:00+00:00
commits/s 0.1 in the last minute, 3.1 in 3m12s of watching; newest 2s ago
transactions: 2 open, 1 prepared, 1 hanging

SUBSCRIPTION  TOPIC     LAG  OLDEST  CHANGE          CONSUMER
reports       orders  9,000   3d00h  grows 500/s     nightly
billing       orders     12   2m05s  shrinks 10.0/s  worker-1
checks        audit       0          same

TRANSACTION                       STATE       AGE  TIMES OUT  PRODUCER
0000000000000000000000000000000a  HANGING   1m00s     6s ago  loader
00000000000000000000000000000009  PREPARED  2h00m      never  bank
0000000000000000000000000000000c  OPEN         5s     in 55s

TOPIC   MESSAGES/S  MESSAGES    SIZE  FILES
orders         500     8,000  5.0MiB     14
audit          0.0       250  2.0KiB      1
idle           0.0         7  2.0KiB      1
"""


def test_a_frame_of_two_readings():
    assert texts(EARLIER, NOW, SMALL) == FRAME.splitlines()


def test_without_an_earlier_reading_there_are_no_rates():
    shown = texts(None, NOW, SMALL)
    assert shown[5:8] == [
        "reports       orders  9,000   3d00h          nightly",
        "billing       orders     12   2m05s          worker-1",
        "checks        audit       0",
    ]
    assert shown[-3:] == [
        "orders           -     8,000  5.0MiB     14",
        "audit            -       250  2.0KiB      1",
        "idle             -         7  2.0KiB      1",
    ]


def test_an_empty_namespace_says_so():
    now = reading(committed_since_ms=NOW_MS, entries=(entry(0, 500, 0),), version=0)
    assert texts(None, now, SMALL) == [
        "shop  version 0  2026-11-28T12:00:00+00:00",
        "commits/s 0.0 in the last minute; newest 500ms ago",
        "transactions: 0 open, 0 prepared, 0 hanging",
        "",
        "SUBSCRIPTION  TOPIC  LAG  OLDEST  CHANGE  CONSUMER",
        "(none)",
        "",
        "TRANSACTION  STATE  AGE  TIMES OUT  PRODUCER",
        "(none)",
        "",
        "TOPIC  MESSAGES/S  MESSAGES  SIZE  FILES",
        "(none)",
    ]


def many(count):
    return reading(
        [topic(f"topic-{number:03}", number) for number in range(count)],
        [lag(f"reader-{number:03}", number, f"topic-{number:03}") for number in range(count)],
        [unended(number, 1_000 * (count - number)) for number in range(count)],
    )


@pytest.mark.parametrize("size", [SMALL, Size(120, 50), Size(40, 12), Size(20, 5), Size(200, 1_000), Size(1, 1)])
def test_a_frame_fits_into_the_terminal(size):
    shown = frame(many(100), many(100), size, [Line("since noon: the store is away " * 9, "error")])
    assert len(shown) <= size.lines
    assert max(cells(line.text) for line in shown) <= size.columns


def test_what_matters_most_is_shown_where_not_all_fits():
    shown = texts(None, many(100), SMALL)
    assert len(shown) == SMALL.lines
    heads = [line.split("  ")[0] for line in shown if " of 100" in line]
    assert heads == ["SUBSCRIPTION 5 of 100", "TRANSACTION 5 of 100", "TOPIC 5 of 100"]
    assert [line.split()[0] for line in shown[5:10]] == [f"reader-{number:03}" for number in range(99, 94, -1)]
    assert [line.split()[2] for line in shown[12:17]] == ["1m40s", "1m39s", "1m38s", "1m37s", "1m36s"]
    assert [line.split()[0] for line in shown[19:]] == [f"topic-{number:03}" for number in range(99, 94, -1)]


def test_room_that_one_table_leaves_is_for_the_others():
    now = dataclasses.replace(many(100), unended=(), topics={"orders": topic("orders")})
    shown = texts(None, now, SMALL)
    assert len(shown) == SMALL.lines
    assert shown[4].startswith("SUBSCRIPTION 13 of 100")
    assert "TOPIC   MESSAGES/S" in shown[-2]
    assert len(texts(None, many(100), Size(80, 320))) == 3 + 3 * 102, "all of them"


def test_long_names_are_cut_and_numbers_are_not():
    long = "payments-of-all-customers-in-the-north-west-of-the-country"
    now = reading([topic(long, 1_234_567)], [lag(long, 1_234_567, long, 86_400_000, long)])
    shown = texts(now, now, SMALL)
    assert shown[5] == "payments-of-all…  payments-of-all…  1,234,567   1d00h          payments-of-all-…"
    assert len(shown[5]) == 80
    assert shown[11] == f"{long[:41]}…           -  1,234,567  2.0KiB      1"


def test_nothing_in_a_frame_controls_the_terminal():
    hostile = "\x1b]0;owned\x07\u202e"
    now = reading([topic("a")], [lag("b", 1, "a", consumer=hostile)], [unended(9, 5, producer=hostile)])
    shown = "".join(texts(None, now, SMALL))
    assert shown.count(r"\x1b]0;owned\x07\u202e") == 2
    assert not set(shown) & set(hostile) - set(r"\x1b]0;owned\x07\u202e")


def test_letters_that_need_two_columns_count_as_two():
    shown = [lag("b", 1, "a", consumer="処理" * 60), lag("c", 0, "a", consumer="e\u0301" * 3)]
    wide, marked = texts(None, reading(subscriptions=shown), SMALL)[5:7]
    assert wide.endswith("処理…")
    assert cells(wide) in {79, 80}
    assert cells(marked.split()[-1]) == 3


def test_hanging_transactions_and_errors_stand_out():
    shown = frame(EARLIER, NOW, SMALL, [Line("since noon: the store is away", "error")])
    assert [line.text.split()[1] for line in shown if line.style == "warning"] == ["HANGING"]
    assert shown[3] == Line("since noon: the store is away", "error")


def test_a_transaction_hangs_from_the_grace_behind_its_deadline_on():
    def states(before_ms):
        (line,) = texts(None, reading(transactions=[unended(9, 90_000, deadline_ms=NOW_MS - before_ms)]), SMALL)[8:9]
        return line.split()[1]

    assert [states(4_999), states(5_000)] == ["OPEN", "HANGING"]


def test_a_topic_that_was_made_again_has_no_rate():
    again = reading([topic("orders", 5, number=77)])
    assert record(EARLIER, again)["topics"][0]["messages_per_second"] is None


def test_where_a_clock_was_set_back_there_are_no_rates():
    found = record(dataclasses.replace(EARLIER, at_ms=NOW_MS + 1), NOW)
    assert {row["messages_per_second"] for row in found["topics"]} == {None}
    assert {row["lag_growth_per_second"] for row in found["subscriptions"]} == {None}


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([entry(9, 1_000, 30), entry(8, 60_000, 99)], (0.5, 60_000)),
        ([entry(9, 70_000, 99)], (0.0, 60_000)),
        ([entry(1, 1_000, 6), entry(0, 2_000, 0)], (0.1, 60_000)),
        ([entry(9, 1_000, 4), entry(8, 1_500, 6), entry(7, 2_000, 99)], (5.0, 2_000)),
        ([entry(9, 0, 4)], (None, 0)),
    ],
)
def test_commits_of_the_last_minute_or_as_far_as_entries_are_known(entries, found):
    assert commits_of_minute(reading(entries=tuple(entries))) == found


def test_programs_get_all_rows():
    found = record(many(100), many(100), "StoreError: away")
    assert [len(found[name]) for name in ("transactions", "topics", "subscriptions")] == [100] * 3
    assert (found["error"], found["open"], found["prepared"], found["hanging"]) == ("StoreError: away", 100, 0, 0)
    found = record(EARLIER, NOW)
    assert found["subscriptions"][0] == {
        "topic": "orders",
        "subscription": "billing",
        "lag_messages": 12,
        "lag_ms": 125_000,
        "lag_growth_per_second": -10.0,
        "consumer": "worker-1",
    }
    assert found["topics"][0] == {
        "topic": "orders",
        "messages_per_second": 500.0,
        "messages": 8_000,
        "size_bytes": 5 << 20,
        "files": 14,
    }


def test_numbers_as_texts():
    ages = [0, 999, 1_000, 59_999, 60_000, 3_599_999, 3_600_000, 86_399_999, 86_400_000, 86_400_000 * 1_000]
    assert [age(item) for item in ages] == [
        *("0ms", "999ms", "1s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d00h", "1,000d00h"),
    ]
    assert [rate(item) for item in (None, 0.0, 99.94, 99.95, 1_234.5)] == ["-", "0.0", "99.9", "100", "1,234"]
    sizes = [0, 1_023, 1_024, (1 << 20) - 1, 1 << 20, 5 << 30, 3 << 50]
    assert [size_text(item) for item in sizes] == ["0B", "1023B", "1.0KiB", "1.0MiB", "1.0MiB", "5.0GiB", "3,072.0TiB"]
