"""Segment files: what their writer records, and what a reader verifies before a row leaves them."""

from __future__ import annotations

import io
import math
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from txnlog.common.limits import MAX_FOOTER_BYTES
from txnlog.data import segment_file
from txnlog.errors import CorruptionError

TABLE = pa.table(
    {
        "id": pa.array(range(200), pa.int64()),
        "name": pa.array([None if n % 7 == 0 else f"name-{n:03d}-" + "x" * 40 for n in range(200)]),
        "size": pa.array([n / 3 for n in range(200)], pa.float64()),
    }
)
ENCODED = segment_file.encode(TABLE)


def decode(data: bytes, checksum: str = ENCODED.checksum, rows: int = 200) -> pa.Table:
    return segment_file.decode(data, checksum, schema=TABLE.schema, rows=rows, key="orders/7")


def footer_checksum(data: bytes) -> str:
    """The other form of the checksum: of the footer, from its first byte to the file's last."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return f"footer-crc32:{zlib.crc32(data[start:]):08x}"


@pytest.mark.clause("P-105")
def test_the_checksum_is_zlibs_crc32_of_the_whole_file():
    assert ENCODED.checksum == f"crc32:{zlib.crc32(ENCODED.data):08x}"


@pytest.mark.clause("P-105")
def test_every_page_carries_a_checksum():
    file = pa.BufferReader(ENCODED.data)
    pq.read_table(file, page_checksum_verification=True)
    chunk = pq.ParquetFile(pa.BufferReader(ENCODED.data)).metadata.row_group(0).column(0)
    start = chunk.data_page_offset
    damaged = bytearray(ENCODED.data)
    damaged[start + chunk.total_compressed_size - 1] ^= 1
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_table(pa.BufferReader(bytes(damaged)), page_checksum_verification=True)


@pytest.mark.clause("P-106")
@pytest.mark.parametrize("checksum", [ENCODED.checksum, footer_checksum(ENCODED.data)], ids=["whole", "footer"])
def test_a_file_that_is_as_recorded_gives_its_rows(checksum):
    assert decode(ENCODED.data, checksum).equals(TABLE)


@pytest.mark.clause("P-106")
@pytest.mark.parametrize("checksum", [ENCODED.checksum, footer_checksum(ENCODED.data)], ids=["whole", "footer"])
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_flipped_bit_is_found_or_changes_nothing(checksum, data):
    damaged = bytearray(ENCODED.data)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        rows = decode(bytes(damaged), checksum)
    except CorruptionError:
        return
    assert checksum.startswith("footer"), "of the whole file nothing may differ"
    assert rows.equals(TABLE)


@pytest.mark.clause("P-106", "P-140")
@pytest.mark.parametrize("checksum", [ENCODED.checksum, footer_checksum(ENCODED.data)], ids=["whole", "footer"])
def test_a_file_of_another_size_is_damage(checksum):
    for damaged in (b"", ENCODED.data[:8], ENCODED.data[:-1], ENCODED.data[:-100], ENCODED.data + b"\0"):
        with pytest.raises(CorruptionError):
            decode(damaged, checksum)
        if len(damaged) > len(ENCODED.data) and checksum.startswith("footer"):
            continue  # what lies behind the recorded size is not looked at, and is no row
        with pytest.raises(CorruptionError):
            segment_file.decode_from(
                io.BytesIO(damaged),
                checksum,
                size_bytes=len(ENCODED.data),
                schema=TABLE.schema,
                rows=200,
                key="orders/7",
            )


@pytest.mark.clause("P-107")
@pytest.mark.parametrize("rows", [0, 199, 201])
@pytest.mark.parametrize("checksum", [ENCODED.checksum, footer_checksum(ENCODED.data)], ids=["whole", "footer"])
def test_another_number_of_rows_than_the_log_says_is_damage(checksum, rows):
    with pytest.raises(CorruptionError):
        decode(ENCODED.data, checksum, rows)


@pytest.mark.clause("P-140")
@pytest.mark.parametrize("claimed", [MAX_FOOTER_BYTES + 1, (1 << 32) - 1, len(ENCODED.data)])
def test_a_footer_that_claims_too_much_is_refused_unread(claimed):
    data = ENCODED.data[:-8] + claimed.to_bytes(4, "little") + b"PAR1"
    for checksum in (f"crc32:{zlib.crc32(data):08x}", "footer-crc32:00000000"):
        with pytest.raises(CorruptionError):
            decode(data, checksum)


@pytest.mark.clause("P-108")
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.none() | st.text(max_size=60), min_size=1, max_size=20),
    st.lists(st.none() | st.floats(), min_size=1, max_size=20),
)
def test_bounds_hold_or_are_not_given(texts, numbers):
    for values, kind in ((texts, pa.string()), (numbers, pa.float64())):
        encoded = segment_file.encode(pa.table({"x": pa.array(values, kind)}))
        low, high, nulls = encoded.statistics["x"]
        present = [value for value in values if value is not None]
        assert nulls is None or nulls == len(values) - len(present)
        if any(isinstance(value, float) and math.isnan(value) for value in present):
            assert (low, high) == (None, None)
        for bound in (low, high):
            assert not isinstance(bound, float) or math.isfinite(bound)
        if low is not None:
            assert all(low <= value for value in present)
        if high is not None:
            assert all(value <= high for value in present)
