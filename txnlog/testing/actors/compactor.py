"""Who compacts topics by their keys, by hand and in maintenance, and asks for it in other ways now and then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from txnlog.common.format_limits import MIN_GRACE_MS
from txnlog.maintenance import compaction, rewriting
from txnlog.results import Compacted, Maintained
from txnlog.testing.actors.reader import read
from txnlog.testing.actors.vacuumer import stand_still
from txnlog.testing.client import Client, live
from txnlog.testing.world import TOPICS, World

_POLICIES: Final = ("compact", "compact", "compact", "delete")
_AGES_MS: Final = (0, 0, 200, 1_000, 5_000)
_TARGET_BYTES: Final = 1 << 20
_SMALL_STEPS: Final = {"_MOST_KEYS": (compaction, (3, 8, None)), "MOST_REPLACED": (rewriting, (1, 2, None))}
"""Messages of one pass (of two segments, some, or all), and segments that one entry writes again. None: as it is."""


@contextlib.contextmanager
def small_steps(world: World, draw: int) -> Iterator[None]:
    """Let compactions go in several passes and entries, as those of big topics do, where a run has any."""
    if not world.keyed:
        yield
        return
    before = [(module, name, getattr(module, name)) for name, (module, _) in _SMALL_STEPS.items()]
    try:
        for name, (module, several) in _SMALL_STEPS.items():
            draw, place = divmod(draw, len(several))
            if several[place] is not None:
                setattr(module, name, several[place])
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def compactor(client: Client) -> None:
    """Compacts topics, merges what is left, and reads what came of it, also as it was before."""
    live(client, Compactor(client).step, lambda: None)


class Compactor:
    """Compacts by hand, by what the settings of topics say, and gives them others."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ns = client.open()
        client.world.compactors.add(self.ns._connection.appender.writer)

    def step(self) -> None:
        """Compact, or one of the other things, and perhaps read."""
        client, ns = self.client, self.ns
        client.sleep(client.chance.random() * 500)
        topic = client.chance.choice(list(TOPICS))
        seen = ns._connection.follower.version
        drawn = client.chance.random()
        if drawn < 0.5:
            self.compact(topic)
        elif drawn < 0.75:
            self.alter(topic)
        elif drawn < 0.9:
            self.maintain()
        else:
            client.call("optimize", lambda: ns.optimize(topic, _TARGET_BYTES), topic=topic)
        if client.hits(0.4):
            read(client, ns, None if client.hits(0.5) else seen)

    def compact(self, topic: str) -> None:
        """By hand, some of it or all."""
        client, ns = self.client, self.ns
        most = 0 if client.hits(0.2) else None
        done = client.call(
            "compact",
            lambda: ns.compact(topic, max_bytes=most),
            lambda done: {"version": done.version},
            topic=client.folder(topic),
        )
        self._note(done)

    def maintain(self) -> None:
        """All that maintenance does, perhaps after a night; its vacuum is one as any other."""
        client, ns = self.client, self.ns
        if client.hits(0.3):
            stand_still(client)

        def maintain() -> Maintained:
            return ns.maintain(retain_ms=0, allow_short_retention=True, grace_ms=MIN_GRACE_MS)

        def compact() -> Maintained:
            return client.call("compact", maintain, lambda done: {"version": _newest(done)}, topic=None)

        done = client.call("vacuum", compact, lambda done: {"oldest_readable": done.vacuumed.oldest_readable})
        if done.failures:
            client.scheduler.label("maintenance passed a topic over")
        for item in done.compacted:
            client.scheduler.label("maintenance compacted a topic")
            self._note(item)

    def _note(self, done: Compacted) -> None:
        label = self.client.scheduler.label
        if done.removed_messages:
            label("messages were compacted")
        if done.entries > 1:
            label("a compaction took several entries")
        if done.lost_races:
            label("a compaction decided again")
        if not done.finished:
            label("a compaction left a part")

    def alter(self, topic: str) -> None:
        """Give a topic one or two other settings."""
        client = self.client
        chance = client.chance
        drawn: dict[str, Any] = {
            "cleanup_policy": chance.choice(_POLICIES),
            "delete_retention_ms": chance.choice(_AGES_MS),
            "min_compaction_lag_ms": chance.choice(_AGES_MS),
            "compact_unacknowledged": client.hits(0.5),
        }
        settings = {name: drawn[name] for name in chance.sample(sorted(drawn), chance.randint(1, 2))}
        self.ns.alter_topic(topic, **settings)
        client.scheduler.trace(client.actor, "altered", topic, settings)
        client.scheduler.label("settings of compaction were altered")


def _newest(done: Maintained) -> int | None:
    """The version of the last entry that took messages out."""
    return max((item.version or 0 for item in done.compacted), default=0) or None


__all__ = ["Compactor", "compactor", "small_steps"]
