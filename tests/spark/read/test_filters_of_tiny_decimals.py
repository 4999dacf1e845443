"""The option ``filters`` on decimals: a number with more places than the column is refused, however many it has."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_ext.read.filters import conditions_of
from spark_ext.support.options import read_options
from tests.spark.runs import batch
from txnlog.api.namespace import Namespace
from txnlog.errors import InvalidInputError

PRICE = pa.schema([("price", pa.decimal128(9, 2))])
REFUSED = "a number with at most 2 decimals is wanted"


def given(operator: str, value: Any) -> Any:
    return read_options(
        {"path": "/a/b/c", "filters": json.dumps([["price", operator, value]])}, streaming=False
    ).filters


@pytest.mark.parametrize("places", [3, 39, 41, 61, 77, 100])
def test_a_number_with_more_places_is_refused(places: int) -> None:
    with pytest.raises(InvalidInputError, match=REFUSED):
        conditions_of(given("<", f"1E-{places}"), PRICE)


def test_a_price_that_is_below_a_tiny_number_is_not_left_out(namespace: Namespace) -> None:
    """``price < 1E-77`` holds of 0.00, and ``price = 1E-77`` of no price: refused, or right, but nothing else."""
    namespace.create_topic("prices", PRICE)
    namespace.produce("prices", [{"price": Decimal("0.00")}, {"price": Decimal("1.00")}])
    for operator, wanted in (("<", [Decimal("0.00")]), ("=", [])):
        try:
            found = batch(namespace, "prices", filters=json.dumps([["price", operator, "1E-77"]]))
        except InvalidInputError:
            continue
        assert [row["price"] for row in found] == wanted, operator


@pytest.mark.parametrize("number", ["1E-999999999", "0E-999999999"])
def test_a_number_with_very_many_places_does_not_end_the_process(number: str) -> None:
    code = (
        "import pyarrow as pa\nfrom spark_ext.read.filters import conditions_of\n"
        "from txnlog.errors import InvalidInputError\n"
        f"try:\n    conditions_of((('price', '=', {number!r}),), pa.schema([('price', pa.decimal128(9, 2))]))\n"
        "except InvalidInputError:\n    pass\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
