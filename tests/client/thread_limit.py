"""A limit of threads, as that of a container."""

from __future__ import annotations

import threading

import pytest


class Limit:
    """The machine starts no more threads while ``on``: what Python says then is RuntimeError."""

    def __init__(self, patch: pytest.MonkeyPatch, only: str = "txnlog") -> None:
        self.on = False
        self.refused: list[str] = []
        start = threading.Thread.start

        def limited(thread: threading.Thread) -> None:
            if self.on and thread.name.startswith(only):
                self.refused.append(thread.name)
                raise RuntimeError("can't start new thread")
            start(thread)

        patch.setattr(threading.Thread, "start", limited)

    def __enter__(self) -> None:
        self.on = True

    def __exit__(self, *_error: object) -> None:
        self.on = False


__all__ = ["Limit"]
