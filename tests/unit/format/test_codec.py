from __future__ import annotations

import hashlib
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory_log import PROTOCOL, WRITER, Log
from tests.unit.action_strategies import KINDS, actions, headers, of_struct
from txnlog.common.format_limits import MAX_ENTRY_ACTIONS, MAX_ENTRY_BYTES, MAX_NUMBER
from txnlog.errors import CorruptionError, InvalidInputError, LimitExceeded, UnsupportedFeature
from txnlog.format.actions import (
    AnyAction,
    Commit,
    ForgetApp,
    Header,
    Namespace,
    Renew,
    Segment,
    Share,
    SliceRows,
    Topic,
)
from txnlog.format.codec import decode_entry, digest_of, encode_action, encode_entry
from txnlog.format.schema import DEFAULT_SCHEMA

HEADER = b'{"action":"header","version":3,"writer":"w","timestamp_ms":5,"previous":"00"}\n'


def decoded(*lines: bytes | str) -> tuple[AnyAction, ...]:
    body = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    return decode_entry(HEADER + body, 3).actions


def damage(data: bytes) -> str:
    """The text of the documented error, empty where the bytes are an entry; any other exception fails the test."""
    try:
        decode_entry(data, 3)
    except (CorruptionError, UnsupportedFeature) as error:
        return str(error)
    return ""


# --- what is written comes back ---------------------------------------------------------------------------------------


@given(headers, st.lists(actions, max_size=6))
def test_every_entry_comes_back_as_it_was(header, some):
    data = encode_entry(header, [encode_action(action) for action in some])
    entry = decode_entry(data, header.version)
    assert entry.header == header
    assert entry.actions == tuple(some)
    assert entry.size_bytes == len(data)


@pytest.mark.clause("P-18")
@pytest.mark.parametrize("fields", [(3, "w", 5.5), (3, "w", 2**63), (-1, "w", 5), (3, "\ud800", 5)])
def test_a_header_that_nobody_could_read_is_not_written(fields):
    with pytest.raises(InvalidInputError, match="cannot hold this Header"):
        encode_entry(Header(*fields), [])


@pytest.mark.clause("P-24")
@given(headers, st.lists(actions, max_size=3))
def test_the_same_entry_has_the_same_bytes_every_time(header, some):
    def encode() -> bytes:
        return encode_entry(header, [encode_action(action) for action in some])

    assert encode() == encode()
    again = decode_entry(encode(), header.version)
    assert encode_entry(again.header, [encode_action(action) for action in again.actions]) == encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__struct_config__.tag)
@settings(max_examples=20)
@given(data=st.data())
def test_every_kind_of_action_comes_back_as_it_was(kind, data):
    action = data.draw(of_struct(kind))
    assert decoded(encode_action(action)) == (action,)


@pytest.mark.clause("P-12")
def test_an_entry_is_a_header_and_a_line_an_action():
    data = encode_entry(Header(3, "w", 5, "00"), [encode_action(Renew(256)), encode_action(ForgetApp("a\nb"))])
    assert data == HEADER + b'{"action":"renew","first":256}\n{"action":"forget_app","app_id":"a\\nb"}\n'


def test_defaults_stay_away_but_not_inside_arrays():
    assert encode_action(Commit(7)) == b'{"action":"commit","txn":7}'
    assert encode_action(Commit(7, shares=(Share(1, 0, 2),))) == b'{"action":"commit","txn":7,"shares":[[1,0,2,null]]}'


def test_a_trailing_default_of_an_array_may_be_missing():
    assert decoded('{"action":"commit","txn":7,"shares":[[1,0,2]]}') == (Commit(7, shares=(Share(1, 0, 2),)),)


def test_defaults_may_be_written_out():
    assert decoded('{"action":"commit","txn":7,"digest":"","shares":[],"producer":null}') == (Commit(7),)


def test_blanks_and_the_order_of_fields_do_not_matter():
    assert decoded(' {"first" : 256 , "action":"renew"} ') == (Renew(256),)


# --- identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-19")
def test_the_digest_is_the_first_half_of_sha_256():
    data = HEADER + b'{"action":"renew","first":256}\n'
    assert decode_entry(data, 3).digest == digest_of(data) == hashlib.sha256(data).hexdigest()[:32]


@pytest.mark.clause("P-19")
@given(st.binary(min_size=1, max_size=40), st.data(), st.integers(0, 7))
def test_any_flipped_bit_changes_the_digest(data, drawn, bit):
    other = bytearray(data)
    other[drawn.draw(st.integers(0, len(data) - 1))] ^= 1 << bit
    assert digest_of(bytes(other)) != digest_of(data)


@pytest.mark.clause("P-20")
@pytest.mark.parametrize("version", [0, 2, 4])
def test_an_entry_in_another_slot_is_damage(version):
    with pytest.raises(CorruptionError, match="says that it is entry 3"):
        decode_entry(HEADER, version)


# --- strictness -------------------------------------------------------------------------------------------------------

DAMAGED_LINES = {
    "an empty line": "",
    "no JSON": "renew",
    "no object": "[1]",
    "null": "null",
    "no action": '{"first":256}',
    "a header as an action": '{"action":"header","version":3,"writer":"w","timestamp_ms":5}',
    "a missing field": '{"action":"renew"}',
    "an unknown field": '{"action":"renew","first":256,"more":1}',
    "null where none is allowed": '{"action":"renew","first":null}',
    "a text as a number": '{"action":"renew","first":"256"}',
    "a truth as a number": '{"action":"renew","first":true}',
    "a fraction": '{"action":"renew","first":256.0}',
    "an exponent": '{"action":"renew","first":1e3}',
    "a leading zero": '{"action":"renew","first":0256}',
    "a negative number": '{"action":"renew","first":-256}',
    "a number of 64 bits": f'{{"action":"renew","first":{MAX_NUMBER + 1}}}',
    "a number of 5,000 digits": f'{{"action":"renew","first":{"9" * 5_000}}}',
    "NaN": '{"action":"renew","first":NaN}',
    "NaN in statistics": '{"action":"segment","segment":1,"topic":1,"file":"f","rows":1,"size_bytes":1,"checksum":"c",'
    '"slices":[],"statistics":{"a":[NaN,1,0]}}',
    "an infinite number in statistics": '{"action":"segment","segment":1,"topic":1,"file":"f","rows":1,"size_bytes":1,'
    '"checksum":"c","slices":[],"statistics":{"a":[1e999,1,0]}}',
    "an array that is too long": '{"action":"commit","txn":7,"shares":[[1,0,2,null,5]]}',
    "an array that is too short": '{"action":"commit","txn":7,"shares":[[1,0]]}',
    "a range of three": '{"action":"lease","subscription":1,"consumer":"c","ranges":[[0,[[1,2,3]]]]}',
    "an unknown subscription type": '{"action":"subscription","topic":1,"name":"b","type":"key_shared",'
    '"start":[0],"lease_ms":1}',
    "an unknown reason": '{"action":"abort","txn":1,"reason":"bored"}',
    "an unknown kind of column type": '{"action":"topic","name":"t","partitions":1,"schema":{"type":"struct",'
    '"fields":[{"name":"a","type":{"type":"set"}}]}}',
    "a schema that does not say that it is a struct": '{"action":"topic","name":"t","partitions":1,'
    '"schema":{"fields":[]}}',
    "a changed schema that does not say so": '{"action":"alter_topic","topic":1,"schema":{"fields":[]}}',
    "a second object on the line": '{"action":"renew","first":256}{"action":"renew","first":512}',
    "a comma at the end": '{"action":"renew","first":256,}',
    "a control character in a text": '{"action":"forget_app","app_id":"\x01"}',
    "half a surrogate pair": '{"action":"forget_app","app_id":"\\ud800"}',
    "a mark of the byte order": b'\xef\xbb\xbf{"action":"renew","first":256}',
    "invalid UTF-8": b'{"action":"forget_app","app_id":"\xff"}',
    "an overlong encoding": b'{"action":"forget_app","app_id":"\xc0\xaf"}',
    "an encoded surrogate": b'{"action":"forget_app","app_id":"\xed\xa0\x80"}',
    "UTF-16": '{"action":"renew","first":256}'.encode("utf-16"),
    "zeros": b"\0" * 64,
}


@pytest.mark.clause("P-14")
@pytest.mark.parametrize("line", DAMAGED_LINES.values(), ids=DAMAGED_LINES.keys())
def test_a_line_that_is_not_exactly_as_described_is_damage_and_named(line):
    with pytest.raises(CorruptionError, match=r"entry 3, line 3.*\(restore _log/0+/0+3\.json of this log from a copy"):
        decoded('{"action":"renew","first":256}', line)


DAMAGED_HEADERS = {
    "nothing": b"",
    "an empty line": b"\n",
    "another action": b'{"action":"renew","first":256}\n',
    "no tag": b'{"version":3,"writer":"w","timestamp_ms":5}\n',
    "an unknown field": b'{"action":"header","version":3,"writer":"w","timestamp_ms":5,"more":1}\n',
    "a missing field": b'{"action":"header","version":3,"writer":"w"}\n',
    "a negative time": b'{"action":"header","version":3,"writer":"w","timestamp_ms":-5}\n',
    "a time after all dates": b'{"action":"header","version":3,"writer":"w","timestamp_ms":253402300800000}\n',
    "a negative checkpoint": b'{"action":"header","version":3,"writer":"w","timestamp_ms":5,"checkpoint":-1}\n',
    "invalid UTF-8": b'{"action":"header","version":3,"writer":"\xff","timestamp_ms":5}\n',
    "an unknown tag": b'{"action":"headline","version":3,"writer":"w","timestamp_ms":5}\n',
}


@pytest.mark.clause("P-12", "P-14")
@pytest.mark.parametrize("data", DAMAGED_HEADERS.values(), ids=DAMAGED_HEADERS.keys())
def test_an_entry_without_a_valid_header_is_damage(data):
    with pytest.raises(CorruptionError, match="entry 3"):
        decode_entry(data, 3)


@pytest.mark.clause("P-12")
def test_an_entry_cut_short_anywhere_is_damage_or_lacks_whole_lines():
    data = HEADER + b'{"action":"renew","first":256}\n{"action":"renew","first":512}\n'
    for size in range(len(data)):
        if data[:size].endswith(b"\n"):
            assert digest_of(data[:size]) != digest_of(data), "the chain tells"
        else:
            with pytest.raises(CorruptionError, match="entry 3"):
                decode_entry(data[:size], 3)


@pytest.mark.clause("P-12")
@pytest.mark.parametrize("end", [b"", b" ", b"\r", b"\0", b"\n\n", b"\n "])
def test_the_last_line_has_one_end_and_nothing_behind_it(end):
    with pytest.raises(CorruptionError, match="entry 3"):
        decode_entry(HEADER + b'{"action":"renew","first":256}' + end, 3)


@pytest.mark.clause("P-15")
@pytest.mark.parametrize(
    "line",
    [
        '{"action":"rewind"}',
        '{"action":"rewind","topic":1,"deep":{"a":[1,2,{"b":null}]}}',
        '{"action":"' + "x" * 10_000 + '"}',
        '{"action":"Renew","first":256}',
        '{"action":"\\u001b[2J"}',
    ],
)
def test_an_unknown_action_asks_for_a_newer_client_and_is_never_skipped(line):
    with pytest.raises(UnsupportedFeature, match="entry 3, line 2: the action") as caught:
        decoded(line)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("tag", ["7", "null", "[]", '""', '{"a":1}'])
def test_an_action_whose_tag_is_no_text_is_damage(tag):
    with pytest.raises(CorruptionError, match="entry 3, line 2"):
        decoded(f'{{"action":{tag}}}')


@pytest.mark.clause("P-16")
def test_of_a_repeated_key_the_last_one_counts():
    assert decoded('{"action":"renew","first":1,"first":256}') == (Renew(256),)


@pytest.mark.clause("P-16")
@given(actions)
def test_no_line_that_is_written_repeats_a_key(action):
    def no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    json.loads(encode_action(action), object_pairs_hook=no_twins)


# --- what cannot be written -------------------------------------------------------------------------------------------


@pytest.mark.clause("P-18")
@pytest.mark.parametrize(
    "action",
    [
        Renew(-1),
        Renew(MAX_NUMBER + 1),
        Renew(1 << 100),
        ForgetApp("\ud800"),
        Commit(7, app_id="a", app_version=-(1 << 63) - 1),
        Topic("orders", DEFAULT_SCHEMA, 1, properties={"a": "\udfff"}),
    ],
    ids=["negative", "64 bits", "100 bits", "surrogate", "65 bits", "surrogate inside"],
)
def test_what_no_reader_would_take_is_never_written(action):
    with pytest.raises(InvalidInputError, match="the log cannot hold this"):
        encode_action(action)


@pytest.mark.clause("P-17")
@pytest.mark.parametrize("bound", [float("nan"), float("inf"), float("-inf")])
def test_a_bound_that_is_no_finite_number_is_written_as_null(bound):
    action = Segment(1, 1, "f", 1, 1, "c", (SliceRows(0, 1),), statistics={"a": (bound, bound, 0)})
    assert b'"statistics":{"a":[null,null,0]}' in encode_action(action)


@given(actions)
def test_a_line_never_holds_a_line_end(action):
    assert b"\n" not in encode_action(action)


# --- limits and bombs -------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-13")
def test_an_entry_above_the_limit_of_bytes_is_neither_written_nor_read():
    room = MAX_ENTRY_BYTES - len(HEADER) - len(encode_action(ForgetApp(""))) - 1
    header = Header(3, "w", 5, "00")
    data = encode_entry(header, [encode_action(ForgetApp("x" * room))])
    assert len(data) == MAX_ENTRY_BYTES
    assert decode_entry(data, 3).actions == (ForgetApp("x" * room),)
    with pytest.raises(LimitExceeded, match="8,388,609 bytes"):
        encode_entry(header, [encode_action(ForgetApp("x" * (room + 1)))])
    with pytest.raises(CorruptionError, match="8,388,609 bytes"):
        decode_entry(data[:-3] + b"x" + data[-3:], 3)


@pytest.mark.clause("P-13")
def test_an_entry_above_the_limit_of_actions_is_neither_written_nor_read():
    line = encode_action(Renew(256))
    header = Header(3, "w", 5, "00")
    data = encode_entry(header, [line] * MAX_ENTRY_ACTIONS)
    assert len(decode_entry(data, 3).actions) == MAX_ENTRY_ACTIONS
    with pytest.raises(LimitExceeded, match="50,001 actions"):
        encode_entry(header, [line] * (MAX_ENTRY_ACTIONS + 1))
    with pytest.raises(CorruptionError, match="50,001 actions"):
        decode_entry(data + line + b"\n", 3)


def deep(opening: str, closing: str, middle: str = "") -> bytes:
    count = (MAX_ENTRY_BYTES - 500) // (len(opening) + len(closing))
    return (opening * count + middle + closing * count).encode()


BOMBS = {
    "8 million empty lines": b"\n" * (MAX_ENTRY_BYTES - len(HEADER)),
    "arrays in arrays": deep("[", "]") + b"\n",
    "objects in objects": deep('{"a":', "}", "1") + b"\n",
    "an unknown field that is deep": b'{"action":"renew","first":256,"more":' + deep("[", "]") + b"}\n",
    "an unknown action that is deep": b'{"action":"rewind","more":' + deep("[", "]") + b"}\n",
    "a schema that is deep": b'{"action":"topic","name":"t","partitions":1,'
    b'"schema":{"type":"struct","fields":[{"name":"a","type":'
    + deep('{"type":"array","elementType":', "}", '"long"')
    + b"}]}}\n",
    "a million fields": b'{"action":"topic","name":"t","partitions":1,"schema":{"type":"struct","fields":[]},'
    b'"properties":{' + b",".join(b'"%d":""' % number for number in range(500_000)) + b"}}\n",
    "a million slices": b'{"action":"segment","segment":1,"topic":1,"file":"f","rows":1,"size_bytes":1,'
    b'"checksum":"c","slices":[' + b",".join([b"[0,1]"] * 1_000_000) + b"]}\n",
    "an open text": b'{"action":"forget_app","app_id":"' + b"x" * (MAX_ENTRY_BYTES - 500) + b"\n",
    "escapes": b'{"action":"forget_app","app_id":"' + b"\\u0041" * ((MAX_ENTRY_BYTES - 500) // 6) + b'"}\n',
    "more than the limit": b"x" * (MAX_ENTRY_BYTES + 1),
}


@pytest.mark.clause("P-138")
@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_an_entry_or_a_documented_error_and_soon(body):
    began = time.monotonic()
    assert len(damage(HEADER + body)) < 500
    assert time.monotonic() - began < 10


@pytest.mark.clause("P-138")
@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_random_bytes_are_damage(data):
    with pytest.raises(CorruptionError):
        decode_entry(data, 3)


@pytest.mark.clause("P-138")
@settings(max_examples=300)
@given(st.lists(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), max_size=4))
def test_random_lines_behind_a_header_give_actions_or_a_documented_error(lines):
    damage(HEADER + b"".join(line + b"\n" for line in lines))


@pytest.mark.clause("P-138")
@settings(max_examples=300)
@given(
    st.lists(actions, min_size=1, max_size=3),
    st.data(),
)
def test_a_mutated_entry_gives_actions_or_a_documented_error(some, data):
    stored = bytearray(encode_entry(Header(3, "w", 5, "00"), [encode_action(action) for action in some]))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(stored) - 1))
        match data.draw(st.sampled_from(["flip", "set", "remove", "insert", "swap"])):
            case "flip":
                stored[position] ^= 1 << data.draw(st.integers(0, 7))
            case "set":
                stored[position] = data.draw(st.sampled_from(b'0{}[]",:n-e.\\\n'))
            case "remove":
                del stored[position]
                if not stored:
                    return
            case "insert":
                stored.insert(position, data.draw(st.integers(0, 255)))
            case "swap":
                other = data.draw(st.integers(0, len(stored) - 1))
                stored[position], stored[other] = stored[other], stored[position]
    damage(bytes(stored))


@pytest.mark.clause("P-138", "P-142")
@settings(max_examples=100)
@given(st.text(max_size=40))
def test_text_of_a_log_stands_escaped_and_short_in_errors(text):
    line = json.dumps({"action": "renew", "first": 256, text: text * 100}, ensure_ascii=False).encode(errors="replace")
    said = damage(HEADER + line + b"\n")
    assert said.isascii()
    assert said.isprintable()
    assert len(said) < 500


# --- the chain --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-19", "P-21")
def test_each_header_names_the_digest_of_the_entry_before():
    log = Log(begun=False)
    log.entry(PROTOCOL, Namespace("sales", 0))
    log.entry()
    first, second = (decode_entry(data, version) for version, data in enumerate(log.stored))
    assert first.header.previous == ""
    assert second.header.previous == first.digest
    assert log.state.head.digest == second.digest
    assert second.header.writer == WRITER
