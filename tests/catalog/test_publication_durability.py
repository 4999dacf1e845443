"""What a publication that fails says of what it wrote: "nothing was written" only where that is so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import catalog as txn_catalog
from catalog import Catalog
from catalog.delta_log import objects
from catalog.delta_log.objects import DeltaLog
from catalog.publication import table_publisher
from catalog.publication.publications import Publications
from tests.catalog.published import commit, folder, grown
from tests.client.support import Place, raises, rows
from txnlog.errors import Durable, OutcomeUnknown, StoreError
from txnlog.format import keys
from txnlog.log import slots


def fails(*_: object) -> Any:
    raise StoreError("no space")


def damaged_file(place: Place) -> tuple[Path, bytes]:
    """The only data file of the table of segments, which is damaged, and what it held."""
    (path,) = (Path(place.root) / "sales" / keys.SEGMENTS_TABLE).glob("*.parquet")
    before = path.read_bytes()
    path.write_bytes(b"garbage")
    return path, before


def test_a_repair_wrote_a_data_file_again(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ns.produce("orders", rows(1))
    cat.publish("sales")
    monkeypatch.setattr(Publications, "_topics", lambda *_: [])  # so that it is the error of this table alone
    path, before = damaged_file(place)
    monkeypatch.setattr(DeltaLog, "overwrite_checkpoint", fails)
    with caplog.at_level(logging.WARNING, "txnlog.publisher"), raises(StoreError, durable=Durable.MAYBE):
        cat.repair("sales")
    assert path.read_bytes() == before
    assert "the log says what it should be" in caplog.text


def test_a_publication_wrote_a_data_file_again(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns.produce("orders", rows(1))
    cat.publish("sales")
    path, before = damaged_file(place)
    ns.produce("orders", rows(2))
    cat.publish("sales", "orders")
    monkeypatch.setattr(DeltaLog, "create", fails)
    with raises(StoreError, durable=Durable.MAYBE):
        cat.publish("sales")
    assert path.read_bytes() == before


def test_a_publication_created_a_data_file(ns: Any, cat: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    ns.produce("orders", rows(1))
    cat.publish("sales", "orders")
    monkeypatch.setattr(DeltaLog, "create", fails)
    with raises(StoreError, durable=Durable.MAYBE):
        cat.publish("sales")


def test_a_repair_wrote_a_checkpoint(ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(ns, cat, 2)
    monkeypatch.setattr(DeltaLog, "put_hint", fails)
    with raises(StoreError, durable=Durable.MAYBE):
        cat.repair("sales", "orders")
    assert list(folder(place).glob("*.checkpoint.parquet"))


def test_a_repair_wrote_a_checkpoint_but_not_its_commit(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(ns, cat, 2)
    cat.repair("sales", "orders")
    (path,) = folder(place).glob("*.checkpoint.parquet")
    before = path.read_bytes()
    path.write_bytes(b"garbage")
    commit(place, 1).write_bytes(b"garbage")
    monkeypatch.setattr(DeltaLog, "overwrite", fails)
    with raises(StoreError, durable=Durable.MAYBE):
        cat.repair("sales", "orders")
    assert path.read_bytes() == before


def test_a_repair_of_all_tables_wrote_a_checkpoint_of_one_and_nothing_of_another(
    ns: Any, cat: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns.produce("orders", rows(1))
    cat.publish("sales")
    real = DeltaLog.listed
    monkeypatch.setattr(DeltaLog, "listed", lambda log: fails() if log.folder == keys.SEGMENTS_TABLE else real(log))
    with raises(StoreError, match="up to date are 'orders'", durable=Durable.MAYBE):
        cat.repair("sales")


def test_a_publication_may_have_written_a_checkpoint(
    ns: Any, cat: Catalog, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure keeps no publication back, so what fails behind it tells of it."""
    grown(ns, cat, 3)
    cat.publish("sales")
    real = slots.occupy

    def occupy(store: Any, runtime: Any, key: str, data: bytes, **given: Any) -> bytes:
        if "checkpoint" in key:
            store.create(key, data)
            raise OutcomeUnknown(f"the store did not say whether {key} exists")
        if keys.SEGMENTS_TABLE in key:
            raise StoreError("no space")
        return real(store, runtime, key, data, **given)

    ns.produce("orders", rows(9))
    cat.publish("sales", "orders")
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 2)
    monkeypatch.setattr(objects, "occupy", occupy)
    with txn_catalog.open(place.root) as other, raises(StoreError, match="no space", durable=Durable.MAYBE):
        other.publish("sales")
    assert list(folder(place).glob("*.checkpoint.parquet"))


def test_nothing_was_written(ns: Any, cat: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(ns, cat, 2)
    monkeypatch.setattr(DeltaLog, "get", fails)
    with raises(StoreError, durable=Durable.NOTHING):
        cat.publish("sales", "orders")
    with raises(StoreError, durable=Durable.NOTHING):
        cat.repair("sales", "orders")
