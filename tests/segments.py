"""Files of segments as tests want them: streams of batches as files, and the checksum of a footer."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import pyarrow as pa

from txnlog.common.limits import TARGET_SEGMENT_BYTES
from txnlog.data.parquet_pages import TAIL_BYTES, footer_length
from txnlog.data.segment_file import EncodedSegment, SegmentWriter


def encode_many(
    batches: Iterable[pa.Table | pa.RecordBatch], schema: pa.Schema, target_bytes: int = TARGET_SEGMENT_BYTES
) -> Iterator[EncodedSegment]:
    """Segments of about ``target_bytes`` from a stream of batches, as they become full."""
    writer = SegmentWriter(schema, target_bytes)
    for batch in batches:
        yield from writer.write(batch)
    yield from writer.finish()


def footer_checksum(data: bytes) -> str:
    """The ``footer-crc32:`` checksum of a Parquet file; of all of it where it claims a footer longer than itself."""
    start = len(data) - TAIL_BYTES - footer_length(data[-TAIL_BYTES:])
    return f"footer-crc32:{zlib.crc32(data[max(0, start) :]):08x}"
