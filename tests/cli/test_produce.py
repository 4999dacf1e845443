"""Rows of a file, or of the standard input, are written to a topic in one transaction."""

from __future__ import annotations

import datetime
import decimal
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txnlog
from tests.cli.command_line import lines, run

SCHEMA = pa.schema([("customer", pa.string()), ("amount", pa.float64())])
ROWS = [{"customer": "ann", "amount": 12.5}, {"customer": "bob", "amount": None}]


@pytest.fixture
def shop(tmp_path):
    with txnlog.open(tmp_path / "lake" / "shop", create=True) as ns:
        ns.create_topic("orders", SCHEMA, partitions=2)
    return str(tmp_path / "lake" / "shop")


def as_lines(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def as_parquet(rows, schema=SCHEMA):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    return sink.getvalue()


def produced(path, *arguments, given=b""):
    done = run(path, "produce", *arguments, "--json", given=given)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read(path, topic="orders"):
    with txnlog.open(path, mode="r") as ns:
        return ns.snapshot().version, ns.snapshot().read(topic).to_pylist()


@pytest.mark.parametrize("content", [as_lines(ROWS), as_parquet(ROWS), b"\xef\xbb\xbf\r\n" + as_lines(ROWS) + b"\n"])
@pytest.mark.parametrize("from_file", [True, False])
def test_rows_of_a_file_or_of_the_standard_input_are_one_transaction(shop, tmp_path, content, from_file):
    file = tmp_path / "rows"
    file.write_bytes(content)
    arguments = (str(file),) if from_file else ()
    found = produced(shop, "orders", *arguments, "--partition", "1", given=b"" if from_file else content)
    version, rows = read(shop)
    assert (found["topic"], found["version"], found["rows"], found["skipped"]) == ("orders", version, 2, False)
    assert rows == ROWS
    (described,) = lines(shop, "topic", "describe", "orders", "--json")
    assert described["end_offsets"] == {"0": 0, "1": 2}
    assert lines(shop, "transactions", "describe", found["txn_id"], "--json")[0]["state"] == "COMMITTED"


def test_a_dash_is_the_standard_input_and_people_read_the_version(shop):
    done = run(shop, "produce", "orders", "-", given=as_lines(ROWS))
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["topic", "version", "rows", "txn_id", "skipped"]


def test_a_repeated_run_writes_nothing(shop):
    of_run = ("--txn-app-id", "nightly", "--txn-version", "7")
    first = produced(shop, "orders", *of_run, given=as_lines(ROWS))
    before = read(shop)
    again = produced(shop, "orders", *of_run, given=as_lines(ROWS))
    assert again == {**first, "rows": 0, "skipped": True}
    assert read(shop) == before
    lower = produced(shop, "orders", "--txn-app-id", "nightly", "--txn-version", "6", given=as_lines(ROWS))
    assert (lower["skipped"], read(shop)) == (True, before)
    assert produced(shop, "orders", "--txn-app-id", "nightly", "--txn-version", "8", given=as_lines(ROWS))["rows"] == 2


@pytest.mark.parametrize("of_run", [(), ("--txn-app-id", "nightly", "--txn-version", "1")])
def test_no_row_is_no_transaction(shop, of_run):
    before = read(shop)
    found = produced(shop, "orders", *of_run, given=b"\n")
    assert (found["version"], found["rows"], found["txn_id"], found["skipped"]) == (before[0], 0, None, False)
    assert read(shop) == before


ALL = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("rate", pa.float32()),
        ("raw", pa.binary()),
        ("yes", pa.bool_()),
        ("all", pa.list_(pa.timestamp("us"))),
        ("by_name", pa.map_(pa.string(), pa.binary())),
        ("by_number", pa.map_(pa.int32(), pa.decimal128(4, 1))),
        ("of", pa.struct([("day", pa.date32()), ("note", pa.string())])),
    ]
)


def test_json_becomes_the_types_of_the_columns(shop):
    with txnlog.open(shop) as ns:
        ns.create_topic("all", ALL, delta="off")
    line = (
        b'{"id": 5.0, "price": 12.10, "day": "2026-11-21", "at": "2026-11-21T13:00:00+01:00", '
        b'"local": "2026-11-21T12:00:00", "rate": "Infinity", "raw": "\xc5\xbc", "yes": true, '
        b'"all": ["2026-11-21T12:00:00", null], "by_name": {"a": "b"}, "by_number": {"1": "2.5", "2": null}, '
        b'"of": {"day": "2026-11-21", "note": null}}\n{"id": 1e2, "by_number": [[3, 4]]}\n'
    )
    produced(shop, "all", given=line)
    first, second = read(shop, "all")[1]
    noon = datetime.datetime(2026, 11, 21, 12)  # noqa: DTZ001 - that column has no zone
    assert first == {
        "id": 5,
        "price": decimal.Decimal("12.10"),
        "day": noon.date(),
        "at": noon.replace(tzinfo=datetime.UTC),
        "local": noon,
        "rate": float("inf"),
        "raw": "ż".encode(),
        "yes": True,
        "all": [noon, None],
        "by_name": [("a", b"b")],
        "by_number": [(1, decimal.Decimal("2.5")), (2, None)],
        "of": {"day": noon.date(), "note": None},
    }
    assert (second["id"], second["by_number"], second["raw"]) == (100, [(3, decimal.Decimal(4))], None)


def test_what_read_prints_can_be_written_again(shop):
    with txnlog.open(shop) as ns:
        for topic in ("all", "copy"):
            ns.create_topic(topic, ALL, delta="off")
    produced(shop, "all", "--binary", "base64", given=b'{"raw": "AP8=", "by_name": {"a": "AA=="}, "rate": "NaN"}\n')
    printed = lines(shop, "read", "all", "--json")
    rows = [{name: value for name, value in row.items() if not name.startswith("_")} for row in printed]
    produced(shop, "copy", "--binary", "hex", given=as_lines(rows))
    again = lines(shop, "read", "copy", "--json")
    assert [{name: row[name] for name in ALL.names} for row in again] == rows
    assert rows[0]["raw"] == "00ff"


@pytest.mark.parametrize(
    ("arguments", "given", "told"),
    [
        ((), b'{"customer": "ann"}\n[1]\n', "line 2 is not a JSON object: '[1]'"),
        ((), b'{"customer": ', "line 1 is not a JSON object"),
        ((), b'{"amount": NaN}', "line 1 is not a JSON object"),
        ((), b"\xff\xfe", "line 1 is not a JSON object"),
        ((), b'{"a":' * 100_000, "line 1 is not a JSON object"),
        ((), b'{"amount": 1e999}', "line 1, column 'amount': '1E+999' is too big"),
        ((), b'{"amount": "12"}', "column 'amount'"),
        ((), b'{"customers": "ann"}', "did you mean 'customer'?"),
        ((), b"PAR1....", "this Parquet file cannot be read"),
        ((), as_parquet([{"other": 1}], pa.schema([("other", pa.int64())])), "other"),
        (("--partition", "2"), as_lines(ROWS), "has no partition 2"),
        (("--partition", "-1"), as_lines(ROWS), "--partition is a whole number"),
        (("--timeout-ms", "1 day"), as_lines(ROWS), "--timeout-ms is a length of time"),
        (("--txn-app-id", "nightly"), as_lines(ROWS), "go together"),
        (("--txn-app-id", "nightly", "--txn-version", "-1"), as_lines(ROWS), "--txn-version is a whole number"),
        (("/nowhere/rows.jsonl",), b"", "No such file"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(shop, arguments, given, told):
    before = read(shop)
    done = run(shop, "produce", "orders", *arguments, given=given)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert read(shop) == before


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("id", "1.5", "no whole number"),
        ("id", "1e99999999", "no whole number"),
        ("id", "9" * 30, "outside the range of int64"),
        ("price", '"much"', "is no number"),
        ("price", "1e99999999", "outside the range of decimal128(10, 2)"),
        ("day", '"yesterday"', "is no date like 2026-11-21"),
        ("day", "5", "is no date like 2026-11-21"),
        ("at", '"2026-11-21T12:00:00"', "lacks the zone, unlike 2026-11-21T12:00:00Z"),
        ("local", '"2026-11-21T12:00:00Z"', "has a zone, unlike 2026-11-21T12:00:00"),
        ("raw", '"zz"', "is not what --binary says"),
        ("all", '["noon"]', "'noon' is no time like 2026-11-21T12:00:00"),
        ("by_number", '{"one": 1}', "by_number"),
    ],
)
def test_a_value_that_a_column_does_not_take_is_refused(shop, column, value, told):
    with txnlog.open(shop) as ns:
        ns.create_topic("all", ALL, delta="off")
    before = read(shop, "all")
    done = run(shop, "produce", "all", "--binary", "hex", given=f'{{"{column}": {value}}}'.encode())
    assert done.returncode == 2
    assert told in done.stderr
    assert read(shop, "all") == before


def test_of_a_topic_that_is_not_there_the_nearest_is_named(shop):
    done = run(shop, "produce", "order", given=as_lines(ROWS))
    assert (done.returncode, "did you mean 'orders'?" in done.stderr) == (2, True)


def test_what_a_job_has_committed_is_listed_and_forgotten(shop):
    assert lines(shop, "apps", "list", "--json") == []
    of_run = ("--txn-app-id", "nightly", "--txn-version", "20262111")
    version = produced(shop, "orders", *of_run, given=as_lines(ROWS))["version"]
    (shown,) = lines(shop, "apps", "list", "--json")
    assert shown == {"txn_app_id": "nightly", "txn_version": 20262111, "version": version}
    asked = run(shop, "apps", "forget", "nightly")
    assert (asked.returncode, "has committed up to 20,262,111?" in asked.stdout) == (1, True)
    missing = run(shop, "apps", "forget", "nightl")
    assert (missing.returncode, "did you mean 'nightly'?" in missing.stderr, missing.stdout) == (2, True, "")
    assert run(shop, "apps", "forget", "nightly", "--yes").returncode == 0
    assert lines(shop, "apps", "list", "--json") == []
    assert not produced(shop, "orders", "--txn-app-id", "nightly", "--txn-version", "1", given=as_lines(ROWS))[
        "skipped"
    ]
