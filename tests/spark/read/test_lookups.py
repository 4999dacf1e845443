"""The look-ups that native scans are made of: constants by segment number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.read import native_scan, segment_constants
from spark_ext.read.segment_constants import Places
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.ids import Coordinators, TxnId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


numbers_of_any_shape = st.one_of(
    st.lists(st.integers(0, MAX_NUMBER), min_size=1, max_size=300, unique=True),
    st.lists(st.integers(0, 600), min_size=1, max_size=300, unique=True),
    st.builds(
        lambda first, step, count: [first + step * n for n in range(count)],
        st.integers(0, 1 << 40),
        st.sampled_from([1, 2, 3, 256, 65_792, 1 << 20]),
        st.integers(1, 400),
    ),
)


@settings(deadline=None)
@given(numbers_of_any_shape)
def test_every_number_has_a_place_of_its_own(numbers: list[int]) -> None:
    places = Places.of(numbers)
    assert len(set(places.given)) == len(numbers)
    assert all(0 <= place < places.size for place in places.given)
    assert places.size <= max(4_096, 6 * len(numbers) + 1)
    arranged = places.arrange([str(number) for number in numbers], "")
    assert [arranged[place] for place in places.given] == [str(number) for number in numbers]


SHAPES = {
    "one": [5],
    "dense": [3, 4, 7, 8],
    "dense from nought": [0, 1, 2],
    "one level": [2, 70_000, 5_000_000_001, (1 << 62) + 3],
    "one level from nought": [0, 1 << 62, MAX_NUMBER],
    "two levels": [(n * n * 7919 + 13) % (1 << 61) for n in range(1, 400)],
    "two levels from nought": [0, *((n * n * 104_729) % (1 << 50) for n in range(1, 200))],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_spark_finds_the_place_of_every_number(spark: SparkSession, shape: str) -> None:
    numbers = SHAPES[shape]
    places = Places.of(numbers)
    levels = {0: "one" if len(numbers) == 1 else "dense", 1: "one level"}.get(len(places.offsets), "two levels")
    assert shape.startswith(levels)
    cells = places.arrange([-number for number in numbers], 0)
    words = places.arrange([f"w{number}" for number in numbers], "")
    blobs = places.arrange([TxnId(7, number).to_bytes() for number in numbers], b"\0" * 16)
    frame = spark.createDataFrame([(number,) for number in numbers], "n BIGINT")
    place = places.place(F.col("n"))
    found = frame.select(
        "n",
        place.alias("p"),
        segment_constants.number(cells, place),
        segment_constants.text(words, place),
        segment_constants.blob(blobs, place),
    ).collect()
    assert dict(frame.select(place.alias("p")).dtypes) == {"p": "int"}
    assert [tuple(row) for row in found] == [
        (number, where, -number, f"w{number}", bytearray(TxnId(7, number).to_bytes()))
        for number, where in zip(numbers, places.given, strict=True)
    ]


EDGES = [0, 1, 15, 16, 255, 1 << 32, (1 << 55) - 1, 1 << 55, (1 << 56) - 1, 1 << 56, (1 << 56) + 1, MAX_NUMBER - 1]


ADOPTED = Coordinators(((0, 7), (16, 0xFFFF), (16, 0x8000), (1 << 56, 9)))


@pytest.mark.some(5)
@pytest.mark.parametrize("coordinators", [*map(Coordinators.one, [0, 7, 0x8000, 0xFFFF]), ADOPTED], ids=repr)
@pytest.mark.parametrize("next_number", [2, (1 << 32) + 1, 1 << 56, (1 << 56) + 1, MAX_NUMBER])
def test_txn_ids_are_the_bytes_of_txn_id(spark: SparkSession, coordinators: Coordinators, next_number: int) -> None:
    numbers = [number for number in EDGES if number < next_number]
    frame = spark.createDataFrame([(number,) for number in numbers], "n BIGINT")
    found = frame.select(native_scan._txn_id_of(coordinators, F.col("n"), next_number)).collect()
    assert [bytes(row[0]) for row in found] == [coordinators.txn_id(number).to_bytes() for number in numbers]
