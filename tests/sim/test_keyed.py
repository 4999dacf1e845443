"""Messages with a key in the simulation: a history names each by its number, and what is mixed up has none of them."""

from __future__ import annotations

import pyarrow as pa

from txnlog.testing.keyed import has_value, key_of, keyed_table_of, numbers_of

SOME = range(200)


def test_a_message_says_its_number_with_a_value_and_without_one():
    assert numbers_of(keyed_table_of(SOME)) == list(SOME)


def test_there_are_few_keys_and_some_messages_without_a_key_or_a_value():
    keys = [key_of(number) for number in SOME]
    assert set(keys) == {"a", "b", "c", "d", None}
    assert 4 < keys.count(None) < min(keys.count(key) for key in "abcd")
    assert 20 < sum(not has_value(number) for number in SOME) < 100


def test_a_message_that_says_something_else_than_it_was_sent_with_has_a_number_of_nobody():
    table = keyed_table_of([3, 4])
    for name in ("key", "value"):
        place = table.schema.get_field_index(name)
        mixed = table.set_column(place, name, pa.array([b"another", b"one"]))
        assert numbers_of(mixed) == [-4, -5]


def test_messages_of_topics_without_a_key_are_their_number():
    assert numbers_of(pa.table({"value": [7, 9]})) == [7, 9]
