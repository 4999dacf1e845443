"""Where Spark keeps its plan of the next batch of an ingestion: a folder of this process, new for each run.

A checkpoint that stays says from run to run which batch comes next, and where it begins. The log says that better: in
the commit that has the rows. A checkpoint next to it can be old, another query's, of topics that are not read any more,
or shared by two runs, and Spark would call messages lost that nobody lost. So each run has one of its own, begins it
where the log is, and nobody reads it behind the run.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_ext.ingest.offset_json import offsets_text
from spark_ext.support.python_process import ProcessLock
from txnlog.errors import Durable, InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_ext.ingest.positions import TopicPartition

_folders: Final[dict[Path, StreamingQuery | None]] = {}
"""Those that are there, with the query that works in each; None where it has not started yet."""

_lock: Final = ProcessLock(_folders.clear)


def make_folder(spark: SparkSession, offsets: Mapping[TopicPartition, int]) -> Path:
    """A folder for a query that begins at these offsets. Removes those of queries that ended.

    Spark's source takes them for those at which its query began once. As its option ``startingOffsets`` they would be
    refused where a partition was added meanwhile.

    Raises:
        InvalidInputError: there is no place for one, or Java does not see it under this name, as where the name has
            other characters than ASCII, and the driver was started with LC_ALL=C.
    """
    _remove_ended()
    try:
        folder = Path(tempfile.mkdtemp(prefix="txnlog-kafka-"))
        with _lock:
            _folders[folder] = None
        note = folder / "sources" / "0" / "0"
        note.parent.mkdir(parents=True)
        # A zero byte first, for Spark 2.1, and the version of the format in a line of its own.
        note.write_bytes(b"\0v1\n" + offsets_text(offsets).encode())
    except OSError as error:
        raise InvalidInputError(
            f"the driver has no place for temporary files: {error}",
            advice="set TMPDIR to a folder that it can write to",
            durable=Durable.NOTHING,
        ) from error
    if not _is_seen(spark, note):
        remove_folder(folder)
        raise InvalidInputError(
            f"Spark does not see the folder for temporary files {str(folder.parent)!r} under this name",
            advice="set TMPDIR to a folder whose name has plain characters, and which the driver's Java sees",
            durable=Durable.NOTHING,
        )
    return folder


def _is_seen(spark: SparkSession, file: Path) -> bool:
    """Whether Java finds a file by its name."""
    try:
        str(file).encode()
    except UnicodeEncodeError:
        return False  # bytes that are no text, which cannot be sent either
    return bool(spark._jvm.java.io.File(str(file)).isFile())  # type: ignore[union-attr]


def location_of_folder(folder: Path) -> str:
    """A folder as Spark's ``checkpointLocation``: on this machine, with each character as it is, in a URL too."""
    return f"file://{folder}"


def note_query(folder: Path, query: StreamingQuery) -> None:
    """Note whose folder it is: it stays as long as the query runs."""
    with _lock:
        _folders[folder] = query


def remove_folder(folder: Path) -> None:
    """Remove a folder in which no query works."""
    with _lock:
        _folders.pop(folder, None)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_ended() -> None:
    with _lock:
        known = list(_folders.items())
    for folder, query in known:
        if query is not None and not _is_active(query):
            remove_folder(folder)


def _is_active(query: StreamingQuery) -> bool:
    with contextlib.suppress(Exception):  # its session may have been stopped
        return query.isActive
    return False


@atexit.register
def _remove_all() -> None:
    for folder in list(_folders):
        remove_folder(folder)


__all__ = ["location_of_folder", "make_folder", "note_query", "remove_folder"]
