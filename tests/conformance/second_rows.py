"""The second reader: files (section 9), visibility and rows (section 8), and whose log it is (section 6.2)."""

from __future__ import annotations

import datetime
import io
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conformance.second_checkpoints import open_log
from tests.conformance.second_entries import (
    ARROW,
    NAME,
    Damaged,
    NoNamespace,
    NoTopic,
    NoVersion,
    Unsupported,
    arrow_type,
    digest_of,
    get,
    refuse_if,
)

# --- section 9: files -------------------------------------------------------------------------------------------------

WIDER = {
    "byte": {"short", "integer", "long", "double"},
    "short": {"integer", "long", "double"},
    "integer": {"long", "double"},
    "float": {"double"},
}


def widens(stored, kind):
    """Whether a stored Arrow type is that of a column, or one that widens to it."""
    wanted = arrow_type(kind)
    if stored == wanted:
        return True
    if isinstance(kind, dict):
        if kind["type"] == "struct" and pa.types.is_struct(stored):
            inner = {field.name: field.type for field in stored}
            names = [field.name for field in stored]
            refuse_if(any(names.count(f["name"]) > 1 for f in kind["fields"]), "a field twice")
            return all(f["name"] not in inner or widens(inner[f["name"]], f["type"]) for f in kind["fields"])
        if kind["type"] == "array" and pa.types.is_list(stored):
            return widens(stored.value_type, kind["elementType"])
        is_map = kind["type"] == "map" and pa.types.is_map(stored)
        return is_map and widens(stored.key_type, kind["keyType"]) and widens(stored.item_type, kind["valueType"])
    if pa.types.is_decimal(stored) and pa.types.is_decimal(wanted):
        before, behind = stored.precision - stored.scale, stored.scale
        return before <= wanted.precision - wanted.scale and behind <= wanted.scale
    return any(stored == ARROW[name] and kind in wider for name, wider in WIDER.items())


STORED = {"_txn": pa.int64(), "_partition": pa.int32(), "_version": pa.int64(), "_timestamp": ARROW["timestamp"]}
STORED["_offset"] = pa.int64()


def read_file(path, segment, schema, state):
    """The columns of a segment as lists: the topic's, and those that the file stores besides."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Damaged("a file is missing") from None
    refuse_if(len(data) != segment["size_bytes"], "another size")
    kind, _, digits = segment["checksum"].partition(":")
    start = 0
    if kind == "footer-crc32":
        start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
        refuse_if(start < 4, "a footer longer than the file")
    refuse_if(f"{zlib.crc32(data[start:]):08x}" != digits, "another checksum")
    names = stored_columns(segment, state)
    try:
        file = pq.ParquetFile(io.BytesIO(without_arrow_schema(data)), page_checksum_verification=True)
        if start:
            check_pages(data, file.metadata)
        table = file.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(str(error)) from None
    refuse_if(table.num_rows != segment["rows"], "another number of rows")
    wanted = [*(field["name"] for field in schema["fields"]), *names]
    refuse_if(any(table.column_names.count(name) > 1 for name in wanted), "a name twice")
    columns = {}
    for field in schema["fields"]:
        if field["name"] not in table.column_names:
            refuse_if(not field["nullable"], "a column is missing")
            columns[field["name"]] = [None] * table.num_rows
            continue
        found = table.column(field["name"])
        refuse_if(not widens(found.type, field["type"]), "another type")
        refuse_if(not field["nullable"] and found.null_count, "null where none may be")
        columns[field["name"]] = [
            json_value(value, field["type"]) for value in plain(found.cast(arrow_type(field["type"])))
        ]
    for name in names:
        refuse_if(name not in table.column_names or table.schema.field(name).type != STORED[name], "no stored column")
        columns[name] = plain(table.column(name))
        refuse_if(None in columns[name])
    partitions = [partition for partition, rows, _ in segment["slices"] for _ in range(rows)]
    refuse_if(columns.get("_partition", partitions) != partitions, "another partition")
    refuse_if("_txn" in columns and min(columns["_txn"], default=0) < 0, "no number")
    return columns


def without_arrow_schema(data):
    """The file with another key where Arrow left its own types: they do not count. Key-value metadata come late."""
    start = data.rfind(b"\x18\x0cARROW:schema\x18")
    return data if start < 0 else data[: start + 2] + b"arrow" + data[start + 7 :]


def check_pages(data, metadata):
    """P-106: with a footer's checksum pages have their own. This looks at the first of each column."""
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            at = chunk.dictionary_page_offset or chunk.data_page_offset
            for _ in range(3):  # type, uncompressed and compressed size, as Thrift's compact protocol writes them
                at += 2
                while data[at - 1] & 0x80:
                    at += 1
            refuse_if(data[at] != 0x15, "a page without a checksum")


def stored_columns(segment, state):
    if segment["compacted"]:
        stored = ["_txn", "_version", "_timestamp", *(["_offset"] if segment["extent"] is not None else [])]
        return stored if state == "COMMITTED" else []
    if segment["txn"] is None:
        return ["_txn", "_partition"]
    return ["_partition"] if len(segment["slices"]) > 1 else []


def plain(column):
    """The values of a column; times as numbers."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()
    if pa.types.is_date(column.type):
        return column.cast(pa.int32()).to_pylist()
    return column.to_pylist()


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def json_value(value, kind):
    if value is None:
        return None
    if isinstance(kind, dict):
        if kind["type"] == "struct":
            return {field["name"]: json_value(value[field["name"]], field["type"]) for field in kind["fields"]}
        if kind["type"] == "array":
            return [json_value(item, kind["elementType"]) for item in value]
        return [[json_value(k, kind["keyType"]), json_value(v, kind["valueType"])] for k, v in value]
    if kind == "binary":
        return value.hex()
    if kind in {"float", "double"}:
        return value if value - value == 0 else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if kind.startswith("decimal"):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=datetime.UTC) - EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - EPOCH.date()).days
    return value


# --- section 8: visibility --------------------------------------------------------------------------------------------


def state_at(log, segment, version):
    if segment["logged"] > version:
        return None
    if segment["ended"] is None or segment["ended"] > version:
        return "OPEN"
    if segment["state"] == "aborted":
        return "ABORTED"
    removed = log.removals.get(segment["number"])
    return "COMMITTED" if removed is None or removed > version else None


def txn_id(log, number):
    coordinator = [known for first, known in log.coordinators if first <= number][-1]
    return f"{coordinator:04x}{number:028x}"


def topic_at(log, name, version):
    for topic in log.topics.values():
        there = topic["dropped"] is None or topic["dropped"] > version
        if topic["name"] == name and topic["id"] <= version and there:
            return topic
    raise NoTopic(name)


def registrations(root):
    try:
        return () if get(root / "_catalog", 0) is None else open_log(root / "_catalog").namespaces.values()
    except (Damaged, Unsupported):
        return ()  # the root log cannot be read


def check_identity(root, namespace, log):
    """P-232: the root log must not list another log under the name, or this one under another."""
    mine = (log.name, log.coordinators[-1][1], digest_of(get(root / namespace, 0) or b""))
    for item in registrations(root):
        if item["dropped"]:
            continue
        same = item["coordinator"] == mine[1] and item["log"] in {"", mine[2]}
        if item["name"] == namespace and not (same and mine[0] == namespace):
            raise NoNamespace("another log is listed under this name")
        if item["name"] != namespace and same and item["name"] == mine[0]:
            raise NoNamespace("it is listed under another name")


def read(root, namespace, topic, version, level):
    """The rows of a topic. Raises one of the errors with a code."""
    root = Path(root)
    home = root / namespace
    if not NAME.fullmatch(namespace):
        raise NoNamespace(namespace)
    if get(home, 0) is None:
        listed = [item["name"] for item in registrations(root) if not item["dropped"]]
        refuse_if(namespace in listed and any(home.glob("**/*.*")), "entry 0 is missing")
        raise NoNamespace(namespace)
    log = open_log(home)
    check_identity(root, namespace, log)
    version = log.version if version == "latest" else int(version)
    if not log.oldest <= version <= log.version:
        raise NoVersion(f"{log.oldest} to {log.version}")
    found = topic_at(log, topic, version)
    schema = [item for since, item in found["schemas"] if since <= version][-1]
    rows = []
    for segment in log.segments.values():
        if segment["topic"] != found["id"]:
            continue
        state = state_at(log, segment, version)
        if state is None or (state != "COMMITTED" and level == "read_committed"):
            continue
        if segment["state"] == "aborted" and segment["ended"] <= log.oldest:
            continue
        rows += rows_of(log, home, found, segment, schema, state)
    rows.sort(key=lambda row: (row["_offset"] is None, row["_partition"], row["_offset"] or 0))
    if level == "read_committed":
        for row in rows:
            del row["_txn_state"]
    return rows


def rows_of(log, home, topic, segment, schema, state):
    wanted = []
    place = 0
    for partition, rows, offset in segment["slices"]:
        for index in range(rows):
            at = offset + index if state == "COMMITTED" else None
            if at is None or at >= log.starts.get((topic["id"], partition), 0):
                wanted.append((place, partition, at))
            place += 1
    partition, _, first = segment["slices"][0]
    start, end = log.starts.get((topic["id"], partition), 0), 0
    if segment["extent"] is not None and state == "COMMITTED":
        end = first + segment["extent"]
        wanted = [None] if end > start else []  # which rows these are says the file
    if not wanted:
        return []
    folder = home / topic["folder"] / f"_txnlog_segment={segment['number']}"
    columns = read_file(folder / segment["file"], segment, schema, state)
    if wanted == [None]:
        offsets = columns["_offset"]
        refuse_if(offsets != sorted({*offsets}), "offsets do not ascend")
        refuse_if(any(not first <= at < end for at in offsets), "offsets of another segment")
        wanted = [(place, partition, at) for place, at in enumerate(offsets) if at >= start]
    names = [field["name"] for field in schema["fields"]]
    found = []
    for place, partition, at in wanted:
        row = {name: columns[name][place] for name in names}
        visible = state == "COMMITTED"
        number = columns["_txn"][place] if "_txn" in columns else segment["txn"]
        row |= {"_partition": partition, "_offset": at, "_timestamp": segment["time"] * 1000 if visible else None}
        row |= {"_txn_id": txn_id(log, number), "_version": segment["ended"] if visible else None}
        if segment["compacted"] and visible:
            row |= {"_timestamp": columns["_timestamp"][place], "_version": columns["_version"][place]}
        found.append(row | {"_txn_state": state})
    return found
