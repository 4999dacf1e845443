"""Stores that fail, or at which others come first, where a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from txnlog.store import HookStore, Store, StoreCall


def failing(
    error: Callable[[], BaseException], *calls: StoreCall, where: Callable[[str], bool] = lambda _key: True
) -> Callable[[Store], Store]:
    """What wraps a store: of these calls, those for such keys raise a new error and are not made."""

    def before(call: StoreCall, key: str) -> None:
        if call in calls and where(key):
            raise error()

    return lambda store: HookStore(store, before=before)


@dataclass
class Once:
    """A hook of ``HookStore``, before or after: others work at the first request that is meant, and never again."""

    is_meant: Callable[[StoreCall, str], bool]
    work: Callable[[], object]
    came: bool = False

    def __call__(self, call: StoreCall, key: str, _result: object = None) -> None:
        if not self.came and self.is_meant(call, key):
            self.came = True
            self.work()
