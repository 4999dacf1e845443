"""Known bugs, each planted in one place: what the tests are worth is that every one of them is caught.

A mutant is a replacement of text that occurs exactly once in its file. The tests that must fail are named by their
pytest ids; they are fast, and fail without chance. The bugs of each folder of the code are a module of ``planted``.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import NUMBERS
from tests.mutants.planted import (
    api,
    catalog,
    cli,
    client,
    client_delivery,
    common,
    data,
    engine,
    fold,
    fold_subscriptions,
    holes,
    ingest,
    killed,
    log,
    log_appending,
    log_proposals,
    maintenance,
    repair,
    spark,
    store,
    stored_format,
    truncation,
)

HARMLESS: Final = Mutant(
    "a change that changes nothing",
    "txnlog/fold/number_blocks.py",
    "CHUNK: Final = 256",
    "CHUNK: Final = 0x100",
    "nothing: it must survive, or the alarm is broken",
    (NUMBERS + "blocks_follow_each_other",),
)

MUTANTS: Final = tuple(
    mutant
    for room in (
        common,
        engine,
        stored_format,
        store,
        fold,
        fold_subscriptions,
        holes,
        killed,
        data,
        log,
        log_appending,
        log_proposals,
        client,
        client_delivery,
        truncation,
        maintenance,
        repair,
        api,
        cli,
        catalog,
        spark,
        ingest,
    )
    for mutant in room.MUTANTS
)

__all__ = ["HARMLESS", "MUTANTS", "Mutant"]
