"""How stories of several modules begin: with messages that a consumer received, or may receive."""

from __future__ import annotations

from tests.sim.story import Story
from txnlog.errors import StoreError, TransactionTimedOut

FAILED = StoreError("nothing was written")
LATE = TransactionTimedOut("too late")


def received(story: Story) -> Story:
    """Two messages in version 2, received by a consumer with epoch 4."""
    return story.produce(None, 10, 11, version=2).consumer(4).receive(4, "0=10 1=11")


def consumed(story: Story) -> Story:
    """The same, and a transaction that acknowledges both."""
    return received(story).begin("t1").take("t1", 4, 0, 2)


FOUR = "x@2 10 11 12 13"


def four(story: Story) -> Story:
    """Four messages in version 2, and a consumer with epoch 4."""
    return story.produce(None, 10, 11, 12, 13, version=2).consumer(4)
