"""``txnlog.common.validation``: lengths of time, as they may be given wherever a setting ends in ``_ms``."""

from __future__ import annotations

import pytest

from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.validation import duration_ms, duration_text
from txnlog.errors import InvalidInputError


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        (0, 0),
        (1_500, 1_500),
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("36h", 129_600_000),
        ("7d", 604_800_000),
        (" 7d ", 604_800_000),
        ("0s", 0),
    ],
)
def test_milliseconds_or_a_number_with_a_unit(given, milliseconds):
    assert duration_ms("retain_ms", given, 0) == milliseconds


@pytest.mark.parametrize(
    "given",
    [
        "",
        "7",
        "7 days",
        "7D",
        "1h30m",
        "1.5h",
        "-1h",
        "d",
        "१h",
        "9" * 30 + "d",
        "999999999999999999d",
        1.5,
        True,
        None,
        b"7d",
        -1,
    ],
)
def test_anything_else_is_an_error_that_shows_examples(given):
    with pytest.raises(InvalidInputError, match=r'retain_ms is a length of time.*"500ms", "30s", "15m", "36h", "7d"'):
        duration_ms("retain_ms", given, 0, MAX_NUMBER)


def test_bounds_are_named_in_units():
    with pytest.raises(InvalidInputError, match="timeout_ms is a length of time, between 1ms and 15m, not '1h'"):
        duration_ms("timeout_ms", "1h", 1, 900_000)
    with pytest.raises(InvalidInputError, match="at least 1h, not '59m'"):
        duration_ms("grace_ms", "59m", 3_600_000, MAX_NUMBER)


@pytest.mark.parametrize("given", [MAX_NUMBER + 1, 99_999_999_999_999_999_999, "999999999999999999d"])
def test_what_is_too_long_is_answered_with_the_longest(given):
    with pytest.raises(InvalidInputError, match="between 0ms and 9223372036854775807ms, not"):
        duration_ms("retain_ms", given, 0, MAX_NUMBER)
    assert duration_ms("retain_ms", MAX_NUMBER, 0, MAX_NUMBER) == MAX_NUMBER


@pytest.mark.parametrize("text", ["0ms", "1ms", "1500ms", "30s", "90m", "1h", "36h", "7d"])
def test_a_duration_is_written_in_its_largest_unit(text):
    assert duration_text(duration_ms("x", text, 0)) == text
