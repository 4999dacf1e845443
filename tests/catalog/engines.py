"""Foreign engines for tests of Delta tables: a process in which txnlog cannot be imported, and comparisons of rows."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tools.java_archive import QUICK
from txnlog.format.keys import SEGMENT_COLUMN

FAST = ("deltalake", "polars", "duckdb")
WRITES = (
    """
deltalake append, deltalake overwrite, deltalake delete, deltalake update, deltalake merge, deltalake optimize,
deltalake vacuum, deltalake full vacuum, spark append, spark overwrite, spark stream, spark delete, spark update,
spark merge, spark optimize, spark zorder, spark vacuum, spark restore, spark properties, spark columns, spark feature
""".replace("\n", " ")
    .strip()
    .split(", ")
)
"""What others may try to do to a table."""

_PROGRAM = Path(__file__).with_name("engine_process.py")
_numbers = itertools.count()


class EngineError(Exception):
    """What an engine raised, as text."""


class Engines:
    """The process and what it answers."""

    def __init__(self, folder: Path, jars: str = "") -> None:
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        told = {"TXNLOG_TEST_FOLDER": str(folder), "TXNLOG_TEST_JARS": jars, "TXNLOG_TEST_JAVA": QUICK}
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment | told,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process with the engines ended"
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise EngineError(f"{found['error']}\n{found['traceback']}")
        return found

    def read(
        self,
        engine: str,
        path: str,
        version: int | None = None,
        where: str | None = None,
        *,
        keep_segments: bool = False,
    ) -> pa.Table:
        """The rows of a table, without the number of the segment unless it is wanted."""
        out = self._folder / f"rows-{next(_numbers)}.arrow"
        self.ask(call="read", engine=engine, path=path, version=version, where=where, out=str(out))
        with pa.OSFile(str(out), "rb") as file, pa.ipc.open_file(file) as reader:
            table = reader.read_all()
        out.unlink()
        return table if keep_segments else table.drop_columns([SEGMENT_COLUMN])

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._process.stdout.close()


def engines_in(folder: Path, *, spark: bool) -> Iterator[Engines]:
    """The process, with the jars of Delta if Spark is wanted."""
    jars = ""
    if spark:
        from tools.delta_jars import delta_jars

        jars = ",".join(delta_jars())
    engines = Engines(folder, jars)
    yield engines
    engines.close()


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value as it compares, however an engine gives maps, structs and texts."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
        return [
            (plain(item["key"], kind.key_type), plain(item["value"], kind.item_type))
            if isinstance(item, Mapping)
            else (plain(item[0], kind.key_type), plain(item[1], kind.item_type))
            for item in pairs
        ]
    if pa.types.is_struct(kind):
        return {child.name: plain(value[child.name], child.type) for child in kind}
    if pa.types.is_nested(kind):
        return [plain(item, kind.value_type) for item in value]
    if pa.types.is_timestamp(kind):
        return value.astimezone(None).timestamp(), value.microsecond
    return value


def rows_of(table: pa.Table, schema: pa.Schema) -> list[str]:
    """The rows of a table that must have just the columns of a schema, in an order of their own."""
    assert table.column_names == schema.names
    columns = [[plain(value, field.type) for value in table.column(field.name).to_pylist()] for field in schema]
    return sorted(map(repr, zip(*columns, strict=True)))


def assert_same(found: pa.Table, wanted: pa.Table) -> None:
    """An engine's rows are those that are wanted, in any order."""
    assert rows_of(found, wanted.schema) == rows_of(wanted, wanted.schema)
