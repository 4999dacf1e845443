"""Requests leave the main thread, in which Python calls the handlers of signals.

What a handler raises comes out of whatever the main thread is in. In a request it would look like an answer: a time
limit raises TimeoutError, which is an OSError as the kernel's are, and the libraries of object stores raise what they
like. So the main thread has its requests made by another one, and a handler interrupts nothing but its wait. (To read a
local file needs none: an interrupt leaves nothing half done, and the traceback shows who raised an error.)

A request whose wait was interrupted goes on, and one of a service that does not answer may do so for minutes: so the
requests of each service have threads of their own.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from txnlog.common.limits import REQUESTS_OF_MAIN_THREAD
from txnlog.engine.effects import Result, result_of
from txnlog.engine.log_lines import write_pending
from txnlog.engine.worker import THREADS, Crew, program_has_ended

P = ParamSpec("P")
R = TypeVar("R")


class OfService(Protocol):
    """What makes requests of one service.

    Attributes:
        service: a text that is the same for all that may wait for the same service.
    """

    service: str


S = TypeVar("S", bound=OfService)

_by_service: Final[dict[str, Crew]] = {}


def outside_main_thread(call: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Wrap a method that makes requests, and names its errors: the main thread only waits for it.

    Where the wait is interrupted the call goes on to its end, as one of any other thread does.
    """

    @functools.wraps(call)
    def outside(owner: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if threading.current_thread() is not threading.main_thread() or program_has_ended():
            return call(owner, *args, **kwargs)
        replies = THREADS.inbox()
        _crew(owner.service).put_or_call(lambda: replies.put(result_of(lambda: call(owner, *args, **kwargs))))
        reply: Result[R] = replies.take(None)
        write_pending()
        try:
            return reply.get()
        finally:
            del reply  # the traceback of an error refers to this frame

    return outside


def _crew(service: str) -> Crew:
    """In one step, without a lock: the handler of a signal would wait for ever for the thread that it interrupts."""
    found = _by_service.get(service)
    if found is None:
        found = _by_service.setdefault(service, Crew(THREADS, "txnlog-io", REQUESTS_OF_MAIN_THREAD))
    return found


os.register_at_fork(after_in_child=_by_service.clear)


__all__ = ["OfService", "outside_main_thread"]
