"""Calls that look after a namespace do it in steps: their errors say whether an earlier one is on the store."""

from __future__ import annotations

import pytest

from tests.client.support import Place, raises
from tests.faults import failing
from txnlog.errors import Durable, OutcomeUnknown, StoreError, TxnLogError
from txnlog.store import Created, ForwardingStore, StoreCall


def test_who_called_maintain_is_advised_to_call_maintain_again(memory: Place) -> None:
    """LOSE: ``maintain(retain_ms="30d")`` advises ``ns.vacuum()``, whose own week deletes versions of three more."""
    no_list = failing(lambda: StoreError("no answer"), StoreCall.LIST, where=lambda key: "orders" in key)
    ns = memory.orders(1, wrap=no_list)
    with raises(StoreError, durable=Durable.MAYBE) as caught:
        ns.maintain(retain_ms="30d")
    assert isinstance(caught.value, TxnLogError)
    assert "vacuum()" not in caught.value.advice, caught.value
    assert "call ns.maintain(...) again, with the same arguments" in caught.value.advice


def test_who_called_vacuum_is_advised_to_call_it_with_the_same_arguments(memory: Place) -> None:
    no_list = failing(lambda: StoreError("no answer"), StoreCall.LIST, where=lambda key: "orders" in key)
    ns = memory.orders(1, wrap=no_list)
    with pytest.raises(StoreError) as caught:
        ns.vacuum(retain_ms="30d")
    assert caught.value.advice.endswith("; then call ns.vacuum(...) again, with the same arguments")


class _Silent(ForwardingStore):
    """Whether a checkpoint was made nobody hears."""

    def create(self, key: str, data: bytes) -> Created:
        return Created.UNKNOWN if "checkpoints/" in key else super().create(key, data)


def test_a_checkpoint_of_unknown_outcome_is_a_part_of_maintain(memory: Place) -> None:
    """Where somebody makes a checkpoint as advised, and nothing more, the namespace is not looked after."""
    ns = memory.orders(1, wrap=_Silent)
    with pytest.raises(OutcomeUnknown) as caught:
        ns.checkpoint()
    assert caught.value.advice.endswith("make a checkpoint again, any time: no commit depends on it")
    with pytest.raises(OutcomeUnknown) as caught:
        ns.maintain()
    assert caught.value.advice.endswith("call ns.maintain(...) again, with the same arguments")
