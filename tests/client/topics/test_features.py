"""Features of the format: enabled on demand, never by a newer client, never taken back (P-134 to P-137)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import Place, Unchanged, busy, raises, read, rows
from txnlog.errors import ReadOnly, UnsupportedFeature
from txnlog.fold import apply
from txnlog.format.actions import Protocol


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A txnlog that knows two features."""
    monkeypatch.setattr(apply, "READER_FEATURES", frozenset({"columns"}))
    monkeypatch.setattr(apply, "WRITER_FEATURES", frozenset({"columns", "archive"}))


def protocols(ns: Any) -> list[Protocol]:
    """The protocol actions of a log."""
    entries = [ns._connection.follower.log.entry(version) for version in range(ns.snapshot().version + 1)]
    return [action for entry in entries for action in entry.actions if isinstance(action, Protocol)]


@pytest.mark.clause("P-137")
@pytest.mark.usefixtures("newer")
def test_a_newer_client_enables_nothing_by_itself(memory: Place) -> None:
    ns = memory.open()
    busy(ns, 1)
    ns.vacuum()
    with memory.open() as other:
        other.produce("orders", rows(1))
    assert protocols(ns) == [Protocol(1, 1)]


@pytest.mark.clause("P-136", "P-137")
@pytest.mark.usefixtures("newer")
def test_a_feature_is_enabled_on_demand_together_with_the_earlier_ones(sales: Any, memory: Place) -> None:
    sales.enable("archive")
    memory.open().enable("columns")
    with Unchanged(memory):
        sales.enable("archive")
        sales.enable("columns")
    assert protocols(sales)[1:] == [
        Protocol(1, 1, (), ("archive",)),
        Protocol(1, 1, ("columns",), ("archive", "columns")),
    ]
    sales.produce("orders", rows(1))
    assert read(memory.open()) == [1]


@pytest.mark.clause("P-135", "P-137")
def test_an_older_client_reads_a_log_with_a_writer_feature_and_does_not_append(
    sales: Any, memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(apply, "WRITER_FEATURES", frozenset({"archive"}))
        sales.produce("orders", rows(1))
        sales.enable("archive")
    assert read(memory.open(mode="r")) == [1]
    with Unchanged(memory), raises(UnsupportedFeature, match="archive"):
        sales.produce("orders", rows(2))


@pytest.mark.clause("P-137")
@pytest.mark.parametrize("feature", ["archive", "", None, 7])
def test_what_this_txnlog_does_not_know_is_not_enabled(sales: Any, memory: Place, feature: Any) -> None:
    with Unchanged(memory), raises(UnsupportedFeature, match="knows no feature") as caught:
        sales.enable(feature)
    assert caught.value.advice == "there are: holes"


@pytest.mark.usefixtures("newer")
def test_a_reader_enables_nothing(sales: Any, memory: Place) -> None:
    with raises(ReadOnly):
        memory.open(mode="r").enable("archive")
