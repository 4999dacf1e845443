"""Two backups into one folder, two restores of one namespace: who is late undoes nothing, and says nothing false."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import catalog as txn_catalog
from tests.client.backups import back_up, before_first, folder, restore, shown, with_everything
from tests.client.support import Place, read, rows, unique_name
from txnlog.errors import Durable, InvalidTransactionState, OutcomeUnknown, StoreError
from txnlog.format import keys
from txnlog.results import Restored
from txnlog.store import Created, ForwardingStore, HookStore, Store, StoreCall


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place("memory", f"memory://{unique_name()}")
    yield place
    place.close()


@pytest.fixture
def made(place: Place) -> tuple[Any, Store, int]:
    """A namespace, its backups, and the version of the only one."""
    ns, _ = with_everything(place)
    backups = folder()
    return ns, backups, back_up(place, backups).version


def check_usable(place: Place, name: str, version: int, expected: dict[str, Any]) -> None:
    with place.open(name, create=False) as copy:
        assert shown(copy, version) == expected
        copy.produce("audit", rows(900))
        assert 900 in read(copy, "audit")
        coordinator = copy.begin().id.coordinator
    with txn_catalog.open(place.root) as cat:
        assert cat.namespace(name).coordinator == coordinator


def test_a_backup_that_another_one_overtakes_is_made_all_the_same(place: Place, made: Any) -> None:
    ns, backups, version = made
    ns.produce("audit", rows(700))
    overtaking = []

    def overtake() -> None:
        ns.produce("audit", rows(701))
        overtaking.append(back_up(place, backups).version)

    done = back_up(place, before_first(backups, StoreCall.LIST, "", overtake))
    assert version < done.version < overtaking[0]
    for number in (done.version, overtaking[0]):
        assert restore(place, backups, f"copy{number}", version=number).version == number


def test_a_restore_that_wakes_up_when_another_one_has_ended_leaves_the_namespace_alone(place: Place, made: Any) -> None:
    ns, backups, version = made
    expected = shown(ns, version)
    root = place.store()
    asleep = before_first(root, StoreCall.CREATE, keys.CATALOG_FOLDER, lambda: restore(place, backups, "copy"))
    with pytest.raises(InvalidTransactionState, match="somebody else adopted"):
        restore(place, backups, "copy", store=asleep)
    check_usable(place, "copy", version, expected)


class LateStore(ForwardingStore):
    """Never answers the create of one key; what was sent first lands before somebody else's create of it."""

    def __init__(self, inner: Store, key: str) -> None:
        super().__init__(inner)
        self._key = key
        self._late: bytes | None = None
        self.answers = False

    def create(self, key: str, data: bytes) -> Created:
        if key != self._key:
            return super().create(key, data)
        if self.answers:
            assert self._late is not None
            super().create(key, self._late)
            return super().create(key, data)
        self._late = self._late or data
        raise StoreError("no answer", durable=Durable.MAYBE)


def test_a_restore_goes_on_where_the_adoption_of_an_earlier_call_landed_late(
    place: Place, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, backups, version = made
    expected = shown(ns, version)
    monkeypatch.setattr("txnlog.engine.runtime.Runtime.sleep_ms", lambda *_: None)
    store = LateStore(place.store(), f"copy/{keys.entry_key(version + 1)}")
    with pytest.raises((OutcomeUnknown, StoreError)):
        restore(place, backups, "copy", store=store)
    store.answers = True
    assert isinstance(restore(place, backups, "copy", store=store), Restored)
    check_usable(place, "copy", version, expected)


def test_a_restore_whose_last_request_is_not_answered_has_ended(place: Place, made: Any) -> None:
    _, backups, version = made

    def unanswered(call: StoreCall, key: str, _result: object) -> None:
        if call is StoreCall.DELETE and key.endswith(keys.RESTORE_KEY):
            raise StoreError("no answer", durable=Durable.MAYBE)

    done = restore(place, backups, "copy", store=HookStore(place.store(), after=unanswered))
    assert (done.version, done.dry_run) == (version, False)
