"""An administrator."""

from __future__ import annotations

from txnlog.errors import ConsumerBusy, TxnLogError
from txnlog.testing.actors.ending import ask
from txnlog.testing.actors.failover import Standby
from txnlog.testing.actors.pipeline import Pipeline
from txnlog.testing.client import Client, live
from txnlog.testing.world import FAILOVER, PRODUCERS, SCHEMA


class Administrator:
    """Aborts what others do, also what they prepared; fences their names, seeks, makes and drops topics."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.world = client.world
        self.ns = client.open()

    def step(self) -> None:
        """One of these things."""
        client, world = self.client, self.world
        drawn = client.chance.random()
        if drawn < 0.45 and world.transactions:
            self.end_a_transaction(force=drawn < 0.2)
        elif drawn < 0.55:
            self.fence()
        elif drawn < 0.7:
            self.make_topic()
        elif drawn < 0.85 and world.subscribed:
            self.seek()
        elif world.temporary:
            self.drop_topic()
        client.sleep(client.chance.random() * 1_000)

    def end_a_transaction(self, *, force: bool) -> None:
        """Abort one of the newest, or, with force, one that is prepared."""
        prepared = [str(item.txn_id) for item in self.ns.transactions(state="PREPARED")] if force else []
        chosen = self.client.chance.choice(prepared or self.world.transactions[-6:])
        ask(self.client, self.ns, chosen, force=bool(prepared))

    def fence(self) -> None:
        """End a producer name: nobody owns it then."""
        name = self.client.chance.choice(PRODUCERS)
        if name in self.ns._connection.follower.state.producers:
            self.client.call("open_producer", lambda: self.ns.fence(name), lambda epoch: {"epoch": epoch}, name=name)

    def make_topic(self) -> None:
        """A new one, or one that was dropped: another incarnation."""
        world = self.world
        known = [name for name in world.temporary if name not in world.dropping]
        if known and self.client.hits(0.5):
            name = self.client.chance.choice(known)
        else:
            world.next_topic += 1
            name = f"extra{world.next_topic}"
        self.ns.create_topic(name, schema=SCHEMA, partitions=1, if_not_exists=True)
        world.temporary.append(name)

    def drop_topic(self) -> None:
        """The newest one."""
        world = self.world
        name = world.temporary[-1]
        if name in world.dropping:
            return
        world.dropping.add(name)  # nobody makes it again meanwhile, so that the newest one is the one dropped
        try:
            self.client.connection.follower.refresh()
            folder = self.client.folder(name)
        except TxnLogError:
            world.dropping.discard(name)
            raise
        self.client.call("drop_topic", lambda: self.ns.drop_topic(name), topic=folder)
        world.dropping.discard(name)

    def seek(self) -> None:
        """Move a subscription, as an administrator can: with a consumer of its own."""
        place = self.client.chance.choice(list(self.world.subscribed))
        role = Standby(self.client, self.ns) if place == FAILOVER else Pipeline(self.client, self.ns, *place)
        role.reopen()
        if place == FAILOVER:
            role.receive(1)  # while another one is active, this one waits
        try:
            role.seek()
        except ConsumerBusy:
            self.client.scheduler.label("failover: a seek has to wait, too")
        else:
            self.client.scheduler.label("an administrator sought")
        role.close()


def admin(client: Client) -> None:
    """An administrator."""
    live(client, Administrator(client).step, lambda: None)


__all__ = ["Administrator", "admin"]
