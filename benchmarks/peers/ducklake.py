"""DuckLake 1.x in DuckDB: the catalog in a file of DuckDB or SQLite, or in a PostgreSQL; the data in Parquet files."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb_extensions import import_extension

from benchmarks.peers.load import Load, Outcome, in_threads, is_aborted
from benchmarks.peers.peer import NotOfferedError, Peer
from benchmarks.peers.values import random_values
from benchmarks.peers.watching import Watch, paced
from tools.postgres import Server, postgres_server

_BATCH: Final = 20_000
"""Rows that one statement copies."""

_POLL_S: Final = 0.005
_PATIENCE_S: Final = 60.0
_LOCKED_S: Final = 15.0
"""So long a commit is tried again while somebody else has the catalog locked."""

_INLINED: Final = 10
"""Rows of an insert up to which they go into the catalog: DuckLake's own default."""


class DuckLake(Peer):
    """A transaction is one commit to the catalog; what is not inlined is a Parquet file that is written before."""

    warms = False
    settings = "one DuckDB in this process; threads commit in turns, by a lock; rows have a column for the partition"
    scanner: ClassVar[str | None] = None
    inlined_rows: ClassVar[int] = _INLINED

    def __init__(self) -> None:
        self._lake: duckdb.DuckDBPyConnection | None = None
        self._resources = contextlib.ExitStack()
        self._topics: set[str] = set()

    def bring(self) -> str:
        """The extensions of DuckDB come with packages."""
        for name in ("ducklake", self.scanner):
            if name is not None:
                import_extension(name)
        with duckdb.connect() as connection:
            connection.execute("LOAD ducklake")
            (extension,) = connection.execute(
                "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'ducklake'"
            ).fetchone() or ("?",)
        return f"DuckDB {duckdb.__version__}, extension ducklake {extension}"

    def catalog(self, folder: Path) -> str:
        """Where the catalog is, as ATTACH wants it."""
        return f"ducklake:{folder / 'catalog.ducklake'}"

    def start(self, folder: Path) -> None:
        """Attach a new lake."""
        self._lake = duckdb.connect()
        self._lake.execute("LOAD ducklake")
        if self.scanner is not None:
            self._lake.execute(f"LOAD {self.scanner}")
        place = f"DATA_PATH '{folder / 'data'}', DATA_INLINING_ROW_LIMIT {self.inlined_rows}"
        self._lake.execute(f"ATTACH '{self.catalog(folder)}' AS lake ({place})")
        self._lake.execute("USE lake")
        self._lake.execute("CREATE TABLE positions (reader VARCHAR, position BIGINT)")

    def stop(self) -> None:
        """Close the lake, then what its catalog is in."""
        if self._lake is not None:
            self._lake.close()
            self._lake = None
        self._resources.close()

    def is_durable(self, load: Load) -> bool:
        """Where all of a transaction is in the catalog: Parquet files are not fsynced."""
        return load.partitions * load.messages <= self.inlined_rows and load.kind != "pipeline"

    def run(self, load: Load) -> Outcome:
        """Run a load."""
        if load.topic not in self._topics:
            self._connection().execute(f'CREATE TABLE "{load.topic}" (partition INTEGER, value BLOB)')
            self._topics.add(load.topic)
        match load.kind:
            case "commit" | "fill":
                return self._commit(load)
            case "read":
                return self._read(load)
            case "pipeline":
                return self._pipeline(load)
            case "deliver" | "open":
                return self._watched(load)

    def _connection(self) -> duckdb.DuckDBPyConnection:
        assert self._lake is not None, "it was not started"
        connection = self._lake.cursor()
        connection.execute("USE lake")
        return connection

    def _commit(self, load: Load) -> Outcome:
        values = random_values(load)
        partitions = [number for number in range(load.partitions) for _ in range(load.messages)]
        rows = [(partition, values[number % len(values)]) for number, partition in enumerate(partitions)]
        insert = _Insert(self._connection(), load.topic, rows)
        # Connections that commit at once meet at the catalog, lose, and wait 100 ms and longer: 8 of them made fewer
        # transactions together than one alone, and on SQLite they stood still. So they take turns.
        turn = threading.Lock()

        def transact(_thread: int, number: int) -> None:
            with turn:
                insert.run(commit=not is_aborted(load, number))

        return in_threads(load, transact, len(rows))

    def _read(self, load: Load) -> Outcome:
        started = time.perf_counter()
        table = self._connection().execute(f'SELECT partition, value FROM "{load.topic}"').fetch_arrow_table()
        rows, size = table.num_rows, pc.sum(pc.binary_length(table["value"])).as_py() or 0
        seconds = time.perf_counter() - started
        assert size == rows * load.size, "a message of another size was read"
        return Outcome(seconds=seconds, rows=rows)

    def _pipeline(self, load: Load) -> Outcome:
        if not load.transactional:
            raise NotOfferedError("every write is a transaction")
        target = f"{load.topic}-{uuid.uuid4().hex[:8]}"
        connection = self._connection()
        connection.execute(f'CREATE TABLE "{target}" (partition INTEGER, value BLOB)')
        connection.execute("INSERT INTO positions VALUES (?, 0)", [target])
        copy = f'INSERT INTO "{target}" SELECT partition, value FROM "{load.topic}" WHERE rowid >= ? AND rowid < ?'
        position, latencies = 0, list[float]()
        started = time.perf_counter()
        while position < load.rows and time.perf_counter() < started + load.seconds:
            began = time.perf_counter()
            connection.execute("BEGIN")
            while True:
                end = min(load.rows, position + _BATCH)
                # In the engine, which is the fastest way here; rowids are numbers of rows without gaps.
                connection.execute(copy, [position, end])
                position = end
                if position == load.rows or time.perf_counter() >= began + load.cycle_ms / 1e3:
                    break
            connection.execute("UPDATE positions SET position = ? WHERE reader = ?", [position, target])
            connection.execute("COMMIT")
            latencies.append((time.perf_counter() - began) * 1e3)
        seconds = time.perf_counter() - started
        (rows,) = connection.execute(f'SELECT count(*) FROM "{target}"').fetchone() or (0,)
        assert rows == position, f"{rows} rows were written of {position}"
        return Outcome(seconds=seconds, rows=rows, transactions=len(latencies), latencies_ms=latencies)

    def _watched(self, load: Load) -> Outcome:
        watch = Watch(load)
        writer, other, reader = (self._connection() for _ in range(3))
        insert = f'INSERT INTO "{load.topic}" VALUES (0, ?)'
        stopped = threading.Event()

        def commit(value: bytes) -> None:
            deadline = time.monotonic() + _LOCKED_S
            while True:
                writer.execute("BEGIN")
                try:
                    writer.execute(insert, [watch.stamped(value)])
                    writer.execute("COMMIT")
                    return
                except duckdb.Error as error:
                    _roll_back(writer)
                    if not _is_conflict(error) or time.monotonic() > deadline:
                        raise

        def begin_one() -> None:
            other.execute("BEGIN")
            other.execute(insert, [watch.unstamped()])

        thread = threading.Thread(target=_follow, args=(reader, load.topic, watch, stopped), daemon=True)
        thread.start()
        try:
            paced(watch, commit, begin_one, lambda: other.execute("COMMIT"))
        finally:
            stopped.set()
            thread.join(_PATIENCE_S)
        return watch.outcome()


def _follow(reader: duckdb.DuckDBPyConnection, topic: str, watch: Watch, stopped: threading.Event) -> None:
    """Hand the rows of each new snapshot to a watch."""
    newest = "SELECT id FROM lake.current_snapshot()"
    rows = f"SELECT value FROM lake.table_insertions('{topic}', ?, ?)"
    seen = -1
    while not stopped.is_set():
        found: list[tuple[bytes]] = []
        with _ignoring_conflicts():  # while a writer has the catalog locked
            (now,) = reader.execute(newest).fetchone() or (seen,)
            if seen >= 0 and now > seen:
                found = reader.execute(rows, [seen + 1, now]).fetchall()
            seen = now
        for (value,) in found:
            watch.received(value)
        if not found:
            time.sleep(_POLL_S)


@contextlib.contextmanager
def _ignoring_conflicts() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        if not _is_conflict(error):
            raise


class _Insert:
    """The rows of a transaction, ready to be written by one connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, topic: str, rows: list[tuple[int, bytes]]) -> None:
        self._connection = connection
        self._statement = f'INSERT INTO "{topic}" VALUES {", ".join(["(?, ?)"] * len(rows))}'
        self._arguments: list[Any] = [item for row in rows for item in row]
        if len(rows) > _INLINED:
            partitions, values = zip(*rows, strict=True)
            columns = {"partition": pa.array(partitions, pa.int32()), "value": pa.array(values, pa.binary())}
            name = f"rows_{uuid.uuid4().hex}"
            connection.register(name, pa.table(columns))
            self._statement, self._arguments = f'INSERT INTO "{topic}" SELECT partition, value FROM {name}', []

    def run(self, *, commit: bool) -> None:
        """One transaction."""
        self._connection.execute("BEGIN")
        self._connection.execute(self._statement, self._arguments)
        self._connection.execute("COMMIT" if commit else "ROLLBACK")


def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    with contextlib.suppress(duckdb.Error):  # a commit that failed has ended the transaction
        connection.execute("ROLLBACK")


def _is_conflict(error: duckdb.Error) -> bool:
    text = str(error).lower()
    return any(word in text for word in ("conflict", "locked", "serialize", "concurrent", "duplicate key", "unique"))


class DuckLakeOnDuckDB(DuckLake):
    """The catalog is a DuckDB file."""

    name = "DuckLake, DuckDB"
    durability = "catalog fsynced (DuckDB's log); Parquet files, which only larger inserts write, are not"


class DuckLakeWithoutInlining(DuckLakeOnDuckDB):
    """Each insert writes a Parquet file."""

    name = "DuckLake, DuckDB, no inlining"
    durability = "catalog fsynced (DuckDB's log); the Parquet file of each insert is not"
    inlined_rows = 0


class DuckLakeOnSQLite(DuckLake):
    """The catalog is an SQLite file."""

    name = "DuckLake, SQLite"
    durability = "catalog fsynced (SQLite, synchronous=FULL); Parquet files, which only larger inserts write, are not"
    scanner = "sqlite_scanner"

    def catalog(self, folder: Path) -> str:
        """A file beside the data."""
        return f"ducklake:sqlite:{folder / 'catalog.sqlite'}"


class DuckLakeOnPostgres(DuckLake):
    """The catalog is in a PostgreSQL server of its own."""

    name = "DuckLake, PostgreSQL"
    durability = (
        "catalog fsynced (PostgreSQL, synchronous_commit=on); Parquet files, which only larger inserts write, are not"
    )
    scanner = "postgres_scanner"

    def __init__(self) -> None:
        super().__init__()
        self._server: Server | None = None

    def catalog(self, folder: Path) -> str:
        """A server is started for it."""
        # The server may run as another user, who must come as far as its own folder.
        folder.chmod(0o711)
        self._server = self._resources.enter_context(postgres_server({"max_connections": "300"}, folder))
        return f"ducklake:postgres:host={self._server.folder} user=postgres dbname=postgres"

    def pids(self) -> list[int]:
        """The server's, whose sessions are its children."""
        return [self._server.pid] if self._server is not None else []


__all__ = ["DuckLake", "DuckLakeOnDuckDB", "DuckLakeOnPostgres", "DuckLakeOnSQLite", "DuckLakeWithoutInlining"]
