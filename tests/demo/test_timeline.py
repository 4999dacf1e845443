"""The history of a log, and its picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pyarrow as pa
import pytest

import txnlog
from examples.demo.history import CURSOR_LANE, read_history
from examples.demo.kills import Kill, Place
from examples.demo.runs import Death
from examples.demo.timeline import draw, figure_of

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = [{"id": number} for number in range(100)]


@pytest.fixture
def ns(tmp_path):
    """A load, an aborted batch, two batches of a pipeline, an open transaction, a file that no entry names."""
    with txnlog.open(tmp_path, "airport", create=True) as handle:
        handle.create_topic("flights", SCHEMA)
        handle.create_topic("delays", SCHEMA)
        handle.create_subscription("flights", "pipeline")
        handle.produce("flights", ROWS)
        aborted = handle.begin()
        aborted.produce("flights", ROWS[:7])
        aborted.flush()
        aborted.abort()
        consumer = handle.consumer("flights", "pipeline")
        for size in (60, 40):
            messages = consumer.receive(max_messages=size)
            with handle.begin() as txn:
                txn.produce("delays", ROWS[: size // 10])
                txn.acknowledge(messages, cumulative=True)
        opened = handle.begin()
        opened.produce("delays", ROWS[:1])
        opened.flush()
        handle._connection.store.put(f"delays/_txnlog_segment=999999/{'a' * 32}.parquet", b"")
        yield handle


@pytest.fixture
def history(ns):
    return read_history(ns, "flights", "pipeline", ["delays"])


def test_the_history_begins_with_the_first_transaction_and_misses_no_entry(ns, history):
    versions = [entry.version for entry in history.entries]
    assert versions == list(range(versions[0], ns.snapshot().version + 1))
    assert history.entries[0].what == "commit"


def test_the_history_knows_what_each_transaction_did_and_how_it_ended(history):
    assert [(item.lane, item.state, item.messages) for item in history.work] == [
        ("flights", "COMMITTED", 100),
        ("flights", "ABORTED", 7),
        ("delays", "COMMITTED", 6),
        (CURSOR_LANE, "COMMITTED", 60),
        ("delays", "COMMITTED", 4),
        (CURSOR_LANE, "COMMITTED", 40),
        ("delays", "OPEN", 1),
    ]


def test_outputs_and_cursor_of_a_batch_end_in_the_same_entry(history):
    batches = [item for item in history.work if item.lane != "flights" and item.state == "COMMITTED"]
    assert batches[0].last == batches[1].last
    assert batches[2].last == batches[3].last


def test_a_transaction_that_was_flushed_is_open_between_two_entries(history):
    aborted = next(item for item in history.work if item.state == "ABORTED")
    assert aborted.last == aborted.first + 1


def test_a_file_that_no_entry_names_is_a_leftover(history):
    assert [item.lane for item in history.leftovers] == ["delays"]


def deaths_in(history):
    times = [entry.at_ms for entry in history.entries]
    return [Death(Kill(place, number), times[-1]) for number, place in enumerate(Place)]


def test_the_picture_is_svg_with_the_same_bytes_every_time(history, tmp_path):
    for name in ("one.svg", "two.svg"):
        draw(history, deaths_in(history), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert ET.parse(tmp_path / "one.svg").getroot().tag.endswith("svg")


def test_the_picture_names_its_lanes_and_kills(history):
    (axes,) = figure_of(history, deaths_in(history)).axes
    texts = {text.get_text().replace("\n", " ") for text in axes.texts}
    assert {"before the data", "between data and entry", "after the entry", "4"} <= texts
    assert [label.get_text().replace("\n", " ") for label in axes.get_yticklabels()] == [
        "flights",
        CURSOR_LANE,
        "delays",
    ]


def test_each_state_has_a_filling_of_its_own(history):
    (axes,) = figure_of(history, deaths_in(history)).axes
    fillings = {(box.get_hatch(), box.get_facecolor() == (1, 1, 1, 1)) for box in axes.patches if box.get_zorder() == 2}
    assert fillings == {(None, True), (None, False), ("//////", True)}
