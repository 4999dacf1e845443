"""Calls that look after a namespace do it in steps: their errors say whether an earlier one is on the store."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, Unchanged, objects, raises, rows
from tests.faults import failing
from txnlog.errors import Durable, OutcomeUnknown, StoreError, TxnLogError
from txnlog.store import Created, ForwardingStore, StoreCall


def _with_small_segments(memory: Place) -> tuple[Any, FaultyStore]:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA, partitions=2)
    for number in range(8):
        ns.produce("orders", rows(number), partition=number % 2)
    return ns, store


def test_an_optimize_that_fails_behind_its_first_merge_says_that_it_wrote(memory: Place) -> None:
    """LIE: the first merge is an entry of the log, the second one is refused: "nothing was written"."""
    ns, store = _with_small_segments(memory)
    before = ns.snapshot().version

    def disk_is_full_now(*_progress: object) -> None:
        store.forever = "refused"

    with pytest.raises(StoreError) as caught:
        ns.optimize("orders", 1_200, progress=disk_is_full_now)
    store.heal()
    assert ns.snapshot().version == before + 1, "a merge"
    assert caught.value.durable is Durable.MAYBE, caught.value


def test_a_maintain_that_fails_behind_its_checkpoint_says_that_it_wrote(memory: Place) -> None:
    """LIE: the checkpoint is on the store, and so could merges be: "nothing was written"."""
    ns, store = _with_small_segments(memory)
    store.forever = "refused"
    with pytest.raises(StoreError) as caught:
        ns.maintain()
    assert any("checkpoints/" in key for key in objects(memory.store()))
    assert caught.value.durable is Durable.MAYBE, caught.value


def test_a_checkpoint_that_is_made_and_not_named_is_said_to_be_there(memory: Place) -> None:
    """LIE: the checkpoint is made, the entry that names it instead of the damaged one is refused."""
    ns, store = _with_small_segments(memory)
    ns.checkpoint()
    ns.produce("orders", rows(9))
    for key in [key for key in objects(memory.store()) if "checkpoints/parts/" in key]:
        memory.store().delete(key)
    ns.close()
    ns, store = memory.faulty()
    known = {key for key in objects(memory.store()) if "checkpoints/" in key}
    store.forever = "refused"
    with pytest.raises(StoreError) as caught:
        ns.checkpoint()
    assert {key for key in objects(memory.store()) if "checkpoints/" in key} > known, "it was made"
    assert caught.value.durable is Durable.MAYBE, caught.value


def test_a_vacuum_that_wrote_and_deleted_nothing_says_so(memory: Place) -> None:
    """LIE: nothing was to be announced, and the first listing fails: "data may be durable"."""
    no_list = failing(lambda: StoreError("no right to list"), StoreCall.LIST, where=lambda key: "orders" in key)
    ns = memory.orders(1, wrap=no_list)
    with Unchanged(memory), pytest.raises(StoreError) as caught:
        ns.vacuum()
    assert caught.value.durable is Durable.NOTHING, caught.value


def test_a_vacuum_that_only_counts_says_that_it_wrote_nothing(local: Place) -> None:
    """LIE: of ``dry_run=True``, where the object that shows the store's clock cannot be put: "data may be durable"."""
    lost = partial(StoreError, "connection dropped", durable=Durable.MAYBE)
    local.orders(1).close()
    ns = local.open(wrap=failing(lost, StoreCall.PUT))
    with Unchanged(local), pytest.raises(StoreError) as caught:
        ns.vacuum(dry_run=True)
    assert caught.value.durable is Durable.NOTHING, caught.value


@pytest.mark.parametrize("call", ["optimize", "checkpoint"])
def test_files_that_nothing_names_yet_are_nothing_that_was_written(memory: Place, call: str) -> None:
    """LIE: of a file that no entry names a commit says "nothing was written"; these two say "data may be durable"."""
    broken: list[str] = []
    lost = partial(StoreError, "connection dropped", durable=Durable.MAYBE)
    wrap = failing(lost, StoreCall.PUT, where=lambda key: bool(broken) and key.endswith(".parquet"))
    ns = memory.orders(1, wrap=wrap)
    ns.produce("orders", rows(2))
    broken.append("from here on")
    with Unchanged(memory), pytest.raises(StoreError) as caught:
        ns.optimize("orders") if call == "optimize" else ns.checkpoint()
    assert caught.value.durable is Durable.NOTHING, caught.value


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
