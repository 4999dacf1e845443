"""Entries: where they lie, and what may stand in them (PROTOCOL.md, sections 2 to 4, and the tables of section 6)."""

import itertools
import json
import math
import re
from types import SimpleNamespace as Record

# A record a line: its name, and its fields as name:kind. [] makes a list of a kind, {} an object with any names.
# With ? null is allowed and the default, = gives another default. A line that is indented goes on with the one before.
ACTIONS = """
header version:integer writer:text timestamp_ms:time previous:text="" checkpoint:integer?
protocol reader_version:integer writer_version:integer reader_features:text[]=[] writer_features:text[]=[]
namespace name:text coordinator:integer max_timeout_ms:integer? outcome_retention_ms:integer?
adopt name:name coordinator:integer
register name:name coordinator:integer log:log=""
unregister namespace:namespace
verdict store:text endpoint:text rounds:integer
topic name:name schema:schema partitions:integer key:text? properties:text{}={}
alter_topic topic:topic schema:schema? properties:text{}?
drop_topic topic:topic
delete_records topic:topic before:pair[]
reserve writer:text first:integer count:integer
renew first:block
close first:block
producer name:label fenced_by:text?
begin txn:integer timeout_ms:integer? producer:text? epoch:integer? app_id:label? app_version:signed?
segment segment:integer topic:topic file:file rows:integer size_bytes:integer checksum:checksum slices:slice[]
  txn:open? compacted:boolean=false statistics:statistic{}={} extent:integer?
acknowledge txn:open acknowledgement:acknowledgement
prepare txn:open digest:digest
commit txn:integer digest:digest="" shares:share[]=[] acknowledgements:acknowledgement[]=[] producer:text?
  epoch:integer? app_id:label? app_version:signed? stream:batch? dropped_topics:integer[]=[]
  dropped_subscriptions:integer[]=[]
abort txn:integer reason:admin|failed|fenced|timeout|user="user" by:text? why:text?
forget_app app_id:label
subscription topic:topic name:name type:exclusive|failover|shared start:integer[] lease_ms:integer
  takeover:after_lease|any|same_name="any" max_redeliveries:integer? dead_letter_topic:name?
drop_subscription subscription:subscription
consumer subscription:subscription name:label stream:label?
seek subscription:subscription positions:pair[]
lease subscription:subscription consumer:label ranges:partition_ranges[]
release subscription:subscription consumer:label ranges:partition_ranges[] redeliver:boolean=false
replace topic:topic txn:open removed:integer[] offsets:integer[]
vacuum oldest_readable:integer
"""
OBJECTS = """
acknowledgement subscription:integer epoch:integer ranges:partition_ranges[]=[] cumulative:pair[]=[] expected:pair[]=[]
batch identity:text query:text batch:integer offsets_digest:text
field name:text type:type nullable:boolean=true metadata:text{}={}
struct fields:field[]
array elementType:type containsNull:boolean=true
map keyType:type valueType:type valueContainsNull:boolean=true
"""
ARRAYS = """
pair partition:integer offset:integer
range start:integer end:integer
partition_ranges partition:integer ranges:range[]
slice partition:integer rows:integer sequence:integer?
share segment:integer partition:integer rows:integer sequence:integer?
statistic minimum:bound maximum:bound nulls:nulls
"""
# Texts with a form of their own, and numbers of what is in the state: both are looked at when the action is applied.
FORMS = {
    "name": r"(?ai)(?!(con|prn|aux|nul|(com|lpt)[1-9])(\.|\Z))(?=.{1,100}\Z)[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*",
    "label": "[^\0-\x1f\x7f-\x9f\u2028\u2029]{1,256}",
    "digest": "[^\0-\x1f\x7f-\x9f\u2028\u2029]{0,256}",
    "log": "([0-9a-f]{32})?",
    "file": r"[0-9a-f]{32}\.parquet",
    "checksum": "(footer-)?crc32:[0-9a-f]{8}",
}
NUMBERS = ("namespace", "topic", "block", "open", "subscription")
INTEGERS = {
    **dict.fromkeys(["integer", "nulls", *NUMBERS], range(2**63)),
    "signed": range(-(2**63), 2**63),
    "time": range(253402300800000),
}


DAMAGED, UNSUPPORTED, NO_VERSION, NO_TOPIC, NO_NAMESPACE = range(10, 15)  # KIT.md's exit codes


class Answer(Exception):
    """An answer other than rows: its exit code, and why."""


def refuse(condition, why):
    """Corruption if the condition holds."""
    if condition:
        raise Answer(DAMAGED, why)


def tables(lines):
    """Records by name: of each field its name, its kind, and None if it is required, "?", or "=" and its default."""
    result = {}
    for line in re.split(r"\n(?! )", lines.strip()):
        name, *fields = line.split()
        result[name] = [re.fullmatch(r"(\w+):([^?=]+)(\?|=.*)?", field).groups() for field in fields]
    return result


ACTIONS, OBJECTS, ARRAYS = tables(ACTIONS), tables(OBJECTS), tables(ARRAYS)


def fit(value, kind):
    """The value with its defaults, if it is of the kind (P-14)."""
    if kind.endswith("[]") and type(value) is list:
        return [fit(item, kind[:-2]) for item in value]
    if kind.endswith("{}") and type(value) is dict:
        return {name: fit(item, kind[:-2]) for name, item in value.items()}
    if kind in ARRAYS and type(value) is list and len(value) <= len(ARRAYS[kind]):
        return fit_fields({field[0]: item for field, item in zip(ARRAYS[kind], value)}, ARRAYS[kind])
    if kind in OBJECTS and type(value) is dict:
        return fit_fields(value, OBJECTS[kind])
    if kind in ("type", "schema") and type(value) is dict and value.get("type") in ["struct", "array", "map"]:
        refuse(kind == "schema" and value["type"] != "struct", "a schema is a struct")
        return fit_fields(value, OBJECTS[value["type"]], "type")
    known = (
        kind in INTEGERS and type(value) is int and value in INTEGERS[kind],
        kind in ("text", "type", *FORMS) and type(value) is str,
        kind == "boolean" and type(value) is bool,
        kind in ("bound", "nulls") and value is None,
        kind == "bound" and (type(value) in (str, bool, int) or type(value) is float and math.isfinite(value)),
        "|" in kind and value in kind.split("|"),
    )
    refuse(not any(known), f"{ascii(value)[:40]} is no {kind}")
    return value


def fit_fields(value, fields, tag=None):
    """The object with exactly these fields, and the tag that told which they are."""
    refuse(value.keys() - {field[0] for field in fields} - {tag}, f"unknown field in {ascii(list(value))[:200]}")
    result = Record(**{tag: value[tag]} if tag else {})
    for name, kind, default in fields:
        refuse(default is None and name not in value, f"{name} is missing")
        if default == "?" and value.get(name) is None:
            setattr(result, name, None)
        else:
            setattr(result, name, fit(value[name], kind) if name in value else json.loads(default[1:]))
    return result


def json_object(line):
    """The JSON object of a line."""
    try:
        value = json.loads(line.decode(), parse_constant=lambda name: refuse(True, f"{name} is no JSON"))
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise Answer(DAMAGED, f"no JSON: {ascii(str(error))[:80]}") from None
    refuse(type(value) is not dict, "no object")
    return value


def decode(data, version):
    """Header and actions of the entry in the slot of a version, checked in the order of section 4."""
    refuse(len(data) > 8388608 or data.count(b"\n") > 50001, "too large (P-13)")
    refuse(not data.endswith(b"\n"), "no line feed at the end (P-12)")
    first, *lines = data[:-1].split(b"\n")
    header, actions = json_object(first), []
    refuse(header.get("action") != "header", "the first line is no header")
    header = fit_fields(header, ACTIONS["header"], "action")
    refuse(header.version != version, "the version of another slot (P-20)")
    for line in map(json_object, lines):
        action = line.get("action")
        refuse(type(action) is not str or action in ("", "header"), "no action")
        if action not in ACTIONS:
            raise Answer(UNSUPPORTED, f"action {ascii(action)[:40]} at version {version} (P-15)")
        actions.append(fit_fields(line, ACTIONS[action], "action"))
    return header, actions


def entry_path(folder, version):
    """Path of an entry of the log in a namespace's folder (section 2)."""
    return folder / f"_log/{version // 10000:010}/{version:020}.json"


def entries(folder):
    """Bytes of the entries up to the newest, below which no slot is free (P-114, P-115)."""
    for version in itertools.count():
        path = entry_path(folder, version)
        if not path.exists() and not entry_path(folder, version + 1).exists():
            return
        refuse(not path.exists(), f"entry {version} is missing")
        yield path.read_bytes()
