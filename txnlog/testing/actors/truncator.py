"""Who replaces the content of topics, next to commits of the same client that are under way at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnlog.errors import InvalidInputError
from txnlog.format.features import HOLES
from txnlog.testing.actors.ending import end, produce_in
from txnlog.testing.actors.optimizer import merge_one
from txnlog.testing.actors.reader import read
from txnlog.testing.actors.writer import Writer
from txnlog.testing.client import Client, live
from txnlog.testing.world import PRODUCERS, TOPICS

if TYPE_CHECKING:
    from txnlog.api.transaction import Transaction


def truncator(client: Client) -> None:
    """Replaces topics, produces to them, merges what is left, and reads what came of it, also as it was before."""
    role = Truncator(client, client.chance.choice((*PRODUCERS, None)))
    live(client, role.step, role.reopen)


class Truncator(Writer):
    """A producer whose transactions truncate."""

    def reopen(self) -> None:
        """Have the format's feature that truncation needs, and take the name over."""
        self.ns.enable(HOLES)
        super().reopen()

    def step(self) -> None:
        """Replace a topic, alone or among other commits, or merge one; perhaps read."""
        client, ns = self.client, self.ns
        client.sleep(client.chance.random() * 800)
        seen = ns._connection.follower.version
        drawn = client.chance.random()
        if drawn < 0.4:
            self.replace()
        elif drawn < 0.8:
            self.commit_several()
        elif drawn < 0.9:
            self.produce_plainly()
        else:
            merge_one(client, ns)
        if client.hits(0.4):
            read(client, ns, None if client.hits(0.5) else seen)

    def replace(self) -> None:
        """One or two topics get another content."""
        txn = self.begin()
        for topic in self.client.chance.sample(list(TOPICS), self.client.chance.randint(1, len(TOPICS))):
            self.truncate(txn, topic)
        self.fill(txn)
        try:
            end(self.client, self.ns, txn)
        except InvalidInputError:
            self.client.scheduler.label("a truncation was refused: a subscription needs the messages")

    def begin(self) -> Transaction:
        """As a writer does; perhaps behind a checkpoint, with which its handle forgets what the checkpoint holds."""
        if self.client.hits(0.15):
            self.ns.checkpoint()
        return super().begin()

    def fill(self, txn: Transaction) -> None:
        """As a writer does; in what is committed among others some truncate, before their rows or behind."""
        client = self.client
        if client.hits(0.3):
            self.truncate(txn, client.chance.choice(list(TOPICS)))
        topic, partition = self.place()
        produce_in(client, txn, topic, partition, client.chance.randint(1, 2), **self.identity)
        super().fill(txn)
        if client.hits(0.2):
            self.truncate(txn, client.chance.choice(list(TOPICS)))

    def truncate(self, txn: Transaction, topic: str) -> None:
        """Have earlier messages go with the commit, in most cases also those that a subscription needs."""
        client, kept = self.client, self.client.hits(0.3)
        client.call(
            "truncate",
            lambda: txn.truncate(topic, allow_unacknowledged=not kept),
            txn=str(txn.id),
            topic=client.folder(topic),
            kept=kept,
        )


__all__ = ["Truncator", "truncator"]
