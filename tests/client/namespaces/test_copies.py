"""A copy that docs/python.md makes while others write is the namespace at the version where it began."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

import txnlog
from tests.client.support import SCHEMA, Place, begun, raises, read, rows
from tests.pages import blocks, page, section
from txnlog.errors import InvalidInputError


class Writer:
    """Somebody who goes on with everything that there is to do, a step at a time."""

    def __init__(self, ns: Any) -> None:
        self.ns = ns
        self.numbers = itertools.count()
        ns.create_topic("orders", SCHEMA, partitions=2)
        ns.create_topic("audit", SCHEMA)
        self.consumer = ns.consumer("orders", "billing")

    def step(self) -> None:
        number = next(self.numbers)
        with self.ns.begin() as txn:
            txn.produce("orders", rows(number), partition=number % 2)
            txn.produce("audit", rows(number))
            if number % 3 == 0:
                txn.acknowledge(self.consumer.receive(timeout_ms=0))
        match number % 5:
            case 0:
                self.ns.checkpoint()
            case 1:
                self.ns.begin().prepare()
            case 2:
                self.ns.create_topic(f"later-{number}", SCHEMA)
                self.ns.produce(f"later-{number}", rows(1))
            case 3:
                txn = begun(self.ns, -1, topic="audit", flush=True)
                txn.abort()


@pytest.mark.clause("P-104", "P-126")
@pytest.mark.parametrize("before", [0, 3, 12])
def test_a_copy_under_a_writer_at_work_is_the_namespace_where_it_began(
    local: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    ns = local.open("shop")
    writer = Writer(ns)
    for _ in range(before):
        writer.step()
    began = ns.snapshot().version
    copytree = shutil.copytree

    steps = iter(range(60))

    def copy_and_go_on(source: str, target: str) -> None:
        if next(steps, None) is not None:
            writer.step()
        shutil.copy2(source, target)

    def slowly(source: str, target: str, *args: Any, **options: Any) -> Any:
        if not args and source.endswith("/shop"):  # the call of the page, and not those for the folders below
            options["copy_function"] = copy_and_go_on
        return copytree(source, target, *args, **options)

    monkeypatch.setattr(shutil, "copytree", slowly)
    copying, adopting = blocks(section(page("docs/python.md"), "A copy of a live namespace"))
    names: dict[str, Any] = {"txnlog": txnlog}

    def follow(code: str) -> None:
        exec(code.replace("/tmp/lake-copy", f"{tmp_path}/copy").replace("/tmp/lake", local.root), names)

    follow(copying)
    assert ns.snapshot().version > began + 5, "it was written to meanwhile"

    copy = Place("local", f"{tmp_path}/copy")
    with copy.open("shop", mode="r") as found:
        then = ns.snapshot(began)
        for topic in ("orders", "audit"):
            assert found.snapshot().version == began
            assert in_order(found.snapshot(), topic) == in_order(then, topic)
        assert found.topics() == then.topics()
        expected = found.subscription("orders", "billing")
    with raises(InvalidInputError, match=r"adopt_namespace\('shop'\)"):
        copy.open("shop")
    follow(adopting)
    with copy.open("shop") as found:
        found.produce("audit", rows(99))
        assert read(found, "audit") == [*range(before), 99]
        assert found.subscription("orders", "billing") == expected
        assert found.consumer("orders", "billing")
    copy.close()


def in_order(snapshot: Any, topic: str) -> list[dict[str, Any]]:
    """The rows of a topic with their metadata."""
    found = snapshot.read(topic, include_metadata=True).to_pylist()
    return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))
