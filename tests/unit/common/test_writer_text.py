"""The text that names a writer: its digits are compared, what stands behind them is shown."""

from __future__ import annotations

import pytest

from txnlog.common.format_limits import MAX_WRITER_CHARACTERS
from txnlog.common.writer_text import MAX_CLIENT_CHARACTERS, client_of, writer_of, writer_text

WRITER = "6f1c0d5e2b7a49c3a1d8e4f09b3c7a52"
CLIENT = "nightly host-7:4711 txnlog/1.0.0"


@pytest.mark.clause("P-253")
@pytest.mark.parametrize(
    ("text", "writer", "client"),
    [
        (WRITER, WRITER, None),
        (f"{WRITER} {CLIENT}", WRITER, CLIENT),
        (f"{WRITER} n\u00e4chtlich \u0645", WRITER, "n\u00e4chtlich \u0645"),
        (f"{WRITER} ", f"{WRITER} ", None),
        (f"{WRITER}x {CLIENT}", f"{WRITER}x {CLIENT}", None),
        (f"{WRITER.upper()} {CLIENT}", f"{WRITER.upper()} {CLIENT}", None),
        (f"{WRITER} \x1b[2J", f"{WRITER} \x1b[2J", None),
        (f"{WRITER} a\nb", f"{WRITER} a\nb", None),
        ("w", "w", None),
        ("", "", None),
        (f"{WRITER} {'x' * MAX_CLIENT_CHARACTERS}", WRITER, "x" * MAX_CLIENT_CHARACTERS),
        (f"{WRITER} {'x' * (MAX_CLIENT_CHARACTERS + 1)}", WRITER, None),
    ],
)
def test_the_digits_are_the_writer_and_the_rest_is_shown_where_a_writer_may_say_it(text, writer, client):
    assert (writer_of(text), client_of(text)) == (writer, client)


@pytest.mark.clause("P-253")
def test_a_writer_says_as_much_as_it_may():
    assert writer_text(WRITER, "") == WRITER
    assert writer_text(WRITER, CLIENT) == f"{WRITER} {CLIENT}"
    longest = writer_text(WRITER, "x" * 1_000)
    assert len(longest) == MAX_WRITER_CHARACTERS
    assert (writer_of(longest), client_of(longest)) == (WRITER, "x" * MAX_CLIENT_CHARACTERS)
