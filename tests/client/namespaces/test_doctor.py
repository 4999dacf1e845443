"""What ``ns.doctor()`` says of the store, of the rights and the clock of this client, and of what is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.support import Place, objects, raises, rows
from txnlog.api.doctor import surroundings
from txnlog.common.installed import is_supported, supported_versions
from txnlog.errors import AccessDenied, InvalidInputError, ReadOnly
from txnlog.fold import apply
from txnlog.results import DoctorFinding, DoctorReport
from txnlog.store import ForwardingStore, Store
from txnlog.store.base import ObjectInfo
from txnlog.store.identity import StoreIdentity
from txnlog.testing import ManualClock


class Denying(ForwardingStore):
    """A store that refuses calls on some keys."""

    def __init__(self, store: Store, **denied: str) -> None:
        super().__init__(store)
        self.denied = denied

    def put(self, key: str, data: bytes) -> None:
        self._check("write", key)
        super().put(key, data)

    def delete(self, key: str) -> None:
        self._check("delete", key)
        super().delete(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._check("list", prefix)
        return super().list(prefix)

    def _check(self, right: str, key: str) -> None:
        part = self.denied.get(right)
        if part is not None and part in key:
            raise AccessDenied(f"no right to {right} {key}", right=right, url=key)


def shown(report: DoctorReport) -> list[tuple[str, str, str]]:
    return [(item.severity, item.kind, item.about) for item in report.findings]


def test_a_healthy_namespace(memory: Place) -> None:
    report = memory.orders(1).doctor()
    assert (report.is_healthy, report.findings, report.of("problem")) == (True, (), ())
    assert report.seen["right to write"] == "not tried: only with probe=True"
    page = report._repr_html_()
    assert "<th>right to list</th><td>yes</td>" in page
    assert "<em>none</em>" in page


def test_a_finding_speaks_python(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(clock=clock)
    ns.create_subscription("orders", "billing")
    ns.produce("orders", rows(1))
    clock.advance(3 * 86_400_000)
    report = ns.doctor()
    (found,) = report.of("warning")
    assert str(found) == (
        "warning: orders/billing: 1 messages are not acknowledged, the oldest for 3 days "
        "(start its consumer, or, if nobody needs it, ns.drop_subscription('orders', 'billing'))"
    )
    assert found.command == "subscription drop orders billing"
    assert "<td>orders/billing</td>" in report._repr_html_()
    assert not report.is_healthy


def test_a_subscription_that_nobody_reads_comes_with_what_retention_keeps_for_it(
    memory: Place, clock: ManualClock
) -> None:
    ns = memory.orders(clock=clock)
    ns.alter_topic("orders", retention_ms=86_400_000)
    ns.create_subscription("orders", "billing")
    ns.produce("orders", rows(1, 2))
    clock.advance(2 * 86_400_000)
    ns.produce("orders", rows(3))
    clock.advance(60_000)
    (found,) = [item for item in ns.doctor().of("warning") if item.kind == "subscription"]
    assert found.message == (
        "3 messages are not acknowledged, the oldest for 2 days; retention keeps 2 messages for it"
    )


def test_a_reader_looks_and_does_not_probe(memory: Place) -> None:
    memory.orders(1)
    reader = memory.open(mode="r")
    before = set(objects(memory.store()))
    assert reader.doctor().is_healthy
    with raises(ReadOnly):
        reader.doctor(probe=True)
    with raises(InvalidInputError, match="probe is True or False"):
        reader.doctor(probe="yes")
    assert set(objects(memory.store())) == before


@pytest.mark.parametrize(
    ("denied", "about", "seen"),
    [
        ({"write": "sales/_probe/"}, ["right to write"], ("no", "not tried: no right to write")),
        ({"delete": "sales/_probe/"}, [], ("yes", "no")),
        ({"write": "sales/_hints/"}, ["right to write heartbeats"], ("yes", "yes")),
        ({"list": "sales/_probe/"}, ["right to list"], ("yes", "yes")),
        ({}, [], ("yes", "yes")),
    ],
)
def test_a_right_that_is_missing(
    memory: Place, denied: dict[str, str], about: list[str], seen: tuple[str, str]
) -> None:
    memory.orders(1)
    ns = memory.open(wrap=lambda store: Denying(store, **denied))
    before = set(objects(memory.store()))
    report = ns.doctor(probe=True)
    assert shown(report) == [("problem", "rights", name) for name in about]
    assert (report.seen["right to write"], report.seen["right to delete"]) == seen
    left = sorted(set(objects(memory.store())) - before)
    if denied.get("delete"):
        assert [key.rpartition("/")[0] for key in left] == ["sales/_probe"] * len(left)
        assert report.seen["right to write heartbeats"].startswith("not tried: ")
    else:
        assert left == []
    if about:
        assert "docs/operations/access.md" in report.findings[0].advice
        assert report.findings[0].message.startswith("no right to ")


class Late(ForwardingStore):
    """A store whose clock is two minutes behind."""

    def info(self, key: str) -> ObjectInfo:
        found = super().info(key)
        return ObjectInfo(found.key, found.size_bytes, found.modified_ms - 120_000)


def test_a_clock_that_is_ahead_of_the_store(memory: Place) -> None:
    memory.orders(1)
    ns = memory.open(wrap=Late)
    assert ns.doctor().is_healthy
    report = ns.doctor(probe=True)
    assert shown(report) == [("problem", "clock", "this machine")]
    assert "s ahead of the store's: it may not write" in report.findings[0].message
    assert memory.open().doctor(probe=True).is_healthy


def test_a_log_whose_time_is_ahead_of_this_machine(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(1, clock=clock)
    clock.advance(3 * 3_600_000)
    ns.produce("orders", rows(2))
    clock.advance(-3 * 3_600_000)
    report = ns.doctor()
    assert shown(report) == [("warning", "clock", "time of the log")]
    assert "is 3 hours ahead of this machine's clock" in report.findings[0].message
    clock.advance(3 * 3_600_000)
    assert ns.doctor().is_healthy


class Unsafe(ForwardingStore):
    """A store that looks first and writes then."""

    @property
    def identity(self) -> StoreIdentity:
        return StoreIdentity("fsspec/ftp", "0123456789abcdef", sends_condition=False)


def test_a_store_that_cannot_decide(memory: Place) -> None:
    memory.orders(1)
    report = memory.open(mode="r", wrap=Unsafe).doctor()
    assert shown(report) == [("problem", "store", "fsspec/ftp")]
    assert "docs/stores.md" in report.findings[0].advice


def test_who_may_not_read_the_root_does_not_know_of_the_test(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ns = memory.orders(1)

    def denied(_session: Any) -> bool:
        raise AccessDenied("no right to read _catalog", right="read", url="_catalog")

    monkeypatch.setattr(type(ns._connection.session), "has_verdict", denied)
    report = ns.doctor()
    assert report.is_healthy
    assert report.seen["test of the store"] == "not known: no right to read the list of the root"


def test_a_package_of_another_version(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ns = memory.orders(1)
    versions = {"pyarrow": "99.0", "pyspark": "4.2.0"}
    monkeypatch.setattr(surroundings, "installed_version", versions.get)
    monkeypatch.setattr(surroundings, "supported_versions", {"pyarrow": "<27,>=24", "pyspark": "<4.3,>=4.0"}.get)
    report = ns.doctor()
    assert shown(report) == [("warning", "versions", "pyarrow")]
    assert report.findings[0].advice == "pip install 'pyarrow<27,>=24'"
    assert (report.seen["pyspark"], "delta-spark" in report.seen) == ("4.2.0", False)
    versions["pyarrow"] = "26.0.1"
    assert ns.doctor().is_healthy


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("26.0.1", "<27,>=24", True),
        ("27", "<27,>=24", False),
        ("27.0.0.dev3", "<27,>=24", False),
        ("24", ">=24.0", True),
        ("23.9", ">=24", False),
        ("4.4.0", "==4.4", True),
        ("4.4.1", "==4.4.0", False),
        ("4.4.1", "==4.4.*", True),
        ("4.4.1", "!=4.4.1", False),
        ("4.4.1", "~=4.4", True),
        ("5.0", "~=4.4", False),
        ("4.4", ">4.4", False),
        ("4.5", "<=4.4", False),
        ("4.4", "<=4.4", True),
        ("unknown", "<27", True),
        ("26", "an unknown clause", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, wanted: str, fits: bool) -> None:
    assert is_supported(version, wanted) is fits


def test_the_distribution_says_which_versions_it_is_made_for() -> None:
    assert supported_versions("python") == ">=3.11"
    assert (supported_versions("pyarrow") or "").startswith("<27") or supported_versions("pyarrow") == ">=24,<27"
    assert "4.2.0" not in (supported_versions("pyspark") or ""), "that is what developers have"
    assert supported_versions("pytest") is None


def test_features_of_the_format_are_seen_and_those_that_this_client_lacks_are_a_problem(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = memory.orders(1)
    with monkeypatch.context() as patch:
        patch.setattr(apply, "WRITER_FEATURES", frozenset({"archive"}))
        ns.enable("archive")
        report = ns.doctor()
        assert report.is_healthy
        assert report.seen["format"] == "version 1; writers need 'archive'"
    report = memory.open(mode="r").doctor()
    assert shown(report) == [("problem", "format", "format")]
    assert report.findings[0].advice.startswith("use a newer txnlog")


def test_problems_come_first(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(clock=clock)
    ns.create_subscription("orders", "billing")
    ns.produce("orders", rows(1))
    clock.advance(3 * 86_400_000)
    report = memory.open(mode="r", wrap=Unsafe, clock=clock).doctor()
    assert [item.severity for item in report.findings] == ["problem", "warning"]
    assert isinstance(report.findings[0], DoctorFinding)
