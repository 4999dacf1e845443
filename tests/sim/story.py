"""Histories by hand, short enough to read: every method is one call, which returns at once unless it says otherwise.

Rows are text: ``"t1@3 10 11, t2@5 20"`` are the values 10 and 11 of transaction t1, visible at version 3, and so on;
offsets count from 0, and ``7=20`` puts a value at offset 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txnlog.errors import OutcomeUnknown
from txnlog.testing.history import History, Recorder

UNKNOWN = OutcomeUnknown("?")
NEVER = "never"
"""As ``fails``: the call does not return."""

TOPIC, SUBSCRIPTION = "orders", "s"


def rows(**topics: str) -> dict[tuple[str, int], tuple[tuple[int, int, str, int], ...]]:
    """The rows of topics; ``orders_1`` is partition 1 of orders."""
    found: dict[tuple[str, int], tuple[tuple[int, int, str, int], ...]] = {}
    for name, text in topics.items():
        topic, _, partition = name.partition("_")
        shown: list[tuple[int, int, str, int]] = []
        offset = 0
        for part in filter(None, map(str.strip, text.split(","))):
            head, *values = part.split()
            txn, _, version = head.partition("@")
            for value in values:
                at, _, number = value.rpartition("=")
                offset = int(at) if at else offset
                shown.append((offset, int(number), txn, int(version)))
                offset += 1
        found[topic, int(partition or 0)] = tuple(shown)
    return found


class Story:
    """A history as it is told."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.actor = "a"

    def history(self) -> History:
        return self.recorder.history()

    def by(self, actor: str) -> Story:
        """Who acts from here on."""
        self.actor = actor
        return self

    def call(self, kind: Any, /, fails: Any = None, result: dict[str, Any] | None = None, **arguments: Any) -> int:
        token = self.recorder.invoke(self.actor, kind, **arguments)
        if isinstance(fails, BaseException):
            self.recorder.failed(token, fails)
        elif fails != NEVER:
            self.recorder.ok(token, **(result or {}))
        return token

    # --- transactions -----------------------------------------------------------------------------------------------

    def begin(self, txn: str, producer: str | None = None, epoch: int | None = None) -> Story:
        self.call("begin", txn=txn, producer=producer, epoch=epoch)
        return self

    def produce(self, txn: str | None, *values: int, topic: str = TOPIC, fails: Any = None, **more: Any) -> Story:
        result: dict[str, Any] = {key: more.pop(key) for key in ("version", "offsets", "duplicate") if key in more}
        fields = {"partition": 0, "sequence": None} | more
        self.call("produce", fails, result, txn=txn, topic=topic, values=values, **fields)
        return self

    def commit(self, txn: str, version: int | None = None, fails: Any = None, **more: Any) -> Story:
        self.call("commit", fails, {"version": version, "offsets": {}, **more}, txn=txn)
        return self

    def abort(self, txn: str, fails: Any = None) -> Story:
        self.call("abort", fails, txn=txn)
        return self

    def truncate(self, txn: str, fails: Any = None, *, kept: bool = False) -> Story:
        self.call("truncate", fails, txn=txn, topic=TOPIC, kept=kept)
        return self

    def prepare(self, txn: str, fails: Any = None) -> Story:
        self.call("prepare", fails, txn=txn)
        return self

    def complete(
        self, txn: str, version: int | None = None, fails: Any = None, *, commit: bool = True, **more: Any
    ) -> Story:
        self.call("complete", fails, {"version": version, "offsets": {}, **more}, txn=txn, commit=commit)
        return self

    def outcome(self, txn: str, state: str, version: int | None = None) -> Story:
        self.call("outcome", result={"state": state, "version": version}, txn=txn)
        return self

    def force(self, txn: str, state: str = "ABORTED", fails: Any = None) -> Story:
        """An administrator aborts it, prepared or not."""
        self.call("outcome", fails, {"state": state}, txn=txn, forced=True)
        return self

    def whole(self, txn: str, version: int, *values: int) -> Story:
        """A transaction that goes well."""
        return self.begin(txn).produce(txn, *values).commit(txn, version)

    def producer(self, name: str, epoch: int) -> Story:
        self.call("open_producer", result={"epoch": epoch}, name=name)
        return self

    # --- readers ----------------------------------------------------------------------------------------------------

    def read(self, at: int, wanted: int | None = None, **topics: str) -> Story:
        self.call("read", result={"version": at, "rows": rows(**topics)}, version=wanted)
        return self

    def final(
        self,
        outcomes: dict[str, tuple[str, int | None]] | None = None,
        cursors: dict[tuple[str, str], dict[int, tuple[int, tuple[tuple[int, int], ...]]]] | None = None,
        dead: tuple[tuple[int, int, int, int], ...] = (),
        missing: tuple[tuple[str, int | None], ...] = (),
        expired: tuple[tuple[int, int, int, int, int | None, tuple[tuple[int, int], ...]], ...] = (),
        created: int | None = None,
        keyed: tuple[Any, ...] = (),
        removed: tuple[Any, ...] = (),
        truncated: tuple[Any, ...] = (),
        **topics: str,
    ) -> Story:
        """``dead`` letters are offset, value, redeliveries and version; ``missing`` files have the end of their use.

        What ``expired`` are start, end, version, age, the age that was asked for, and what of it was at work. The
        subscription was ``created`` at a version, or nobody looked when it was. ``keyed`` are the keys of messages, and
        ``removed`` is what compactions took out, ``truncated`` what went with commits.
        """
        letters = [(TOPIC, SUBSCRIPTION, 0, *letter) for letter in dead]
        gone = [(TOPIC, SUBSCRIPTION, 0, (item[:2],), *item[2:]) for item in expired]
        told = {"outcomes": outcomes or {}, "cursors": cursors or {}, "dead": letters, "missing": missing}
        since = [] if created is None else [(TOPIC, SUBSCRIPTION, created)]
        told |= {"keyed": keyed, "removed": removed, "truncated": truncated}
        self.call("final", result={"rows": rows(**topics), "expired": gone, "created": since, **told})
        return self

    def vacuum(self, oldest: int, fails: Any = None) -> Story:
        self.call("vacuum", fails, {"oldest_readable": oldest})
        return self

    def delete(self, before: int | None, version: int | None = None, fails: Any = None, *, kept: bool = False) -> Story:
        """Delete the messages before an offset of partition 0; None: nobody knows which."""
        bounds = [] if before is None else [(TOPIC, 0, before, kept)]
        self.call("delete_records", fails, {"version": version}, before=bounds, unbounded=before is None)
        return self

    def erase(self, *values: int, upto: int, version: int = 0, fails: Any = None) -> Story:
        """Erase the messages of some values that were visible up to a version."""
        self.call("erase", fails, {"version": version}, topic=TOPIC, values=list(values), upto=upto)
        return self

    def compact(self, version: int | None = None, fails: Any = None) -> Story:
        """Compact the topic; the last entry that takes messages out has a version."""
        self.call("compact", fails, {"version": version}, topic=TOPIC)
        return self

    def back_up(self, version: int, wanted: int | None = None, fails: Any = None) -> Story:
        self.call("backup", fails, {"version": version}, version=wanted)
        return self

    def restore(self, version: int, name: str = "again", coordinator: int = 7, fails: Any = None) -> Story:
        self.call("restore", fails, {"version": version, "coordinator": coordinator}, name=name, version=version)
        return self

    def go_on(self, version: int, txn: str, name: str = "again", **topics: str) -> Story:
        """Begin a transaction in what was restored, and read what there was before."""
        self.call("read_restored", result={"rows": rows(**topics), "txn": txn}, name=name, version=version)
        return self

    # --- consumers --------------------------------------------------------------------------------------------------

    def consumer(self, epoch: int, topic: str = TOPIC, subscription: str = SUBSCRIPTION) -> Story:
        self.call("open_consumer", result={"epoch": epoch}, topic=topic, subscription=subscription)
        return self

    def shared(self, most: int | None = None) -> Story:
        """The subscription is a Shared one."""
        self.call("create_subscription", topic=TOPIC, subscription=SUBSCRIPTION, shared=True, max_redeliveries=most)
        return self

    def receive(
        self,
        epoch: int | None,
        text: str,
        topic: str = TOPIC,
        subscription: str = SUBSCRIPTION,
        again: int = 0,
        active: int | None = None,
    ) -> Story:
        """``"0=10 1=11"`` are the messages: offset and value, of partition 0; ``again`` their redeliveries.

        ``active``: the epoch that it got in this very call.
        """
        pairs = [tuple(map(int, part.split("="))) for part in text.split()]
        messages = [(0, offset, value, again) for offset, value in pairs]
        told = {"messages": messages, "epoch": active}
        self.call("receive", result=told, topic=topic, subscription=subscription, epoch=epoch)
        return self

    def take(
        self,
        txn: str | None,
        epoch: int,
        start: int,
        end: int,
        *,
        cumulative: bool = False,
        fails: Any = None,
        version: int | None = None,
        topic: str = TOPIC,
        subscription: str = SUBSCRIPTION,
    ) -> Story:
        """Acknowledge the offsets from start up to end, of partition 0."""
        where = {"topic": topic, "subscription": subscription, "epoch": epoch}
        span = {"ranges": [(0, start, end)], "cumulative": cumulative}
        self.call("acknowledge", fails, {"version": version}, txn=txn, **where, **span)
        return self

    def give_back(self, epoch: int, *spans: tuple[int, int]) -> Story:
        spans_of = [(0, *span) for span in spans]
        self.call("negative_acknowledge", topic=TOPIC, subscription=SUBSCRIPTION, epoch=epoch, ranges=spans_of)
        return self

    def seek(self, offset: int, epoch: int | None = None, fails: Any = None) -> Story:
        self.call("seek", fails, {"epoch": epoch}, topic=TOPIC, subscription=SUBSCRIPTION, positions={0: offset})
        return self

    def cursor(self, position: int, *acknowledged: tuple[int, int]) -> Story:
        shown = {(TOPIC, SUBSCRIPTION): {0: (position, acknowledged)}}
        self.call("cursors", result={"cursors": shown}, topic=TOPIC, subscription=SUBSCRIPTION)
        return self


def at(position: int, *acknowledged: tuple[int, int]) -> dict[Any, Any]:
    """The cursors at the end, of the one subscription."""
    return {(TOPIC, SUBSCRIPTION): {0: (position, acknowledged)}}


def good(teller: Callable[[Story], object]) -> Callable[[Story], object]:
    """A story whose history the checker finds nothing in."""
    return bad()(teller)


def bad(*anomalies: str) -> Callable[[Callable[[Story], object]], Callable[[Story], object]]:
    """A story with all that the checker must report of its history, and nothing else."""

    def note(teller: Any) -> Any:
        teller.anomalies = frozenset(anomalies)
        return teller

    return note
