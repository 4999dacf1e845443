"""A store that interrupts the main thread while one of its requests is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.interrupts import interrupt_main_thread
from txnlog.store import Created, ForwardingStore, Store


class InterruptingStore(ForwardingStore):
    """Interrupts the main thread while its n-th request is under way, which then goes on.

    Where the main thread makes the request itself, it is interrupted in it.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._left = 0
        self._heard = threading.Event()

    def interrupted(self, call: Callable[[], object], request: int) -> bool:
        """Call, and interrupt at a request; False where the call makes fewer."""
        self._heard.clear()
        self._left = request
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            self._heard.set()
            self._left = 0
        return False

    def _pass(self) -> None:
        if self._left:
            self._left -= 1
            if not self._left:
                if threading.current_thread() is threading.main_thread():
                    raise KeyboardInterrupt
                interrupt_main_thread()
                self.wait_for_main_thread()

    def wait_for_main_thread(self) -> None:
        """Go on when its call has ended."""
        assert self._heard.wait(20), "the main thread was not interrupted"

    def create(self, key: str, data: bytes) -> Created:
        self._pass()
        return super().create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._pass()
        super().put(key, data)

    def get(self, key: str) -> bytes:
        self._pass()
        return super().get(key)


__all__ = ["InterruptingStore"]
