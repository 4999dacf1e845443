from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnlog.common.names import (
    folded,
    nearest,
    parse_label,
    parse_namespace_name,
    parse_producer_name,
    parse_subscription_name,
    parse_topic_name,
    parse_topic_names,
)
from txnlog.errors import InvalidInputError, NameNotAllowed

PARSERS = [parse_namespace_name, parse_topic_name, parse_subscription_name]
every_parser = pytest.mark.parametrize("parse", PARSERS)

GOOD = ["a", "Z", "7", "orders", "orders-dead", "a_b", "v1.2.3", "2026.11.21", "x" * 100, "console", "com10", "nul-1"]
BAD = {
    "empty": "",
    "the folder above": "..",
    "this folder": ".",
    "a path up": "../orders",
    "a path down": "orders/x",
    "a path at the end": "orders/",
    "the root": "/orders",
    "a backslash": "orders\\x",
    "a drive": "c:orders",
    "a leading dot": ".orders",
    "a trailing dot": "orders.",
    "two dots inside": "a..b",
    "a leading underscore": "_log",
    "a leading dash": "-rf",
    "a blank": "my orders",
    "a trailing blank": "orders ",
    "a trailing line feed": "orders\n",
    "a NUL": "orders\0",
    "an escape": "a\x1b[31m",
    "a DEL": "a\x7f",
    "a percent sign": "a%2e%2e",
    "a tilde": "orders~7",
    "an equals sign": "a=b",
    "a question mark": "a?b",
    "a hash": "a#b",
    "a star": "a*",
    "quotes": "a'b",
    "a dollar": "$HOME",
    "a letter that is not ASCII": "größe",
    "a Cyrillic a": "\u0430bc",
    "a fullwidth letter": "\uff41",
    "a digit that is not ASCII": "\u0661",
    "a zero-width space": "a\u200bb",
    "a right-to-left override": "a\u202eb",
    "a surrogate": "a\ud800",
    "a ligature": "\ufb01le",
    "a Kelvin sign": "\u212a",
    "101 characters": "x" * 101,
    "10,000 characters": "x" * 10_000,
    "10,000 dots": "." * 10_000,
}


@pytest.mark.clause("P-5")
@every_parser
@pytest.mark.parametrize("name", GOOD)
def test_a_name_of_the_grammar_is_taken_as_it_is(parse, name):
    assert parse(name) == name


@pytest.mark.clause("P-5")
@every_parser
@pytest.mark.parametrize("name", BAD.values(), ids=BAD.keys())
def test_a_name_outside_the_grammar_is_refused(parse, name):
    with pytest.raises(NameNotAllowed):
        parse(name)


def test_who_names_a_path_gets_an_error_for_it() -> None:
    with pytest.raises(NameNotAllowed, match=r"use ASCII letters, .*: no path"):
        parse_topic_name("eu/orders")


@pytest.mark.clause("P-6")
@every_parser
@pytest.mark.parametrize(
    "device", ["con", "PRN", "Aux", "nul", "COM1", "com9", "lpt1", "LPT9", "con.orders", "nul.a.b"]
)
def test_a_device_of_windows_is_refused_in_any_case_and_with_any_extension(parse, device):
    with pytest.raises(NameNotAllowed, match="device"):
        parse(device)


@every_parser
@pytest.mark.parametrize("value", [None, 7, b"orders", ["orders"], object()])
def test_what_is_no_text_is_refused(parse, value):
    with pytest.raises(NameNotAllowed, match="text"):
        parse(value)


@given(st.text(max_size=120))
def test_a_name_that_is_taken_can_neither_leave_its_folder_nor_hide(name):
    try:
        parse_topic_name(name)
    except NameNotAllowed:
        return
    assert set(name) <= set(string.ascii_letters + string.digits + "._-")
    assert name[0] not in "._-"
    assert ".." not in name
    assert not name.endswith(".")
    assert len(name) <= 100


def test_the_error_never_repeats_a_long_or_hostile_name_raw():
    with pytest.raises(NameNotAllowed) as caught:
        parse_topic_name("\x1b[2J" + "x" * 10_000)
    text = str(caught.value)
    assert "\x1b" not in text
    assert len(text) < 400


def test_names_that_differ_in_case_fold_to_the_same():
    assert folded("Orders") == folded("oRDERS") == "orders"


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-8")
@pytest.mark.parametrize("label", ["loader-1", "größe 7", "../..", "日本", "a" * 256, "\U0001f600", " ", "~"])
def test_a_label_is_any_printable_text(label):
    assert parse_label("producer name", label) == label
    assert parse_producer_name(label) == label


@pytest.mark.clause("P-8")
@pytest.mark.parametrize(
    "label",
    [
        "",
        "a" * 257,
        "a\nb",
        "a\0",
        "\x1b[31m",
        "a\x7f",
        "a\x85b",
        "a\u2028b",
        "a\u2029b",
        "\ud800",
        "a\n",
        None,
        b"a",
        7,
    ],
)
def test_a_label_without_length_or_with_control_characters_is_refused(label):
    with pytest.raises(NameNotAllowed):
        parse_producer_name(label)


def test_labels_that_look_alike_are_two_labels():
    assert parse_label("producer name", "lo\u0430der") != parse_label("producer name", "loader")


# --- advice -----------------------------------------------------------------------------------------------------------


def test_advice_offers_the_nearest_name():
    assert nearest("ordres", ["orders", "audit"]) == "did you mean 'orders'?"
    assert nearest("startingoffsets", ["startingOffsets", "maxBytes"]) == "did you mean 'startingOffsets'?"
    assert nearest("DATALOSS", ["failOnDataLoss", "txnAppId"]) == "did you mean 'failOnDataLoss'?"


def test_advice_lists_the_names_where_none_is_near():
    assert nearest("zzz", ["orders", "audit"]) == "there are: audit, orders"


def test_advice_cuts_a_long_list_short():
    assert nearest("zzz", [f"topic{n}" for n in range(20)]).endswith(", ...")


def test_advice_says_when_there_is_none():
    assert nearest("zzz", []) == "there is none"


def test_topics_are_one_name_or_a_list_each_once() -> None:
    assert parse_topic_names("orders") == ("orders",)
    assert parse_topic_names(["orders", "audit", "orders"]) == ("orders", "audit")


@pytest.mark.parametrize("given", [None, [], (), 7, {"orders": 1}])
def test_what_names_no_topic_is_refused_with_an_example(given: object) -> None:
    with pytest.raises(InvalidInputError, match=r"name of a topic, or a list of names, not .*pass topics="):
        parse_topic_names(given)


def test_a_name_in_a_list_of_topics_is_checked() -> None:
    with pytest.raises(NameNotAllowed):
        parse_topic_names(["orders", "../audit"])
