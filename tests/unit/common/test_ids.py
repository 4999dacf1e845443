from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.ids import TxnId
from txnlog.errors import InvalidInputError

ids = st.builds(TxnId, st.integers(0, (1 << 16) - 1), st.integers(0, MAX_NUMBER))


@pytest.mark.clause("P-11")
def test_the_text_of_an_id_is_its_coordinator_and_its_number_in_hexadecimal():
    assert str(TxnId(7, 0x1234)) == "0007" + "0" * 24 + "1234"


@pytest.mark.clause("P-11")
@given(ids)
def test_an_id_comes_back_from_its_text_and_its_bytes(txn_id):
    assert TxnId.parse(str(txn_id)) == txn_id
    assert TxnId.from_bytes(txn_id.to_bytes()) == txn_id
    assert txn_id.to_bytes().hex() == str(txn_id)


@given(ids, ids)
def test_ids_of_one_coordinator_are_ordered_by_number_in_every_form(one, other):
    assert (one < other) == (str(one) < str(other)) == (one.to_bytes() < other.to_bytes())


def test_parsing_an_id_gives_it_back():
    txn_id = TxnId(1, 2)
    assert TxnId.parse(txn_id) is txn_id


@pytest.mark.parametrize(
    "text",
    ["", "0" * 31, "0" * 33, "0" * 31 + "A", "0" * 31 + "g", "0" * 32 + "\n", " " + "0" * 31, "-" + "0" * 31, None, 7],
)
def test_what_is_no_text_of_an_id_is_refused(text):
    with pytest.raises(InvalidInputError):
        TxnId.parse(text)


@pytest.mark.parametrize(("coordinator", "number"), [(-1, 0), (1 << 16, 0), (0, -1), (0, MAX_NUMBER + 1)])
def test_an_id_outside_its_bits_is_refused(coordinator, number):
    with pytest.raises(InvalidInputError):
        TxnId(coordinator, number)


def test_a_number_beyond_63_bits_is_refused_though_the_text_has_room_for_it():
    with pytest.raises(
        InvalidInputError, match=r"no namespace ever gave the TxnID 0000ffff.*of its id, as ns\.transactions"
    ):
        TxnId.parse("0000" + "f" * 28)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_another_count_of_bytes_is_refused(size):
    with pytest.raises(InvalidInputError):
        TxnId.from_bytes(b"\0" * size)
