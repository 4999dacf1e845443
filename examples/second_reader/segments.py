"""Segment files: their checksums, and the rows in them (PROTOCOL.md, sections 8 and 9)."""

import math
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from .entries import DAMAGED, Answer, refuse
from .pages import check_pages
from .state import decimal

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
STORED = {  # how a column may be stored: its own type last, those that widen to it in front (6.5)
    "string": [pa.utf8()],
    "binary": [pa.binary()],
    "boolean": [pa.bool_()],
    "byte": INTEGERS[:1],
    "short": INTEGERS[:2],
    "integer": INTEGERS[:3],
    "long": INTEGERS,
    "float": [pa.float32()],
    "double": [*INTEGERS[:3], pa.float32(), pa.float64()],
    "date": [pa.date32()],
    "timestamp": [pa.timestamp("us", "UTC")],
    "timestamp_ntz": [pa.timestamp("us")],
}
NUMBERS = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}  # what is printed as a number
NESTED = {"struct": pa.types.is_struct, "array": pa.types.is_list, "map": pa.types.is_map}
EXTRA = {"_partition": "integer", "_txn": "long", "_version": "long", "_timestamp": "timestamp", "_offset": "long"}


def printable(value):
    """A value as KIT.md writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value.hex() if isinstance(value, bytes) else value


def values(array, kind):
    """Values of an Arrow array, read by a type of the schema (P-219)."""
    if not isinstance(kind, str):
        return nested(array, kind)
    if decimal(kind):
        (precision, scale), stored = decimal(kind), array.type
        fits = pa.types.is_decimal(stored) and 0 <= stored.scale <= scale
        refuse(not fits or stored.precision - stored.scale > precision - scale, f"{stored} is no {kind}")
        return [None if value is None else f"{value:.{scale}f}" for value in array.to_pylist()]
    refuse(array.type not in STORED[kind], f"{array.type} is no {kind}")
    array = array.cast(STORED[kind][-1])
    return [printable(value) for value in array.cast(NUMBERS.get(kind, array.type)).to_pylist()]


def nested(array, kind):
    """Values of an array of structs, lists or maps."""
    refuse(not NESTED[kind.type](array.type), f"{array.type} is no {kind.type}")
    if kind.type == "struct":
        found = records([field.name for field in array.type], array.flatten(), kind.fields, len(array))
    else:
        if kind.type == "array":
            inner = values(array.values, kind.elementType)
        else:
            inner = list(zip(values(array.keys, kind.keyType), values(array.items, kind.valueType)))
        offsets = array.offsets.to_pylist()
        found = [inner[start:end] for start, end in zip(offsets, offsets[1:])]
    return [value if valid else None for value, valid in zip(found, array.is_valid().to_pylist())]


def records(names, arrays, fields, count):
    """Objects with the fields of a struct, of the arrays that the file has under these names."""
    columns = {field.name: [None] * count for field in fields}
    for field in fields:
        found = [array for name, array in zip(names, arrays) if name == field.name]
        refuse(len(found) > 1 or not found and not field.nullable, "a column is there twice, or is missing")
        if found:
            columns[field.name] = values(found[0], field.type)
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def load(path, segment, wanted):
    """Names and arrays of the wanted columns of a file that is as the log says (P-106, P-107, P-140)."""
    refuse(path.stat().st_size != segment.size_bytes, "another size")
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    refuse(data[-4:] != b"PAR1" or footer < 4 or len(data) - footer > 64 * 2**20, "no footer")
    whole = segment.checksum.startswith("crc32:")
    refuse(zlib.crc32(data if whole else data[footer:]) != int(segment.checksum[-8:], 16), "checksum")
    data = data[:footer] + data[footer:].replace(b"ARROW:schema", b"arrow.schema")  # Arrow's own types do not count
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    groups = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
    refuse(file.metadata.num_rows != segment.rows or sum(groups) != segment.rows, "rows of the file")
    if not whole:
        paths = [f"{file.schema.column(index).path}." for index in range(len(file.schema))]
        chosen = [index for index, path in enumerate(paths) if any(path.startswith(f"{name}.") for name in wanted)]
        check_pages(data, footer, chosen)
    table = file.read(columns=list(wanted), use_threads=False)
    table.validate(full=True)
    return table.column_names, [column.combine_chunks() for column in table.columns]


def read(path, state, topic, schema, segment, seen):
    """Rows of a segment's file, which are COMMITTED, OPEN or ABORTED (P-99, P-101, P-144, P-234)."""
    stored = {"_partition"} if segment.txn is None or len(segment.slices) > 1 else set()
    if segment.txn is None or segment.compacted and seen == "COMMITTED":
        stored |= {"_txn", "_version", "_timestamp"} if segment.compacted else {"_txn"}
        stored |= {"_offset"} if segment.extent is not None else set()
    try:
        names, arrays = load(path, segment, {field.name for field in schema.fields} | stored)
    except Exception as error:  # whatever a decoder says of stored bytes is corruption
        raise Answer(DAMAGED, f"{str(path)!a}: {type(error).__name__} {ascii(str(error))[:200]}") from None
    rows = records(names, arrays, schema.fields, segment.rows)
    for field in schema.fields:
        refuse(not field.nullable and any(row[field.name] is None for row in rows), "null (P-219)")
    meta = {name: [None] * len(rows) for name in ("_offset", "_timestamp", "_version")}
    meta["_partition"] = partitions = [part.partition for part in segment.slices for _ in range(part.rows)]
    meta["_txn"] = [segment.txn and segment.txn.txn] * len(rows)
    if seen == "COMMITTED":
        places = zip(segment.slices, segment.offsets)
        meta["_offset"] = [offset + index for part, offset in places for index in range(part.rows)]
        meta["_timestamp"], meta["_version"] = [segment.time * 1000] * len(rows), [segment.ended] * len(rows)
    for name in stored:
        found = [array for known, array in zip(names, arrays) if known == name]
        refuse(len(found) != 1 or found[0].null_count, f"{name} in the file (section 9)")
        refuse(found[0].type != STORED[EXTRA[name]][-1], f"type of {name}")
        meta[name] = values(found[0], EXTRA[name])
    refuse(meta["_partition"] != partitions or min(meta["_txn"], default=0) < 0, "_partition or _txn (P-107)")
    if "_offset" in stored:
        first, found = segment.offsets[0], meta["_offset"]
        refuse(found != sorted(set(found)) or set(found) - set(range(first, first + segment.extent)), "P-250")
    meta["_txn_id"], meta["_txn_state"] = [state.txn_id(number) for number in meta.pop("_txn")], [seen] * len(rows)
    for row, *extra in zip(rows, *meta.values()):
        row |= zip(meta, extra)
        if row["_offset"] is None or row["_offset"] >= topic.starts[row["_partition"]]:  # P-235
            yield row
