"""Known bugs of holes, planted as those of ``planted.py`` are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from tests.sim.planted import Mutant
from txnlog.client import delivery, holes
from txnlog.common.ranges import Ranges
from txnlog.data import segment_metadata
from txnlog.maintenance import merging
from txnlog.maintenance.erasure import _Erasure
from txnlog.maintenance.merging import Rows


def holes_shift_offsets(patch: pytest.MonkeyPatch) -> None:
    """Behind a hole the rows of a file move up."""
    offsets = segment_metadata._offsets

    def dense(found: Any, slices: Any, counts: Any) -> pa.Array:
        return offsets([], slices, counts)

    patch.setattr(segment_metadata, "_offsets", dense)


def merges_close_holes(patch: pytest.MonkeyPatch) -> None:
    """What is merged behind a hole gets the offsets of the hole."""
    rows_of = merging._rows_of

    def closed(part: Any, table: pa.Table) -> tuple[Any, pa.Table]:
        found, rows = rows_of(part, table)
        return (np.arange(part.offset, part.offset + len(rows)), rows) if part.has_holes else (found, rows)

    patch.setattr(merging, "_rows_of", closed)


def neighbours_are_erased(patch: pytest.MonkeyPatch) -> None:
    """With a row that is to go the next one goes."""
    goes = _Erasure._goes

    def more(self: _Erasure, rows: Rows) -> Any:
        found = goes(self, rows)
        found[1:] |= found[:-1].copy()
        return found

    patch.setattr(_Erasure, "_goes", more)


def newest_segment_is_erased(patch: pytest.MonkeyPatch) -> None:
    """Rows go out of the newest segment alone."""
    losing = _Erasure._losing
    patch.setattr(_Erasure, "_losing", lambda self, visible, known: losing(self, visible[-1:], known))


def holes_are_nobodys(patch: pytest.MonkeyPatch) -> None:
    """No message takes a hole with it, and nobody passes over it."""

    def bare(wanted: Mapping[int, Ranges], found: Mapping[int, Ranges]) -> tuple[dict[int, Ranges], holes.Holes]:
        delivered, _ = holes.carried(wanted, found)
        return delivered, {}

    patch.setattr(delivery, "carried", bare)
    patch.setattr(delivery, "acknowledge_holes", lambda *_: None)


HOLES_MUTANTS: Final = (
    Mutant("holes shift offsets", holes_shift_offsets, ("writer", "reader"), workload="erased"),
    Mutant("merges close holes", merges_close_holes, ("writer", "reader"), workload="erased"),
    Mutant("neighbours are erased", neighbours_are_erased, ("writer", "reader"), workload="erased"),
    Mutant("only the newest segment is erased", newest_segment_is_erased, ("writer", "reader"), workload="erased"),
    Mutant("holes are nobody's", holes_are_nobodys, ("writer", "pipeline"), workload="erased"),
)
