"""Stores that fail where a test wants it."""

from __future__ import annotations

from collections.abc import Callable

from txnlog.store import HookStore, Store, StoreCall


def failing(
    error: Callable[[], BaseException], *calls: StoreCall, where: Callable[[str], bool] = lambda _key: True
) -> Callable[[Store], Store]:
    """What wraps a store: of these calls, those for such keys raise a new error and are not made."""

    def before(call: StoreCall, key: str) -> None:
        if call in calls and where(key):
            raise error()

    return lambda store: HookStore(store, before=before)
