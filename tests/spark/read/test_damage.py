"""One flipped bit in a page is an error on every read path, and never a row.

50 pages of five kinds of files, 200 in a long run, and three read paths: txnlog's own read, the Spark format, the
native scan.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException

import spark_ext
import txnlog
from spark_ext.source import TxnLogDataSource
from tests.by_hand import append, compact, lay
from tests.effort import DAY, tries
from tests.segments import encode_many, footer_checksum
from tests.spark.support import path_of
from txnlog.data.parquet_pages import (
    TAIL_BYTES,
    DamagedError,
    Footer,
    _Reader,
    check_chunk,
    footer_length,
    parse_footer,
)
from txnlog.data.segment_file import EncodedSegment
from txnlog.errors import CorruptionError
from txnlog.format.actions import Begin, Commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

PAGES = tries(200, 12)
COLUMNS: dict[str, tuple[pa.DataType, str, Callable[[int], Any]]] = {
    "text": (pa.string(), "string", lambda i: f"é{i % 7}"),
    "data": (pa.binary(), "binary", lambda i: bytes([i % 256]) * (1 + i % 5)),
    "yes": (pa.bool_(), "boolean", lambda i: i % 2 == 0),
    "byte": (pa.int8(), "tinyint", lambda i: i % 100),
    "short": (pa.int16(), "smallint", lambda i: -i),
    "int": (pa.int32(), "int", lambda i: i * 1000),
    "long": (pa.int64(), "bigint", lambda i: i << 40),
    "float": (pa.float32(), "float", lambda i: i / 4),
    "double": (pa.float64(), "double", lambda i: i / 3),
    "date": (pa.date32(), "date", lambda i: dt.date(2026, 11, 1 + i % 28)),
    "at": (pa.timestamp("us", "UTC"), "timestamp", lambda i: dt.datetime(2026, 11, 21, 8, 0, i % 60, i, dt.UTC)),
    "small": (pa.decimal128(4, 2), "decimal(4,2)", lambda i: Decimal(i % 99) / 4),
    "big": (pa.decimal128(38, 10), "decimal(38,10)", lambda i: Decimal(i) / 8),
    "list": (pa.list_(pa.field("element", pa.int64())), "array<bigint>", lambda i: [i, None]),
    "map": (pa.map_(pa.string(), pa.int32()), "map<string,int>", lambda i: {"k": i}),
    "struct": (pa.struct([("a", pa.string())]), "struct<a:string>", lambda i: {"a": str(i)}),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _, _) in COLUMNS.items()])


def rows(count: int) -> pa.Table:
    """So many rows with every type; null in every column now and then."""
    return pa.Table.from_pylist(
        [
            {
                name: None if (i + place) % 11 == 0 else value(i)
                for place, (name, (_, _, value)) in enumerate(COLUMNS.items())
            }
            for i in range(count)
        ],
        schema=SCHEMA,
    )


@dataclass(frozen=True)
class Page:
    """Where the data of a page lie in a file: ``[start, end)``, without its header."""

    file: Path
    start: int
    end: int


Flip = tuple[Page, int, int]
"""A page, the position of a byte of its data, and one of its bits."""


def footer_of(data: bytes) -> Footer:
    length = footer_length(data[-TAIL_BYTES:])
    start = len(data) - TAIL_BYTES - length
    return parse_footer(data[start : start + length], start)


def pages_of(file: Path) -> list[Page]:
    """All pages of a file that hold data."""
    data = file.read_bytes()
    pages: list[Page] = []
    for chunk in footer_of(data).chunks:
        position = chunk.start
        while position < chunk.start + chunk.size_bytes:
            reader = _Reader(memoryview(data), position)
            size = reader.struct()[3]
            position = reader.position + size
            if size:
                pages.append(Page(file, reader.position, position))
    return pages


def laid_by_spark(ns: Namespace, spark: SparkSession, folder: Path, number: int, txn: int) -> Any:
    """A segment that Spark's own Parquet writer made: the log knows its footer, and pages prove themselves."""
    schema = ", ".join(f"{name} {kind}" for name, (_, kind, _) in COLUMNS.items())
    frame = spark.createDataFrame(rows(72), schema).coalesce(1)
    pages = {
        "parquet.page.row.count.limit": 8,
        "parquet.page.size.row.check.min": 8,
        "parquet.page.size.row.check.max": 8,
    }
    frame.write.options(**pages).parquet(str(folder))
    (file,) = folder.glob("*.parquet")
    data = file.read_bytes()
    return lay(ns, "orders", number, EncodedSegment(data, 72, footer_checksum(data), {}), txn, {1: 72})


@contextmanager
def flipped(file: Path, position: int, bit: int) -> Iterator[bytes]:
    """The file with one bit the other way round, as long as the block runs."""
    good = file.read_bytes()
    bad = bytearray(good)
    bad[position] ^= 1 << bit
    file.write_bytes(bad)
    try:
        yield bytes(bad)
    finally:
        file.write_bytes(good)


@pytest.fixture(scope="module")
def ns(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """One topic with a segment of every kind: small, big, shared, compacted, and one that Spark wrote."""
    folder = tmp_path_factory.mktemp("damage")
    with txnlog.open(folder / "lake", namespace="sales", create=True) as ns:
        ns.create_topic("orders", SCHEMA, partitions=2)
        ns.produce("orders", rows(20), partition=0)
        for _ in range(2):
            with ns.begin() as txn:
                txn.produce("orders", rows(20), partition=1)
                txn.flush()
        compact(ns, "orders", [s.number for s in ns.snapshot().plan("orders").segments if not s.stores_partition], 1)
        with ns.begin() as txn:
            txn.produce("orders", rows(20), partition=0)
            txn.flush()
        block = ns._connection.reserve_block(4)
        (big,) = encode_many([rows(50)], SCHEMA)
        append(ns, Begin(block[0]), lay(ns, "orders", block[1], big, block[0], {0: 50}), Commit(block[0]))
        append(ns, Begin(block[2]), laid_by_spark(ns, spark, folder / "spark", block[3], block[2]), Commit(block[2]))
        yield ns


@pytest.fixture(scope="module")
def flips(ns: Namespace) -> list[Flip]:
    """Pages, each with the position of a byte of its data and a bit of it."""
    segments = ns.snapshot().plan("orders").segments
    assert len(segments) == 5
    assert {segment.checksum.partition(":")[0] for segment in segments} == {"crc32", "footer-crc32"}
    dice = random.Random(DAY)  # other pages each day
    by_file = [pages_of(Path(ns._connection.store.url(segment.key))) for segment in segments]
    chosen = [dice.choice(pages) for pages in by_file]
    others = [page for pages in by_file for page in pages if page not in chosen]
    chosen += dice.sample(others, PAGES - len(chosen))
    return [(page, dice.randrange(page.start, page.end), dice.randrange(8)) for page in chosen]


def test_the_bits_lie_in_the_data_of_many_pages(flips: list[Flip]) -> None:
    assert len({(page.file, page.start) for page, _, _ in flips}) == PAGES
    for page, position, bit in flips:
        with flipped(page.file, position, bit) as data:
            (chunk,) = (c for c in footer_of(data).chunks if c.start <= position < c.start + c.size_bytes)
            with pytest.raises(DamagedError, match="a page's checksum differs"):
                check_chunk(chunk, memoryview(data)[chunk.start : chunk.start + chunk.size_bytes])


@pytest.fixture(autouse=True)
def _quiet(spark: SparkSession) -> Iterator[None]:
    """Spark logs every one of these errors, with the stacks of both sides."""
    spark.sparkContext.setLogLevel("OFF")
    yield
    spark.sparkContext.setLogLevel("ERROR")


def expected(ns: Namespace) -> tuple[pa.Schema, list[str]]:
    whole = ns.snapshot().read("orders", include_metadata=True)
    return whole.schema, sorted(map(repr, whole.to_pylist()))


def outcome_of(read: Callable[[], Any], flip: Flip, error: type[Exception], words: str) -> str:
    """What a read answers while a bit is flipped: ``error`` if it names the file and the reason."""
    page, position, bit = flip
    with flipped(page.file, position, bit):
        try:
            found = read()
        except error as caught:
            text = str(caught)
        else:
            return f"{len(found)} rows"
    return "error" if re.search(words.format(file=page.file.name), text, re.DOTALL) else text[:500]


@pytest.mark.clause("P-106")
def test_txnlogs_own_read_gives_an_error_for_each_of_many_pages_and_not_one_row(
    ns: Namespace, flips: list[Flip]
) -> None:
    def read() -> pa.Table:
        # A new handle each time, which holds nothing decoded.
        with txnlog.open(ns.root, namespace="sales", mode="r") as other:
            return other.snapshot().read("orders", include_metadata=True)

    outcomes = Counter(outcome_of(read, flip, CorruptionError, "{file}' is damaged") for flip in flips)
    assert outcomes == {"error": PAGES}
    schema, rows_there = expected(ns)
    assert sorted(map(repr, read().cast(schema).to_pylist())) == rows_there, "without the flips it gives the rows"


@pytest.mark.clause("P-106")
def test_the_native_scan_gives_an_error_for_each_of_many_pages_and_not_one_row(
    ns: Namespace, spark: SparkSession, flips: list[Flip]
) -> None:
    # One frame, planned once: every action reads the files anew.
    frame = spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True)
    words = "FAILED_READ_FILE.*{file}.*CRC checksum verification failed"
    outcomes = Counter(outcome_of(frame.collect, flip, Py4JJavaError, words) for flip in flips)
    assert outcomes == {"error": PAGES}
    schema, rows_there = expected(ns)
    assert sorted(map(repr, frame.toArrow().cast(schema).to_pylist())) == rows_there


def observed(reader: Any, cases: Iterable[Flip]) -> Iterator[str]:
    """In a Python process of Spark's: what the format's reader answers, case by case."""

    def read() -> pa.Table:
        parts = reader.partitions()
        return pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])

    for flip in cases:
        yield outcome_of(read, flip, CorruptionError, "{file}' is damaged")


class Planned:
    """The format's reader with its input partitions: alone it travels without them, as Spark sends them one by one."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._partitions = list(reader.partitions())

    def partitions(self) -> list[Any]:
        return self._partitions

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return iter(self._reader.read(partition))


@pytest.mark.clause("P-106")
def test_the_format_gives_an_error_for_each_of_many_pages_and_not_one_row(
    ns: Namespace, spark: SparkSession, flips: list[Flip]
) -> None:
    # A query ends at its first error, with the Python process that it ran in, and a new one takes most of a second: so
    # the very reader that Spark sends to its executors is sent there, and its errors are gathered one by one.
    source = TxnLogDataSource({"path": path_of(ns, "orders"), "includeMetadata": "true"})
    reader = Planned(source.reader(source.schema()))
    found = spark.sparkContext.parallelize(flips, 1).mapPartitions(partial(observed, reader)).collect()
    assert Counter(found) == {"error": PAGES}


@pytest.mark.clause("P-106")
def test_a_query_of_the_format_ends_with_the_readers_error(
    ns: Namespace, spark: SparkSession, flips: list[Flip]
) -> None:
    read = spark.read.format("txnlog").option("includeMetadata", "true").load(path_of(ns, "orders")).toArrow
    one_of_each_file = {flip[0].file: flip for flip in flips}.values()
    words = "CorruptionError.*{file}' is damaged"
    outcomes = Counter(outcome_of(read, flip, PythonException, words) for flip in one_of_each_file)
    assert outcomes == {"error": 5}
    schema, rows_there = expected(ns)
    assert sorted(map(repr, read().cast(schema).to_pylist())) == rows_there
