"""Stories of vacuum: which files and versions are there afterwards."""

from __future__ import annotations

from tests.sim.story import NEVER, bad, good
from txnlog.errors import VersionNotAvailable


@good
def a_vacuum_takes_versions_away(story):
    story.whole("t1", 3, 10).vacuum(3).call("read", VersionNotAvailable("gone"), version=2)
    story.vacuum(3).final(orders="t1@3 10", missing=(("old.parquet", 3),))


@good
def a_vacuum_that_is_under_way_may_take_versions_away(story):
    story.whole("t1", 3, 10).vacuum(3, fails=NEVER).call("read", VersionNotAvailable("gone"), version=2)
    story.final(orders="t1@3 10")


@bad("missing file")
def a_vacuum_deletes_what_the_newest_version_needs(story):
    story.whole("t1", 3, 10).vacuum(3).final(orders="t1@3 10", missing=(("new.parquet", None),))


@bad("missing file")
def a_vacuum_deletes_what_a_readable_version_needs(story):
    story.whole("t1", 3, 10).vacuum(3).final(orders="t1@3 10", missing=(("old.parquet", 4),))


@bad("readable versions moved")
def a_readable_version_cannot_be_read(story):
    story.whole("t1", 3, 10).vacuum(2).call("read", VersionNotAvailable("gone"), version=3)
    story.final(orders="t1@3 10")


@bad("readable versions moved")
def the_oldest_readable_version_moves_back(story):
    story.whole("t1", 3, 10).vacuum(3).vacuum(2).final(orders="t1@3 10")
