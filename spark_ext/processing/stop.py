"""Stopping ``spark_ext.process``: by its program, by Ctrl-C, by SIGTERM."""

from __future__ import annotations

import logging
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal

from spark_ext.support.spark_versions import has_jvm
from txnlog.common.validation import shown
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.engine.runtime import Runtime

_logger: Final = logging.getLogger("txnlog.spark")

_LOOK_MS: Final = 100.0
"""Interval at which a waiting run checks whether to stop. A check sends no request."""

Asked = Literal["asked", "signal"]


class Stop:
    """Whether a run was asked to stop, and by whom.

    Args:
        given: an event, or a function that returns whether to stop. It is called between batches and ten times a second
            during pauses.
    """

    def __init__(self, given: threading.Event | Callable[[], object] | None) -> None:
        is_asked = getattr(given, "is_set", given)
        if is_asked is not None and not callable(is_asked):
            raise InvalidInputError(
                f"stop is a threading.Event or a function without arguments, not {shown(given)}",
                advice="pass stop=event, and call event.set() in another thread",
            )
        self._is_asked: Callable[[], object] | None = is_asked
        self._signal: signal.Signals | None = None

    @property
    def asked(self) -> Asked | None:
        """Who asked, None where nobody did."""
        if self._signal is not None:
            return "signal"
        return "asked" if self._is_asked is not None and self._is_asked() else None

    def wait(self, runtime: Runtime, milliseconds: float) -> bool:
        """Wait for a time, or until the run is asked to stop. Returns whether it was."""
        end = runtime.elapsed_ms() + milliseconds
        while self.asked is None:
            left = end - runtime.elapsed_ms()
            if left <= 0:
                return False
            runtime.sleep_ms(min(left, _LOOK_MS))
        return True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Context in which the first Ctrl-C or SIGTERM asks to stop, and the next one interrupts the current batch.

        Python allows signal handlers in the main thread only; in another thread the program's own stay in place.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[signal.Signals, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            # Ignored signals stay ignored; and Python can only restore handlers of its own.
            if handler not in {signal.SIG_IGN, None}:
                before[number] = handler

        def heard(number: int, _frame: FrameType | None) -> None:
            if self._signal is not None:
                raise KeyboardInterrupt
            self._signal = signal.Signals(number)
            _logger.warning("%s: stopping after this batch; once more interrupts it", self._signal.name)

        for number in before:
            signal.signal(number, heard)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def interruptible(spark: SparkSession) -> Iterator[None]:
    """Context in which a KeyboardInterrupt cancels the Spark jobs of this thread.

    Spark's own handling of Ctrl-C fails while a call of the same thread is running: the job would keep its executors.
    """
    tag = f"txnlog-process-{uuid.uuid4().hex}"
    context = spark.sparkContext if has_jvm(spark) else None
    # A session finds its tags in the thread that set them only, which is another one in Java after an interrupt.
    add, cancel, remove = (
        (spark.addTag, spark.interruptTag, spark.removeTag)
        if context is None
        else (context.addJobTag, context.cancelJobsWithTag, context.removeJobTag)
    )
    add(tag)
    try:
        yield
    except KeyboardInterrupt:
        try:
            cancel(tag)
        except Exception:
            _logger.warning("the jobs of the interrupted batch could not be cancelled", exc_info=True)
        raise
    finally:
        with suppress(Exception):  # the session may have been stopped inside: the error of that is raised
            remove(tag)


__all__ = ["Asked", "Stop", "interruptible"]
