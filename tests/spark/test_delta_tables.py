"""What somebody else noted with a commit of a Delta table is no record of ours, however deep it is."""

from __future__ import annotations

import pytest

from spark_ext.delta_tables import _record_of


@pytest.mark.parametrize("note", ['{"txnlog":3}', '{"txnlog":', '{"txnlog":' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_a_note_that_is_not_ours_is_none(note: str) -> None:
    assert _record_of(note) is None
