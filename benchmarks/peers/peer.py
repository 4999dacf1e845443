"""The interface of a system that is measured: bring, start, run, stop."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.load import Load, Outcome


class NotOfferedError(Exception):
    """The system does not do what a load asks for; the text is a short reason for the table."""


class Peer(abc.ABC):
    """A system that is measured. Its servers listen on loopback, and its data lies in the folder that it is given.

    ``commit``: transactions for some seconds, each with messages to every partition; ``producers`` under way at a time.
    ``fill``: the same for a number of transactions, a share of which is aborted; limited by seconds too.
    ``read``: a fresh consumer, in a process or connection of its own, reads what is committed from the beginning.
    ``pipeline``: consume the topic, produce each message to another one; results and position are committed together.
    ``deliver``: a transaction of one message each ``cycle_ms``; how long from produce to the hands of a consumer.
    ``open``: the same with a reader, beside a transaction that stays open for two thirds of the time.
    """

    name: ClassVar[str]
    """As the report calls it."""
    durability: ClassVar[str]
    """What a commit has reached when it returns."""
    warms: ClassVar[bool] = False
    """Whether it gets faster in its first minute, as what runs on a JVM does."""
    settings: ClassVar[str] = ""
    """What is not the default, for the report."""

    @abc.abstractmethod
    def bring(self) -> str:
        """Fetch what is missing, and return the versions.

        Raises:
            NoJarsError: Maven cannot fetch it.
        """

    @abc.abstractmethod
    def start(self, folder: Path) -> None:
        """Start it with its data in a folder that is there."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End what was started, also after a start that failed. Nothing of it runs afterwards."""

    @abc.abstractmethod
    def run(self, load: Load) -> Outcome:
        """Run a load.

        Raises:
            NotOfferedError: the system has no such thing.
        """

    @abc.abstractmethod
    def is_durable(self, load: Load) -> bool:
        """Whether what such a load has committed survives a power cut of the machine."""

    def pids(self) -> list[int]:
        """The processes that were started and are not children of this one's loads."""
        return []


__all__ = ["NotOfferedError", "Peer"]
