"""A call that is interrupted at one place after the other.

A signal's handler runs in the main thread when a function begins, when a C function returned, and when a loop goes
round; a profile function is called at the first two. So a call is interrupted at one place after the other until it
ends before the next one comes: every place is tried, without a signal and without chance.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType


def interrupted(call: Callable[[], object], modules: tuple[ModuleType, ...], place: int) -> bool:
    """Call and interrupt at a place of these modules; False where the call ends before."""
    files = {module.__file__ for module in modules}
    seen = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal seen
        # What is raised in a finalizer ends nothing: Python shows it and goes on, so that no call is interrupted there.
        if event in {"call", "c_return"} and frame.f_code.co_filename in files and not is_in_finalizer(frame):
            seen += 1
            if seen == place:
                sys.setprofile(None)
                raise KeyboardInterrupt

    gc.disable()  # generators that an earlier interrupt left would be closed within this call: finalizers, too
    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
        gc.enable()
    return False


def is_in_finalizer(frame: FrameType | None) -> bool:
    """Whether a frame belongs to the work of a ``__del__``."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def hearing_interrupts() -> Iterator[None]:
    """Meanwhile Ctrl-C raises KeyboardInterrupt, also in a process that was started to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def hearing_signal(handle: Callable[[int, FrameType | None], None]) -> Iterator[Callable[[], None]]:
    """Meanwhile SIGUSR1 is handled so. Gives what sends it to the main thread, where its handler runs."""
    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupt_main_thread() -> None:
    """Do what Ctrl-C does, from another thread."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


__all__ = ["hearing_interrupts", "hearing_signal", "interrupt_main_thread", "interrupted", "is_in_finalizer"]
