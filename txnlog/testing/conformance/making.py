"""Making the golden roots: all of them, from a seed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from txnlog.testing.conformance import roots_of_damage, roots_of_holes, roots_of_topics, roots_of_transactions
from txnlog.testing.conformance.cases import LEVELS
from txnlog.testing.conformance.roots_of_damage import BEGINNINGS, LOST, checkpointed, variant
from txnlog.testing.conformance.roots_of_entries import ACCEPTED, REFUSED, Change, base
from txnlog.testing.conformance.roots_of_guesses import ACCEPTED_GUESSES, EITHER, REFUSED_GUESSES
from txnlog.testing.conformance.workshop import Workshop

ROOTS: Final[dict[str, Callable[[Workshop], str]]] = {
    "adopted": roots_of_transactions.adopted,
    "checkpoints": roots_of_transactions.checkpoints,
    "fences": roots_of_transactions.fences,
    "holes": roots_of_holes.holes,
    "merged": roots_of_topics.merged,
    "produces": roots_of_topics.produces,
    "retention": roots_of_topics.retention,
    "root_log": roots_of_transactions.root_log,
    "schemas": roots_of_topics.schemas,
    "segments": roots_of_damage.segments,
    "topics": roots_of_topics.topics,
    "transactions": roots_of_transactions.transactions,
    "types": roots_of_topics.types,
}


VARIANTS: Final[dict[str, tuple[Callable[[Workshop], None], Mapping[str, Change], str]]] = {
    "entries": (
        base,
        REFUSED | REFUSED_GUESSES,
        "A namespace for each way in which an entry can be one that no reader takes.",
    ),
    "unusual": (
        base,
        ACCEPTED | ACCEPTED_GUESSES,
        "A namespace for each of some entries that look unusual and are fine.",
    ),
    "beginnings": (
        checkpointed,
        BEGINNINGS,
        "A namespace for each way in which entry 0 can be damaged below checkpoints.",
    ),
    "lost": (
        checkpointed,
        LOST,
        "A namespace for each way in which a checkpoint can be of no use: the rows stay the same.",
    ),
}


def make(folder: Path, seed: int, only: Collection[str] = (*ROOTS, *VARIANTS)) -> None:
    """Make golden roots below a folder, each anew: what has its name there is removed."""
    for name in ROOTS.keys() & only:
        fill = ROOTS[name]
        shop = _shop(folder, name, seed)
        shop.finish(fill(shop))
    for name in VARIANTS.keys() & only:
        made, changes, about = VARIANTS[name]
        shop = _shop(folder, name, seed)
        _fill(shop, f"{seed}/{name}", made, changes)
        shop.finish(about)


def _shop(folder: Path, name: str, seed: int) -> Workshop:
    shutil.rmtree(folder / name, ignore_errors=True)
    return Workshop(folder / name, f"{seed}/{name}")


def _fill(shop: Workshop, seed: str, fill: Callable[[Workshop], None], changes: Mapping[str, Change]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        made = Workshop(Path(scratch) / "base", seed)
        fill(made)
        for name, change in changes.items():
            variant(made, shop, name, change)
            shop.ask("orders", levels=LEVELS if changes is LOST else LEVELS[:1], also=EITHER.get(name, ()))


__all__ = ["ROOTS", "VARIANTS", "make"]
