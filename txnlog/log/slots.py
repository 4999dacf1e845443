"""Putting bytes under a key that only one writer can have: entries of logs, manifests (PROTOCOL.md, "Appending").

And before that the files that they will name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from txnlog.common.pauses import Backoff
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import Durable, OutcomeUnknown, StoreError, TxnLogError
from txnlog.replies import not_sent
from txnlog.store.base import Created, ObjectNotFound, Store

_logger = LogLines("txnlog.slots")

CREATE_ATTEMPTS: Final = 12
_BACKOFF: Final = Backoff(20.0, 10_000.0)
"""The pauses between all attempts make 15 to 30 seconds, in which short outages end."""


def occupy(
    store: Store,
    runtime: Runtime,
    key: str,
    data: bytes,
    *,
    attempts: int = CREATE_ATTEMPTS,
    sent: bool = False,
    besides: Sequence[Callable[[], None]] = (),
    timed: Callable[[Callable[[], Created]], Created] = lambda put: put(),
) -> bytes:
    """Put an object until its slot is occupied; returns the bytes that occupy it, on disk: these or another's.

    Anything but *created* proves nothing until the slot was read, and "not found" proves nothing at all: the same
    bytes go to the same slot again, so that a late first copy can only be our own success.

    Args:
        store: where.
        runtime: sleeps between attempts.
        key: the slot.
        data: what is put there, the same at every attempt.
        attempts: puts before the outcome is reported as unknown.
        sent: whether the same bytes were sent before, so that no refusal is final.
        besides: called while what occupies the slot is read. They raise nothing.
        timed: makes each put, and may measure how long it takes.

    Raises:
        TxnLogError with durable NOTHING: the store refused the first put, and nothing was sent before.
        OutcomeUnknown: the store did not say; the same call again may settle it.
    """
    last: TxnLogError | None = None
    for attempt in range(attempts):
        if attempt:
            runtime.sleep_ms(runtime.spread(_BACKOFF.after(attempt)))
        try:
            if timed(partial(store.create, key, data)) is Created.CREATED:
                return data
        except TxnLogError as error:
            if error.durable is Durable.NOTHING and attempt == 0 and not sent:
                raise
            last = error
            _logger.warning("put of %s: %s (attempt %d)", key, error.message, attempt + 1)
        try:
            found = _read_with(runtime, partial(store.get, key), besides)
            store.sync(key)  # what may not survive a power cut has not happened yet, not even our own entry
        except ObjectNotFound:
            pass
        except StoreError as error:
            last = error
            _logger.warning("read of %s: %s (attempt %d)", key, error.message, attempt + 1)
        else:
            return found
    raise OutcomeUnknown(f"the store did not say whether {key} exists") from last


def _read_with(runtime: Runtime, read: Callable[[], bytes], besides: Sequence[Callable[[], None]]) -> bytes:
    if not besides:
        return read()
    calls: list[Callable[[], bytes | None]] = [read, *besides]
    found = runtime.run_all(calls)[0]
    assert found is not None, "an object has bytes"
    return found


def put_unnamed(store: Store, runtime: Runtime, objects: Iterable[tuple[str, bytes]]) -> None:
    """Put files that nothing names yet, at the same time.

    Raises StoreError with durable NOTHING: a file may be there, but of what the caller asked for nothing was done.
    """
    with not_sent():
        runtime.run_all([partial(store.put, key, data) for key, data in objects])


__all__ = ["CREATE_ATTEMPTS", "occupy", "put_unnamed"]
