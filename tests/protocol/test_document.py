"""PROTOCOL.md against the code: what it shows decodes, what it lists exists, what exists is listed."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import msgspec.inspect
import pyarrow as pa
import pytest

from tests.protocol.document import (
    TEXT,
    action_headings,
    fields,
    json_blocks,
    rows,
    section,
    table_after,
)
from txnlog.common import format_limits as fixed
from txnlog.common import limits
from txnlog.data.wire_rows import WireRows
from txnlog.fold import state
from txnlog.format import schema
from txnlog.format.actions import (
    KNOWN_ACTIONS,
    Acknowledgement,
    AnyAction,
    Header,
    PartitionRanges,
    Share,
    SliceRows,
    StreamBatch,
    Verdict,
)
from txnlog.format.codec import decode_entry, encode_action
from txnlog.format.schema import KEY_TYPES, ArrayType, MapType, StructField, StructType
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import COLD_KINDS, Manifest, Part
from txnlog.log.proposals import proposal_codec

ACTIONS: dict[str, type[Any]] = {kind.__struct_config__.tag: kind for kind in AnyAction.__args__}
HEADER = '{"action":"header","version":7,"writer":"w","timestamp_ms":5}\n'
VALUES: dict[str, type[Any]] = {
    "Object `struct`:": StructType,
    "A field:": StructField,
    "Object `array`:": ArrayType,
    "Object `map`:": MapType,
    "An acknowledgement is an object inside": Acknowledgement,
    "*partition ranges*:": PartitionRanges,
    "*slice*:": SliceRows,
    "*share*:": Share,
    "*stream batch*:": StreamBatch,
    "*mailbox*:": proposal_codec.Mailbox,
    "`commit`: commit a transaction that": proposal_codec.ProposedCommit,
    "`acknowledge`: acknowledge outside": proposal_codec.ProposedAcknowledge,
    "`reserve`: reserve a block": proposal_codec.ProposedNumbers,
    "*piece*:": proposal_codec.ProposedPiece,
    "*named subscription*:": proposal_codec.ProposedSubscription,
    "*topic rows*:": proposal_codec.ProposedRows,
    "The rows themselves, *rows*:": WireRows,
}


RANGES: dict[type[Any], set[str]] = {
    PartitionRanges: {"ranges"},
    state.Hold: {"ranges"},
    state.LeaseRecord: {"ranges"},
    state.Cursor: {"acknowledged"},
}
"""Fields that are sets of offsets: to the code they are pairs like others."""


NAMED: dict[type[Any], str] = {
    StructType: "schema",
    StructField: "field",
    Acknowledgement: "acknowledgement",
    StreamBatch: "stream batch",
    proposal_codec.ProposedCommit: "command",
    proposal_codec.ProposedAcknowledge: "command",
    proposal_codec.ProposedNumbers: "command",
    proposal_codec.ProposedPiece: "piece",
    proposal_codec.ProposedSubscription: "named subscription",
    WireRows: "rows",
    proposal_codec.ProposedRows: "topic rows",
    PartitionRanges: "partition range",
    SliceRows: "slice",
    Share: "share",
    state.CumulativeHold: "cumulative claim",
    state.SchemaVersion: "schema version",
    state.Hold: "hold",
    state.LeaseRecord: "lease",
    state.Redelivery: "redelivery",
    state.Batch: "batch",
    state.SegmentSlice: "segment slice",
}


def integer_name(kind: msgspec.inspect.IntType) -> str:
    if kind.ge is None:
        return "integer"  # of a record: a part of a checkpoint is trusted by its digest
    if (kind.ge, kind.le) == (0, fixed.MAX_TIME_MS):
        return "time"
    if kind.multiple_of is not None or kind.le == fixed.MAX_PROPOSAL_ROWS:
        return "integer"  # of the bounds, the text says more
    if kind.le is None:
        return "64-bit integer"
    assert kind.le == fixed.MAX_NUMBER, "every integer of an entry has bounds"
    return "integer" if kind.ge == 0 else "signed integer"


PLAIN: dict[type[Any], str] = {
    msgspec.inspect.StrType: "text",
    msgspec.inspect.BytesType: "binary",
    msgspec.inspect.BoolType: "boolean",
}


def type_name(kind: Any) -> str:
    """A type of the code in the words of the document."""
    match kind:
        case msgspec.inspect.UnionType():
            others = [item for item in kind.types if not isinstance(item, msgspec.inspect.NoneType)]
            names = {type_name(item) for item in others}
            name = names.pop() if len(names) == 1 else "text or object" if "schema" in names else "bound"
            return name if len(others) == len(kind.types) else f"{name} or null"
        case msgspec.inspect.IntType():
            return integer_name(kind)
        case msgspec.inspect.StrType() | msgspec.inspect.BytesType() | msgspec.inspect.BoolType():
            return PLAIN[type(kind)]
        case msgspec.inspect.LiteralType():
            return " / ".join(f"`{value}`" for value in kind.values)
        case msgspec.inspect.StructType():
            return NAMED.get(kind.cls, "object")
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.TupleType()):
            return "list of pairs"
        case msgspec.inspect.VarTupleType():
            name = type_name(kind.item_type)
            plural = {"redelivery": "redeliveries", "batch": "batches"}
            return f"list of {plural.get(name, name + 's')}"
        case msgspec.inspect.DictType(value_type=msgspec.inspect.StrType()):
            return "object of texts"
        case msgspec.inspect.DictType(value_type=msgspec.inspect.StructType()):
            return f"object of {type_name(kind.value_type)}"
        case msgspec.inspect.DictType():
            return "object of statistics"
        case _:
            raise AssertionError(f"no word for {kind}")


def default_of(field: msgspec.inspect.Field) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def assert_described(kind: type[Any], text: str) -> None:
    """The field table in a text says of every field what the struct says."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    described = fields(text)
    assert [item.name for item in described] == [field.encode_name for field in info.fields]
    for item, field in zip(described, info.fields, strict=True):
        assert item.default == default_of(field), item.name
        words = type_name(field.type)
        if field.name in RANGES.get(kind, ()):
            words = "ranges"
        assert item.type == words, item.name
        assert item.meaning, item.name


# --- actions ----------------------------------------------------------------------------------------------------------


def test_every_action_has_a_section_and_every_section_an_action():
    headings = action_headings()
    assert len(headings) == len(set(headings))
    assert set(headings) == set(ACTIONS) == KNOWN_ACTIONS - {"header"}


@pytest.mark.parametrize("tag", ACTIONS)
def test_every_action_shows_a_line_that_is_written_exactly_so(tag):
    (block,) = json_blocks(section(f"#### `{tag}`"))
    line = block.rstrip("\n").encode()
    (action,) = decode_entry(HEADER.encode() + line + b"\n", 7).actions
    assert type(action) is ACTIONS[tag]
    assert encode_action(action) == line


@pytest.mark.parametrize("tag", ACTIONS)
def test_the_field_table_of_an_action_is_that_of_the_code(tag):
    assert_described(ACTIONS[tag], section(f"#### `{tag}`"))


def test_the_field_table_of_the_header_is_that_of_the_code():
    assert_described(Header, section("### Header"))


@pytest.mark.parametrize(("sentence", "kind"), VALUES.items(), ids=[kind.__name__ for kind in VALUES.values()])
def test_the_field_table_of_a_value_is_that_of_the_code(sentence, kind):
    assert TEXT.count(sentence) == 1
    assert_described(kind, table_after(sentence))


RECORDS: dict[str, type[Any]] = {
    "\n*head*:": state.Head,
    "\n*topic*:": state.TopicRecord,
    "\n*schema version*:": state.SchemaVersion,
    "\n*subscription*:": state.SubscriptionRecord,
    "\n*cursor*:": state.Cursor,
    "\n*hold*:": state.Hold,
    "\n*cumulative claim*:": state.CumulativeHold,
    "\n*lease*:": state.LeaseRecord,
    "\n*redelivery*:": state.Redelivery,
    "\n*block*:": state.Block,
    "\n*producer*:": state.ProducerRecord,
    "\n*sequences*:": state.Sequences,
    "\n*batch*:": state.Batch,
    "\n*transaction*:": state.TransactionRecord,
    "\n*application*:": state.AppRecord,
    "\n*stream*:": state.StreamRecord,
    "\n*segment*:": state.SegmentRecord,
    "\n*segment slice*, an array": state.SegmentSlice,
    "\n*namespace*:": state.NamespaceRecord,
}
"""Of each record of a checkpoint's hot part the words before its field table."""


@pytest.mark.clause("P-241")
@pytest.mark.parametrize(("words", "kind"), RECORDS.items(), ids=[kind.__name__ for kind in RECORDS.values()])
def test_the_field_table_of_a_record_is_that_of_the_code(words, kind):
    assert TEXT.count(words) == 1
    assert_described(kind, table_after(words))


def records_in(kind: msgspec.inspect.Type) -> set[type[Any]]:
    """The records that a type is made of, without those of schemas and actions."""
    match kind:
        case msgspec.inspect.StructType() if kind.cls.__module__ == "txnlog.fold.state":
            inner = set().union(*(records_in(field.type) for field in kind.fields))
            return inner | {kind.cls}
        case msgspec.inspect.TupleType() | msgspec.inspect.UnionType():
            parts = kind.item_types if isinstance(kind, msgspec.inspect.TupleType) else kind.types
            return set().union(*(records_in(item) for item in parts))
        case msgspec.inspect.VarTupleType():
            return records_in(kind.item_type)
        case _:
            return set()


@pytest.mark.clause("P-241")
def test_every_record_of_a_hot_part_is_described():
    found = set().union(*(records_in(msgspec.inspect.type_info(kind)) for kind in checkpoint_codec._HOT.values()))
    assert found == set(RECORDS.values())


@pytest.mark.clause("P-241")
def test_the_tables_of_a_hot_part_are_those_of_the_code():
    described = rows(table_after("| table | key | value | rows |"))
    assert [row[0].strip("`") for row in described] == list(checkpoint_codec._HOT)
    words = {kind: text.strip("\n*,: ").removesuffix("*, an array") for text, kind in RECORDS.items()}
    for name, key, value, what in described:
        table = checkpoint_codec._HOT[name.strip("`")]
        of_key, of_value = table.__args__
        assert key.startswith("`[") == (getattr(of_key, "__origin__", None) is tuple), name
        if of_value in words:
            assert value.startswith((words[of_value], f"[{words[of_value]}]")), name
        elif of_value is str:
            assert value == "text", name
        elif of_value is int:
            assert value in {"id", "integer"}, name
        else:
            assert of_value is Verdict, name
        assert what, name


# --- examples ---------------------------------------------------------------------------------------------------------


def is_entry(block: str) -> bool:
    return block.startswith('{"action":"header"')


def is_manifest(block: str) -> bool:
    return block.startswith('{\n "format"')


@pytest.mark.parametrize("block", json_blocks())
def test_every_json_block_is_a_schema_an_action_an_entry_or_a_manifest(block):
    if block.startswith('{"type":"struct"'):
        msgspec.json.decode(block, type=StructType)
    elif is_manifest(block):
        checkpoint_codec.decode_manifest(block.encode(), json.loads(block)["version"])
    elif is_entry(block):
        decode_entry(block.encode(), json.loads(block.splitlines()[0])["version"])
    else:
        decode_entry((HEADER + block).encode(), 7)


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_every_table_of_the_state_is_described():
    named = {name.strip() for row in rows(table_after("The state is a set of tables")) for name in row[0].split(",")}
    aliases = {
        "heads": "head",
        "topic_names": "topics",
        "subscription_names": "subscriptions",
        "namespace_names": "namespaces",
    }
    assert {aliases.get(name, name) for name in state.TABLES} == named


def test_the_fields_of_manifest_and_part_are_those_of_the_code():
    manifest = [row[0].strip("`") for row in rows(table_after("The **manifest** is a JSON object"))]
    assert manifest == list(Manifest.__struct_fields__)
    part = [name.strip(" `") for row in rows(table_after("| field of a part |")) for name in row[0].split(",")]
    assert sorted(part) == sorted(Part.__struct_fields__)


def column_words(field: pa.Field) -> str:
    """The type of a Parquet column in the words of the document."""
    words = str(field.type)
    if pa.types.is_list(field.type):
        element = field.type.value_type
        words = f"list of {element}"
        if pa.types.is_struct(element):
            inner = [element.field(place) for place in range(element.num_fields)]
            words = f"list of ({', '.join(f'{item.name} {column_words(item)}' for item in inner)})"
    return f"{words} or null" if field.nullable else words


def test_the_columns_of_cold_runs_and_their_order_are_those_of_the_code():
    described = {row[0].strip("`"): row[1] for row in rows(table_after("| kind | columns (Parquet), sorted by |"))}
    assert described == {
        kind: ", ".join(f"`{field.name}` {column_words(field)}" for field in checkpoint_codec._COLD_SCHEMAS[kind])
        + "; "
        + ", ".join(f"`{name}`" for name in checkpoint_codec._SORTED_BY[kind])
        for kind in COLD_KINDS
    }


ARROW_NAMES = {"string": "utf8", "float": "float32", "double": "float64", "date32[day]": "date32"}
"""Arrow's names of the types that PyArrow calls otherwise."""


def test_the_types_of_columns_are_those_of_the_code():
    cells = rows(table_after("| type | Arrow | type | Arrow |"))
    described = {row[i].strip("`"): row[i + 1] for row in cells for i in (0, 2)}
    assert described.pop("decimal(p,s)") == "decimal128(p, s), 1 ≤ p ≤ 38, s ≤ p"
    assert described.pop("objects") == "struct, list, map"
    named = {name: str(arrow).replace(", tz=UTC", ", UTC") for name, arrow in schema.PRIMITIVES.items()}
    assert described == {name: ARROW_NAMES.get(arrow, arrow) for name, arrow in named.items()}


def power_of_two(number: int) -> str:
    """A power of two as the document writes it."""
    assert number.bit_count() == 1
    return "2" + str(number.bit_length() - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


LIMITS_OF_A_NAMESPACE = (
    f"{fixed.MAX_TOPICS:,} topics; {fixed.MAX_SUBSCRIPTIONS:,} subscriptions; "
    f"{fixed.MAX_OPEN_TRANSACTIONS:,} transactions that are OPEN or PREPARED; "
    f"{fixed.MAX_ACKNOWLEDGED_RANGES:,} individually acknowledged ranges, pending ones included, above one cursor; "
    f"{fixed.MAX_LEASED_MESSAGES:,} messages leased to one consumer; "
    f"blocks of {power_of_two(fixed.MAX_BLOCK_NUMBERS)} numbers; "
    f"offsets and numbers below {power_of_two(fixed.MAX_NUMBER + 1)}; {fixed.MAX_PRODUCERS:,} producers, "
    f"{fixed.MAX_APPS:,} application ids, {fixed.MAX_STREAMS:,} stream identities and {fixed.MAX_SEQUENCES:,} "
    "(producer, topic, partition) with sequences. "
)


def test_the_limits_of_a_namespace_are_those_of_the_code():
    assert " ".join(section("### 6.4 Limits of a namespace").split()).startswith(LIMITS_OF_A_NAMESPACE)


@pytest.mark.parametrize(
    "words",
    [
        f"`_log/<v div {fixed.ENTRIES_PER_FOLDER:,} as 10 digits>/<v20>.json`",
        f"is 1 to {fixed.MAX_NAME_CHARACTERS} of the ASCII letters",
        f"part of a key: 1 to {fixed.MAX_LABEL_CHARACTERS} Unicode scalar values",
        f"the namespace's coordinator id ({fixed.MAX_COORDINATORS.bit_length() - 1}) and a number",
        f"of which format version {fixed.FORMAT_VERSION} uses {fixed.MAX_NUMBER.bit_length()}.",
        f"MUST have at most {fixed.MAX_ENTRY_BYTES:,} bytes and at most {fixed.MAX_ENTRY_ACTIONS:,} actions;",
        f"the newest {'five' if fixed.RECENT_BATCHES == 5 else fixed.RECENT_BATCHES}, oldest first",
        f"lies between 0 and {power_of_two(fixed.MAX_NUMBER + 1)} ",
        f"a *time* between 0 and {fixed.MAX_TIME_MS}, epoch milliseconds",
        f"cap of `timeout_ms`; null: {fixed.MAX_TIMEOUT_MS:,} |",
        f"cap ({fixed.MAX_TIMEOUT_MS // 60_000} minutes unless set)",
        f"how long outcomes are kept; null: {fixed.OUTCOME_RETENTION_MS // 86_400_000} days |",
        f"a cap of 0, a retention below {fixed.OUTCOME_RETENTION_MS // 86_400_000} days.",
        f"Outcomes MUST be kept for {fixed.OUTCOME_RETENTION_MS // 86_400_000} days of log time",
        f"more than {fixed.MAX_TOPICS:,} topics; partitions outside 1 to {fixed.MAX_PARTITIONS:,};",
        f"A topic MUST have 1 to {fixed.MAX_PARTITIONS:,} partitions;",
        f"A schema MUST have 1 to {fixed.MAX_COLUMNS:,} columns and at most {fixed.MAX_SCHEMA_DEPTH} levels;",
        f"A column's name MUST have 1 to {fixed.MAX_COLUMN_CHARACTERS} characters",
        f"`count` is 0 or above {power_of_two(fixed.MAX_BLOCK_NUMBERS)};",
        f"the number; {fixed.MAX_OPEN_TRANSACTIONS:,} open transactions;",
        f"its deadline and {fixed.EXPIRY_GRACE_MS // 1_000} s are over",
        f"a second one in the entry; more than {fixed.MAX_SUBSCRIPTIONS:,}; a number of start offsets",
        f"more than {fixed.MAX_LEASED_MESSAGES:,} messages leased to the consumer",
        f"With {fixed.MAX_ACKNOWLEDGED_RANGES:,} ranges above a cursor,",
        f"whose clock is more than {fixed.MAX_CLOCK_AHEAD_MS // 1_000} s ahead of the store's",
        f"MUST be an hour ({fixed.MIN_GRACE_MS:,} ms) of log time at least",
        f"Together they MUST have at most {fixed.MAX_WRITER_CHARACTERS} characters, and none that",
        f"A Parquet footer that claims more than {limits.MAX_FOOTER_BYTES >> 20} MiB",
    ],
)
def test_a_limit_is_what_the_document_says(words: str):
    assert " ".join(TEXT.split()).count(words) == 1


def test_the_key_types_in_the_document_are_those_of_the_code():
    found = {name.strip("` ") for row in rows(table_after("| key type | bytes |")) for name in row[0].split(",")}
    assert found == KEY_TYPES | {"null"}


def anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


def test_links_inside_the_document_lead_somewhere():
    anchors = {anchor(line.lstrip("# ")) for line in TEXT.splitlines() if line.startswith("#")}
    for link in re.findall(r"\]\(#([^)]*)\)", TEXT):
        assert link in anchors


# --- the order of the document ----------------------------------------------------------------------------------------


def placed() -> dict[int, tuple[str, str]]:
    """By number of a clause the numbered heading that it stands below, and whom it binds."""
    found: dict[int, tuple[str, str]] = {}
    heading = ""
    for line in TEXT.splitlines():
        if re.match(r"#{2,3} \d", line):
            heading = line.lstrip("# ")
        if match := re.match(r"- \*\*P-(\d+)\*\* \(([^)]*)\)", line):
            found[int(match[1])] = heading, match[2]
    return found


def test_the_index_has_every_clause_where_it_stands():
    indexed: dict[int, str] = {}
    for numbers, link in rows(table_after("## 20. Index of clauses")):
        first, last = (*re.findall(r"P-(\d+)", numbers), *re.findall(r"P-(\d+)", numbers))[:2]
        title, target = re.fullmatch(r"\[(.*)\]\(#(.*)\)", link).groups()
        assert anchor(title) == target
        assert int(first) <= int(last)
        indexed |= dict.fromkeys(range(int(first), int(last) + 1), title)
    assert indexed == {number: heading for number, (heading, _) in placed().items()}
    assert list(indexed) == sorted(indexed)


def test_part_one_binds_readers_and_part_two_has_what_binds_writers_alone():
    parts = re.split(r"^# Part ", TEXT, flags=re.MULTILINE)
    assert [part.partition(".")[0] for part in parts[1:]] == ["I", "II", "III"]
    sections = [re.findall(r"^## (\d+)\.", part, re.MULTILINE) for part in parts]
    assert [number for part in sections for number in part] == [str(number) for number in range(1, 21)]
    for number, (heading, binds) in placed().items():
        assert (binds == "W") == (heading.partition(".")[0] in sections[2]), f"P-{number}"


VISIBILITY = (34, 99, 100, 101, 102, 103, 144, 149, 150, 211, 212, 213, 219, 234, 235, 236)


def test_all_clauses_of_visibility_stand_in_one_section():
    assert {number for number, (heading, _) in placed().items() if heading == "8. Visibility"} == set(VISIBILITY)
