"""Whether the handler of a signal raised an error, or the code that it interrupted: the traceback shows it."""

from __future__ import annotations

import inspect
import signal
from functools import partial
from types import CodeType, FrameType


def raise_of_handler(error: BaseException) -> None:
    """Raise an error that the handler of a signal raised, as a time limit does: it says nothing of the data at hand."""
    installed = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code in installed or _got_frame(place.tb_frame):
            raise error
        place = place.tb_next


def _got_frame(frame: FrameType) -> bool:
    """Whether a call was given the frame that it interrupts. A handler is, also one that is not installed any more."""
    code = frame.f_code
    arguments = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    given = [frame.f_locals.get(name) for name in code.co_varnames[:arguments]]
    return any(isinstance(item, FrameType) for one in given for item in (one if isinstance(one, tuple) else (one,)))


def _code_of(handler: object) -> CodeType | None:
    """The code of a handler: a function, a method, a partial of one, or an object that can be called."""
    while isinstance(handler, partial):
        handler = handler.func
    of_kind = (vars(kind).get("__call__") for kind in type(handler).__mro__)
    for function in (handler, getattr(handler, "__func__", None), *of_kind):
        if isinstance(code := getattr(function, "__code__", None), CodeType):
            return code
    return None


__all__ = ["raise_of_handler"]
