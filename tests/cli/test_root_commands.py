"""What ``catalog`` carries out: the namespaces of a root, and topics as Delta tables. And completion in a shell."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

import txnlog
from tests.cli.command_line import lines, run


def test_namespaces_are_created_listed_and_dropped(tmp_path):
    root = str(tmp_path / "lake")
    assert lines(root, "namespaces", "list", "--json") == []
    assert lines(root, "namespaces", "create", "shop", "--json") == [{"namespace": "shop", "coordinator": 0}]
    again = run(root, "namespaces", "create", "shop")
    assert (again.returncode, "use --if-not-exists if that is fine" in again.stderr) == (2, True), again.stderr
    assert run(root, "namespaces", "create", "shop", "--if-not-exists").returncode == 0
    run(root, "namespaces", "create", "trial")
    assert run(root, "namespaces", "list").stdout.splitlines() == ["namespace", "shop", "trial"]
    asked = run(root, "namespaces", "drop", "trial")
    assert (asked.returncode, "Drop the namespace 'trial'" in asked.stdout) == (1, True)
    dropped = run(root, "namespaces", "drop", "trial", "--yes")
    assert (dropped.returncode, dropped.stdout) == (0, f"{root}/trial\n")
    missing = run(root, "namespaces", "drop", "shp")
    assert (missing.returncode, "did you mean 'shop'?" in missing.stderr, missing.stdout) == (2, True, "")
    assert lines(root, "namespaces", "list", "--json") == [{"namespace": "shop"}]


def test_a_namespace_is_no_root(tmp_path):
    root = str(tmp_path / "lake")
    run(root, "namespaces", "create", "shop")
    done = run(f"{root}/shop", "namespaces", "list")
    assert (done.returncode, "its folder is a namespace itself" in done.stderr) == (2, True)


def test_topics_are_published_as_delta_tables(lake):
    path, _ = lake
    deltalake = pytest.importorskip("deltalake")
    with txnlog.open(path) as ns:
        ns.create_topic("hidden", delta="off")
        ns.create_topic("audit", pa.schema([("id", pa.int64())]))
        ns.produce("audit", [{"id": 1}, {"id": 2}])
    (audit,) = lines(path, "publish", "audit", "--json")
    assert (audit["topic"], audit["delta_version"], audit["created"]) == ("audit", 0, 1)
    assert deltalake.DeltaTable(audit["url"]).to_pyarrow_table().num_rows == 2
    assert lines(path, "publish", "audit", "--json") == [{**audit, "created": 0}]
    heading, *shown = run(path, "publish").stdout.splitlines()
    assert heading.split()[:3] == ["topic", "delta_version", "version"]
    assert sorted(line.split()[0] for line in shown) == ["_delta/segments", "audit", "orders"]
    (repaired,) = lines(path, "publish", "audit", "--repair", "--json")
    assert repaired["repaired"] == []
    refused = run(path, "publish", "hidden")
    assert refused.returncode == 2
    assert "(call 'topic alter NAME --delta manual'" in refused.stderr
    missing = run(path, "publish", "audits")
    assert (missing.returncode, "did you mean 'audit'?" in missing.stderr) == (2, True)


def test_the_versions_of_a_delta_table_are_listed(lake):
    path, _ = lake
    assert lines(path, "published", "orders", "--json") == []
    run(path, "publish", "orders")
    with txnlog.open(path) as ns:
        ns.produce("orders", [{"value": b"three"}])
    run(path, "publish", "orders")
    shown = lines(path, "published", "orders", "--json")
    assert [row["delta_version"] for row in shown] == list(range(len(shown)))[::-1]
    assert len(shown) > 1
    assert lines(path, "published", "orders", "--limit", "1", "--json") == shown[:1]
    assert run(path, "published", "orders").stdout.split()[:3] == ["delta_version", "version", "timestamp"]
    assert run(path, "published", "order").returncode == 2


def test_another_module_called_catalog_is_named(tmp_path):
    (tmp_path / "catalog.py").write_text("")
    call = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from txnlog.cli import main; main()"
    asked = [sys.executable, "-c", call, str(tmp_path / "lake"), "namespaces", "list"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"what Python finds as 'catalog' is {tmp_path}/catalog.py" in done.stderr


def test_a_topic_is_created_with_columns_key_and_labels(lake, tmp_path):
    path, _ = lake
    columns = ("--column", "id:BIGINT NOT NULL", "--column", "price:decimal(10, 2)", "--column", "customer:string")
    more = ("--key", "customer", "--partitions", "3", "--property", "user.owner=ann", "--delta", "auto")
    made = ("topic", "create", "sold", *columns, *more, "--retention-ms", "30d", "--merge", "manual")
    assert run(path, *made).stdout == "topic sold with 3 partitions\n"
    (found,) = lines(path, "topic", "describe", "sold", "--json")
    assert found["columns"] == {"id": "int64 not null", "price": "decimal128(10, 2)", "customer": "string"}
    assert (found["key"], list(found["end_offsets"])) == ("customer", ["0", "1", "2"])
    assert found["properties"]["user.owner"] == "ann"
    assert found["properties"]["txnlog.retention_ms"] == "2592000000"
    assert run(path, *made, "--if-not-exists").returncode == 0
    other = run(path, "topic", "create", "sold", "--column", "id:int", "--if-not-exists")
    assert other.returncode == 2


def test_a_topic_is_created_with_the_columns_of_a_parquet_file(lake, tmp_path):
    path, _ = lake
    schema = pa.schema([("id", pa.int64()), ("lines", pa.list_(pa.struct([("sku", pa.string())])))])
    pa.parquet.write_table(schema.empty_table(), tmp_path / "some.parquet")
    assert run(path, "topic", "create", "sold", "--columns-of", str(tmp_path / "some.parquet")).returncode == 0
    (found,) = lines(path, "topic", "describe", "sold", "--json")
    assert found["columns"] == {"id": "int64", "lines": "list<element: struct<sku: string>>"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--column", "id"), "'id' is not of the form NAME:VALUE"),
        (("--column", "id:text"), "unknown column type 'text'"),
        (("--column", "id:long", "--key", "customer"), "the key 'customer' is not a column"),
        (("--column", "id:long", "--property", "owner"), "not of the form NAME=VALUE"),
        (("--column", "id:long", "--columns-of", "-"), "give --column or --columns-of"),
        (("--columns-of", "-"), "the columns of this Parquet file cannot be read"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(lake, options, told):
    done = run(lake[0], "topic", "create", "sold", *options)
    assert done.returncode == 2
    assert told in done.stderr
    assert [row["topic"] for row in lines(lake[0], "topics", "--json")] == ["orders"]


def test_sizes_may_have_a_unit(lake):
    path, _ = lake
    (found,) = lines(path, "optimize", "orders", "--target-size-bytes", "64MiB", "--dry-run", "--json")
    assert found["topic"] == "orders"
    refused = run(path, "maintain", "--max-bytes", "64 MiBs")
    assert (refused.returncode, "--max-bytes is a number of bytes" in refused.stderr) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(monkeypatch, shell):
    monkeypatch.setenv("_TXNLOG_COMPLETE", f"{shell}_source")
    if shell == "bash":  # click asks the bash that is there for its version
        monkeypatch.setattr("click.shell_completion.BashComplete._check_version", lambda *_: None)
    done = run()
    assert (done.returncode, "_TXNLOG_COMPLETE" in done.stdout, "txnlog" in done.stdout) == (0, True, True)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("lake/shop transac", ["transactions"]),
        ("lake/shop subscription s", ["seek"]),
        ("lake/shop topic ", ["alter", "create", "describe", "drop"]),
        ("lake/shop produce orders --txn", ["--txn-app-id", "--txn-version"]),
        ("lake/shop topic create orders --delta m", ["manual"]),
    ],
)
def test_a_shell_completes_what_is_typed(monkeypatch, typed, offered):
    words = ["txnlog", *typed.split(" ")]
    monkeypatch.setenv("_TXNLOG_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    found = [line.split(",")[1] for line in run().stdout.splitlines()]
    assert [item for item in found if item not in {"--help", "-h"}] == offered


def test_where_the_namespace_stands_a_shell_completes_folders(monkeypatch):
    monkeypatch.setenv("_TXNLOG_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "txnlog la")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run().stdout == "dir,la\n"
