"""The picture and the table of a transaction's life are those of the code."""

from __future__ import annotations

from tools import lifecycle
from txnlog.client.transaction_lifecycle import TABLE, Stage


def test_picture_and_table_are_generated_anew() -> None:
    assert lifecycle.PICTURE.read_text(encoding="utf-8") == lifecycle.picture(), "run: python -m tools.lifecycle"
    assert lifecycle.PAGE.read_text(encoding="utf-8") == lifecycle.page(), "run: python -m tools.lifecycle"


def test_every_stage_has_its_place_in_the_picture() -> None:
    assert set(lifecycle.PLACES) == set(TABLE)
    drawn = {stage for pair in lifecycle.arrows() for stage in pair}
    assert drawn | {Stage.ABORTED} == set(Stage)
