"""The error of a batch that ``query.stop()`` interrupts, in a form in which Spark recognises its own interrupt.

``stop()`` interrupts the query's thread, and Spark's calls in the handler fail. To find out that this was an interrupt
and no failure, Spark searches the text of the error with a regular expression that recurses once for each character
behind its beginning (``StreamExecution.PROXY_ERROR``): on the usual stack of a megabyte a traceback of Java is too long
for it, and the thread ends with a StackOverflowError of a thousand lines. So the text is made short.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_logger = logging.getLogger("txnlog.spark")

_BEGINNING: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling"
"""Where Spark's search begins: without it in the text nothing is searched."""

_INTERRUPTS: Final = re.compile(
    r"java\.lang\.InterruptedException|java\.io\.InterruptedIOException|java\.nio\.channels\.ClosedByInterruptException"
)
"""What Spark takes for an interrupt behind that."""


class QueryStopped(Exception):
    """The query was stopped in the middle of a batch. Only Spark sees it, which ends the query without an error."""

    def __init__(self, batch_id: int) -> None:
        super().__init__(
            f"the query was stopped in the middle of batch {batch_id}, which comes again when it is started "
            f"({_BEGINNING} Spark: java.lang.InterruptedException)"
        )


@contextlib.contextmanager
def recognised_interrupt(query: StreamingQuery | None, batch_id: int) -> Iterator[None]:
    """Raise QueryStopped in place of an error that is the interrupt of ``query.stop()``; all others as they are.

    Of an error of another kind that is raised while the query stops only the text changes: Spark's search finds nothing
    to begin with, and the query ends with that error.
    """
    try:
        yield
    except Exception as error:
        if query is None or query.isActive:
            raise  # Spark searches nothing then
        text = "".join(traceback.format_exception(error))
        _, found, behind = text.partition(_BEGINNING)
        if not found:
            raise
        if _INTERRUPTS.search(behind):
            _logger.debug("batch %d was interrupted since its query was stopped", batch_id, exc_info=True)
            raise QueryStopped(batch_id) from None
        # What remains of it is all there is to show: an error in Java keeps its traceback in its own text.
        raise RuntimeError(text.replace(_BEGINNING, "an error occurred while calling")) from None


__all__ = ["QueryStopped", "recognised_interrupt"]
