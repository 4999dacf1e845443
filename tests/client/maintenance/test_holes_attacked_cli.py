"""What the command line erases is what was asked for."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import txnlog
from txnlog.cli.main import main

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("day", pa.date32()),
        pa.field("small", pa.int8()),
        pa.field("flag", pa.bool_()),
    ]
)


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ('["id", "==", 1.5]', [1, 2, 3]),
        ('["id", "in", [1.5, 2.5]]', [1, 2, 3]),
        ('["id", "==", true]', [1, 2, 3]),
        ('["id", "<", 2.5]', [3]),
        ('["small", "==", 1.5]', [1, 2, 3]),
        ('["amount", "==", 1]', [2, 3]),
        ('["day", "==", "2026-01-01"]', [2, 3]),
        ('["day", "==", 20454.5]', [1, 2, 3]),
        ('["flag", "==", 5]', [1, 2, 3]),
        ('["amount", "==", 1.005]', [1, 2, 3]),
        ('["amount", "==", "1.00"]', [2, 3]),
    ],
)
def test_erased_is_what_was_asked_for(tmp_path: Path, condition: str, left: list[int]) -> None:
    root = str(tmp_path / "lake")
    with txnlog.open(root, namespace="sales", create=True) as ns:
        ns.enable("holes")
        ns.create_topic("orders", SCHEMA)
        ns.produce(
            "orders",
            [{"id": n, "amount": Decimal(n), "day": dt.date(2026, 1, n), "small": n, "flag": True} for n in (1, 2, 3)],
        )
    code = None
    try:
        main([f"{root}/sales", "erase", "orders", "--where", condition, "--yes", "--json"])
    except SystemExit as error:
        code = error.code
    with txnlog.open(root, namespace="sales", mode="r") as ns:
        found = sorted(ns.snapshot().read("orders").column("id").to_pylist())
    assert found == left or (code == 2 and found == [1, 2, 3])


@pytest.mark.parametrize(
    "condition", ['["id", [], 1]', '["id", "==", 99999999999999999999999]', '["nope", "in", [1, "a"]]']
)
def test_no_condition_ends_in_a_traceback(tmp_path: Path, condition: str) -> None:
    root = str(tmp_path / "lake")
    with txnlog.open(root, namespace="sales", create=True) as ns:
        ns.enable("holes")
        ns.create_topic("orders", SCHEMA)
    with pytest.raises(SystemExit) as caught:
        main([f"{root}/sales", "erase", "orders", "--where", condition, "--yes"])
    assert caught.value.code in {2, 3}
