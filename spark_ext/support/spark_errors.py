"""Parsing Spark's errors: which error of txnlog's a task raised, and the most informative line.

The driver gets an error as text, which begins with its Python traceback, unless that is hidden (``short_errors``).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Final, TypeVar

from pyspark.errors import PySparkException

from txnlog import errors
from txnlog.errors import Durable, InvalidInputError, TxnLogError, UnsupportedFeature

T = TypeVar("T")

_RAISED: Final = re.compile(r"^txnlog\.errors\.([A-Za-z]+): (.*)$", re.MULTILINE)

_OF_THE_FORMAT: Final = re.compile(r"\n?[^\n]*\ntxnlog\.errors\.([A-Za-z]+): ")
"""How Spark's text of an error begins that a task of the format raised: without a traceback, unlike a function's.

Before Spark 4.2 its own line was the second one.
"""

_DURABLE: Final = {**{f"; {item.value})": item for item in Durable}, ")": None}
"""The endings of an error's text with its durability; the last one states none, as some errors of reads do."""

_NOT_THERE: Final = re.compile(
    r"^ModuleNotFoundError: No module named '((?:spark_ext|txnlog)(?:\.[\w.]+)?)'$", re.MULTILINE
)

_MOST_OF_A_LINE: Final = 300

# --- which one it was -------------------------------------------------------------------------------------------------


def typed(error: BaseException, mark: str) -> TxnLogError | None:
    """The error of txnlog's that a task raised, parsed from Spark's text; None where it was another one.

    Only one that is followed by the job's ``mark`` counts: an error of a user's function may contain any text.
    """
    before, found, _ = str(error).partition(f"\n{mark}")
    for name, text in reversed(_RAISED.findall(before) if found else []):
        kind = _kind(name)
        if kind is not None:
            message, advice, durable = _taken_apart(text.strip())
            return kind(message, advice=advice, durable=durable)
    return None


def without_txnlog(error: BaseException) -> UnsupportedFeature | None:
    """The error for tasks whose Python could not import txnlog; None where it was another one."""
    found = _NOT_THERE.search(str(error)) if isinstance(error, PySparkException) else None
    return found and UnsupportedFeature(
        f"the Python of Spark's tasks has no module {found[1]}",
        advice="on one machine activate the driver's environment, or set PYSPARK_PYTHON to its python, before the "
        "session starts: Spark takes python3 of the path; on a cluster ship the wheel (docs/spark.md, Where it runs)",
    )


def raised_by_format(error: BaseException | None) -> type[TxnLogError] | None:
    """The class of the error that a task of the format raised; None for other errors, or tasks."""
    found = _OF_THE_FORMAT.match(str(error)) if isinstance(error, PySparkException) else None
    return None if found is None else _kind(found[1])


def condition_of(error: BaseException | None) -> str:
    """Spark's error condition, as the text may come from a message; empty where there is none."""
    if isinstance(error, PySparkException):
        return error.getCondition() or ""
    java = getattr(error, "java_exception", None)  # of Py4J, where PySpark has no class of its own
    with contextlib.suppress(Exception):  # it is none of Spark's, and has no such method
        return "" if java is None else str(java.getCondition() or "")
    return ""


def _kind(name: str) -> type[TxnLogError] | None:
    kind = getattr(errors, name, None) if name in errors.__all__ else None
    return kind if isinstance(kind, type) and issubclass(kind, TxnLogError) else None


def _taken_apart(text: str) -> tuple[str, str | None, Durable | None]:
    """Message, advice and durability of an error's text: the inverse of ``str(error)``."""
    for ending, durable in _DURABLE.items():
        if not text.endswith(ending):
            continue
        depth = 0
        for position in range(len(text) - 1, 0, -1):
            depth += {")": 1, "(": -1}.get(text[position], 0)
            if not depth:
                return text[:position].rstrip(), text[position + 1 : -len(ending)], durable
    return text, None, None


def unless_refused(call: Callable[[], T], what: str, advice: str) -> T:
    """What a call gives that Spark may refuse at once. Raises InvalidInputError with the first line of what it says.

    That line alone: Spark goes on with a plan, and a plan has the options of sources, with passwords and keys among
    them. So its error is no cause of ours either, nor its context: a traceback would show it.
    """
    try:
        return call()
    except PySparkException as error:
        line = first_line(error)
    except Exception as error:
        if not hasattr(error, "java_exception"):  # Py4J's, where PySpark has no class of its own
            raise
        line = first_line(error)
    raise InvalidInputError(f"{what}: {line}", advice=advice, durable=Durable.NOTHING)


# --- for people -------------------------------------------------------------------------------------------------------


def in_a_line(error: BaseException) -> str:
    """An error's class and its most informative line, for a message or a table.

    For an error of a Python function in a task that is the line after the traceback, with which Spark's text begins.
    """
    text = error.message if isinstance(error, TxnLogError) else str(error)
    lines = text.strip().split("\n")
    _, traceback, behind = text.rpartition("Traceback (most recent call last):\n")
    if traceback:
        lines = [line for line in behind.split("\n") if line and not line.startswith(" ")] or lines
    return f"{type(error).__qualname__}: {lines[0]}"


def first_line(error: BaseException) -> str:
    """The first line of an error of Spark or Java, for the end of a message: at most 300 characters."""
    lines = str(error).strip().split("\n")  # the first one of Py4J's names the call
    line = lines[1 if lines[0].startswith("An error occurred while calling") and len(lines) > 1 else 0]
    return line.lstrip(": ")[:_MOST_OF_A_LINE]


__all__ = ["condition_of", "first_line", "in_a_line", "raised_by_format", "typed", "unless_refused", "without_txnlog"]
