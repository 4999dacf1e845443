"""A second reader, written from PROTOCOL.md alone: the lines of entries, decoded strictly (section 4), and their keys.

It imports nothing of this project and shares no line with it. Misreadings are planted into its text, a line each.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pyarrow as pa


class Damaged(Exception):
    code = "damaged"


class Unsupported(Exception):
    code = "unsupported"


class NoVersion(Exception):
    code = "version"


class NoTopic(Exception):
    code = "topic"


class NoNamespace(Exception):
    code = "namespace"


def refuse_if(condition, why="refused"):
    if condition:
        raise Damaged(why)


# --- section 4: the entry ---------------------------------------------------------------------------------------------

MOST = 2**63 - 1
INFINITY = float("inf")
REQUIRED = object()
DIGITS = re.compile(r"[0-9a-f]{32}")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-]))*")
RESERVED = re.compile(r"(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\..*)?", re.IGNORECASE)


def integer(value, low=0, high=MOST):
    if type(value) is not int or not low <= value <= high:
        raise Damaged("no integer in its range")


def signed(value):
    integer(value, -(2**63))


def time(value):
    integer(value, 0, 253402300799999)


def text(value):
    if type(value) is not str:
        raise Damaged("no text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Damaged("half of a character") from None


FORBIDDEN_IN_LABELS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def label_is_allowed(value):
    refuse_if(not 1 <= len(value) <= 256 or FORBIDDEN_IN_LABELS.search(value), "no label")


def boolean(value):
    if type(value) is not bool:
        raise Damaged("no boolean")


def bound(value):
    if value is not None and (type(value) not in {str, int, float, bool} or value in {INFINITY, -INFINITY}):
        raise Damaged("no bound")
    if type(value) is str:
        text(value)


def or_null(check):
    return lambda value: None if value is None else check(value)


def list_of(check):
    def checked(value):
        if type(value) is not list:
            raise Damaged("no list")
        for item in value:
            check(item)

    return checked


def array(*checks, least=None):
    def checked(value):
        if type(value) is not list or not (len(checks) if least is None else least) <= len(value) <= len(checks):
            raise Damaged("no array of its length")
        for check, item in zip(checks, value, strict=False):
            check(item)

    return checked


def choice(*values):
    def checked(value):
        if value not in values or type(value) is not str:
            raise Damaged("none of the choices")

    return checked


def texts(value):
    if type(value) is not dict:
        raise Damaged("no object")
    for name, item in value.items():
        text(name)
        text(item)


def statistics(value):
    if type(value) is not dict:
        raise Damaged("no object")
    for name, item in value.items():
        text(name)
        array(bound, bound, or_null(integer))(item)


def record(fields):
    def checked(value):
        if type(value) is not dict:
            raise Damaged("no object")
        if value.keys() - fields.keys():
            raise Damaged("an unknown field")
        for name, (check, default) in fields.items():
            if name in value:
                check(value[name])
            elif default is REQUIRED:
                raise Damaged("a missing field")
            else:
                value[name] = default

    return checked


def data_type(value):
    if type(value) is str:
        return
    if type(value) is not dict:
        raise Damaged("no type")
    kind = value.get("type")
    if kind == "struct":
        schema(value)
    elif kind == "array":
        fields = {"type": (text, REQUIRED), "elementType": (data_type, REQUIRED), "containsNull": (boolean, True)}
        record(fields)(value)
    elif kind == "map":
        fields = {"type": (text, REQUIRED), "keyType": (data_type, REQUIRED), "valueType": (data_type, REQUIRED)}
        record(fields | {"valueContainsNull": (boolean, True)})(value)
    else:
        raise Damaged("no type")


column = record(
    {"name": (text, REQUIRED), "type": (data_type, REQUIRED), "nullable": (boolean, True), "metadata": (texts, {})}
)


def schema(value):
    record({"type": (choice("struct"), REQUIRED), "fields": (list_of(column), REQUIRED)})(value)


pair = array(integer, integer)
ranges = list_of(pair)
partition_ranges = list_of(array(integer, ranges))
acknowledgement = record(
    {
        "subscription": (integer, REQUIRED),
        "epoch": (integer, REQUIRED),
        "ranges": (partition_ranges, []),
        "cumulative": (list_of(pair), []),
        "expected": (list_of(pair), []),
    }
)
stream_batch = record(
    dict.fromkeys(("identity", "query", "offsets_digest"), (text, REQUIRED)) | {"batch": (integer, REQUIRED)}
)

N, T, OI = (integer, REQUIRED), (text, REQUIRED), (or_null(integer), None)
OT = (or_null(text), None)
ACTIONS: dict[str, dict[str, Any]] = {
    "header": {"version": N, "writer": T, "timestamp_ms": (time, REQUIRED), "previous": (text, ""), "checkpoint": OI},
    "protocol": {
        "reader_version": N,
        "writer_version": N,
        "reader_features": (list_of(text), []),
        "writer_features": (list_of(text), []),
    },
    "namespace": {"name": T, "coordinator": N, "max_timeout_ms": OI, "outcome_retention_ms": OI},
    "adopt": {"name": T, "coordinator": N},
    "register": {"name": T, "coordinator": N, "log": (text, "")},
    "unregister": {"namespace": N},
    "verdict": {"store": T, "endpoint": T, "rounds": N},
    "topic": {"name": T, "schema": (schema, REQUIRED), "partitions": N, "key": OT, "properties": (texts, {})},
    "alter_topic": {"topic": N, "schema": (or_null(schema), None), "properties": (or_null(texts), None)},
    "drop_topic": {"topic": N},
    "delete_records": {"topic": N, "before": (list_of(pair), REQUIRED)},
    "subscription": {
        "topic": N,
        "name": T,
        "type": (choice("exclusive", "failover", "shared"), REQUIRED),
        "start": (list_of(integer), REQUIRED),
        "lease_ms": N,
        "takeover": (choice("any", "same_name", "after_lease"), "any"),
        "max_redeliveries": OI,
        "dead_letter_topic": OT,
    },
    "drop_subscription": {"subscription": N},
    "consumer": {"subscription": N, "name": T, "stream": OT},
    "seek": {"subscription": N, "positions": (list_of(pair), REQUIRED)},
    "lease": {"subscription": N, "consumer": T, "ranges": (partition_ranges, REQUIRED)},
    "release": {
        "subscription": N,
        "consumer": T,
        "ranges": (partition_ranges, REQUIRED),
        "redeliver": (boolean, False),
    },
    "reserve": {"writer": T, "first": N, "count": N},
    "renew": {"first": N},
    "close": {"first": N},
    "producer": {"name": T, "fenced_by": OT},
    "forget_app": {"app_id": T},
    "begin": {
        "txn": N,
        "timeout_ms": OI,
        "producer": OT,
        "epoch": OI,
        "app_id": OT,
        "app_version": (or_null(signed), None),
    },
    "segment": {
        "segment": N,
        "topic": N,
        "file": T,
        "rows": N,
        "size_bytes": N,
        "checksum": T,
        "slices": (list_of(array(integer, integer, or_null(integer), least=2)), REQUIRED),
        "txn": OI,
        "compacted": (boolean, False),
        "statistics": (statistics, {}),
        "extent": OI,
    },
    "acknowledge": {"txn": N, "acknowledgement": (acknowledgement, REQUIRED)},
    "prepare": {"txn": N, "digest": T},
    "commit": {
        "txn": N,
        "digest": (text, ""),
        "shares": (list_of(array(integer, integer, integer, or_null(integer), least=3)), []),
        "acknowledgements": (list_of(acknowledgement), []),
        "producer": OT,
        "epoch": OI,
        "app_id": OT,
        "app_version": (or_null(signed), None),
        "stream": (or_null(stream_batch), None),
        "dropped_topics": (list_of(integer), []),
        "dropped_subscriptions": (list_of(integer), []),
    },
    "abort": {
        "txn": N,
        "reason": (choice("user", "timeout", "fenced", "admin", "failed"), "user"),
        "by": OT,
        "why": OT,
    },
    "replace": {"topic": N, "txn": N, "removed": (list_of(integer), REQUIRED), "offsets": (list_of(integer), REQUIRED)},
    "vacuum": {"oldest_readable": N},
}


def no_constant(_):
    raise Damaged("NaN is no JSON")


def decode_line(line):
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=no_constant)
    except (ValueError, RecursionError):
        raise Damaged("no JSON") from None
    if type(value) is not dict or type(value.get("action")) is not str or not value["action"]:
        raise Damaged("no action")
    if value["action"] not in ACTIONS:
        raise Unsupported(value["action"])
    record({"action": (text, REQUIRED)} | ACTIONS[value["action"]])(value)
    return value


def digest_of(data):
    return hashlib.sha256(data).hexdigest()[:32]


def decode_entry(data, version):
    if len(data) > 8_388_608 or not data.endswith(b"\n"):
        raise Damaged("too long, or its last line has no end")
    lines = data[:-1].split(b"\n")
    if len(lines) - 1 > 50_000:
        raise Damaged("too many actions")
    try:
        header = decode_line(lines[0])
    except Unsupported:
        raise Damaged("no header") from None
    if header["action"] != "header" or header["version"] != version:
        raise Damaged("it is no entry of this version")
    actions = [decode_action(line) for line in lines[1:]]
    return header, actions


def decode_action(line):
    action = decode_line(line)
    if action["action"] == "header":
        raise Damaged("a second header")
    return action


# --- sections 2 and 11: keys, the tail --------------------------------------------------------------------------------


def entry_path(home, version):
    return home / "_log" / f"{version // 10_000:010d}" / f"{version:020d}.json"


def get(home, version):
    try:
        return entry_path(home, version).read_bytes()
    except FileNotFoundError:
        return None


def newest_version(home):
    low, step = 0, 1
    while get(home, low + step) is not None:
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if get(home, middle) is None:
            high = middle
        else:
            low = middle
    if get(home, high + 1) is not None:
        raise Damaged(f"entry {high} is missing")
    return low


# --- section 6.5: schemas ------------------------------------------------------------------------------------------

ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(kind):
    if isinstance(kind, dict):
        if kind["type"] == "struct":
            fields = kind["fields"]
            return pa.struct([pa.field(f["name"], arrow_type(f["type"]), f["nullable"]) for f in fields])
        if kind["type"] == "array":
            return pa.list_(pa.field("element", arrow_type(kind["elementType"]), kind["containsNull"]))
        value = pa.field("value", arrow_type(kind["valueType"]), kind["valueContainsNull"])
        return pa.map_(arrow_type(kind["keyType"]), value)
    if kind in ARROW:
        return ARROW[kind]
    digits = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    refuse_if(digits is None, "an unknown type")
    return pa.decimal128(int(digits[1]), int(digits[2]))
