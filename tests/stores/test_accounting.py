"""The count of the suite notices a store on which fewer tests passed."""

from __future__ import annotations

from tests.stores.accounting import Accounts

STORES = {"memory": None, "s3": None}


def test_equal_counts_of_the_same_tests_are_fine() -> None:
    accounts = Accounts()
    for store in STORES:
        accounts.add(store, "one")
        accounts.add(store, "two")
    assert accounts.fault(STORES) is None
    assert accounts.lines(STORES) == ["   2 conformance tests passed on memory", "   2 conformance tests passed on s3"]


def test_a_store_with_fewer_or_with_other_tests_is_named() -> None:
    accounts = Accounts()
    accounts.add("memory", "one")
    assert "s3" in str(accounts.fault(STORES))
    accounts.add("s3", "two")
    assert "memory" in str(accounts.fault(STORES))
