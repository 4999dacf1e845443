"""Requests leave the main thread, in which Python calls the handlers of signals.

What a handler raises comes out of whatever the main thread is in. In a request it would look like an answer: a time
limit raises TimeoutError, which is an OSError as the kernel's are, and the libraries of object stores raise what they
like. So the main thread has its requests made by another one, and a handler interrupts nothing but its wait. (To read a
local file needs none: an interrupt leaves nothing half done, and the traceback shows who raised an error.)
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from txnlog.common.first_of import FirstOf
from txnlog.common.limits import REQUESTS_OF_MAIN_THREAD
from txnlog.engine.effects import Result, result_of
from txnlog.engine.log_lines import write_pending
from txnlog.engine.worker import THREADS, Crew, program_has_ended

P = ParamSpec("P")
R = TypeVar("R")

_of_process: Final = FirstOf[Crew]()


def outside_main_thread(call: Callable[P, R]) -> Callable[P, R]:
    """Wrap a call that makes requests, and names its errors: the main thread only waits for it.

    Where the wait is interrupted the call goes on to its end, as one of any other thread does.
    """

    @functools.wraps(call)
    def outside(*args: P.args, **kwargs: P.kwargs) -> R:
        if threading.current_thread() is not threading.main_thread() or program_has_ended():
            return call(*args, **kwargs)
        replies = THREADS.inbox()
        _crew().put_or_call(lambda: replies.put(result_of(lambda: call(*args, **kwargs))))
        reply: Result[R] = replies.take(None)
        write_pending()
        try:
            return reply.get()
        finally:
            del reply  # the traceback of an error refers to this frame

    return outside


def _crew() -> Crew:
    return _of_process.get_or(lambda: Crew(THREADS, "txnlog-io", REQUESTS_OF_MAIN_THREAD))


os.register_at_fork(after_in_child=_of_process.clear)


__all__ = ["outside_main_thread"]
