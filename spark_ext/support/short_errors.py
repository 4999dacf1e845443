"""Raising errors of ``txnlog.errors`` in Spark's Python processes without their traceback.

Such an error reaches the user as the text of a Java exception, which begins with the traceback: its class, message and
advice would come last. Executors use this module: it needs the standard library, and ``txnlog.errors``, which needs no
more.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from txnlog.errors import TxnLogError

_logger: Final = logging.getLogger("txnlog.spark")

_SWITCH: Final = "SPARK_HIDE_TRACEBACK"
"""Spark's own variable, for sessions with ``spark.sql.execution.pyspark.udf.hideTraceback.enabled``."""

_Class = TypeVar("_Class", bound=type)


def short_errors(cls: _Class) -> _Class:
    """Decorate a class whose methods Spark calls: errors of ``txnlog.errors`` are reported without their traceback.

    Other exceptions are bugs, and keep it. The traceback of a typed one is logged to ``txnlog.spark`` at level DEBUG.
    """
    for name, function in list(vars(cls).items()):
        if inspect.isfunction(function) and not name.startswith("__"):
            setattr(cls, name, _short(function))
    return cls


def _short(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _without_traceback():
            result = function(*args, **kwargs)
        return _iterated(result) if isinstance(result, Iterator) else result

    return call


def _iterated(items: Iterator[Any]) -> Iterator[Any]:
    with _without_traceback():
        yield from items


@contextmanager
def _without_traceback() -> Iterator[None]:
    try:
        yield
    except TxnLogError:
        _logger.debug("an error that Spark reports", exc_info=True)
        if "pyspark.worker_util" in sys.modules:  # one of Spark's processes, which ends once it has reported the error
            os.environ[_SWITCH] = "1"
        raise


__all__ = ["short_errors"]
