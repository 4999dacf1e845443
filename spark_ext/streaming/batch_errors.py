"""What a batch of ``write_stream`` raises, in a form that reaches Spark.

Spark calls a batch through py4j, in a thread of its own, which answers with the text of an Exception. It has no answer
for ``SystemExit``, ``KeyboardInterrupt`` and their like: they end the thread, and the query would wait for ever. Nor
can it send a text that is not valid Unicode, which a file name can bring into an error.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_ext.streaming.stop_interrupts import recognised_interrupt
from spark_ext.write.dataframe_transaction import behind_commit
from txnlog.common.validation import shown
from txnlog.errors import Durable, InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from txnlog.api.transaction import Transaction


class BatchOutcome:
    """What became of a batch, for its error. ``txn`` is its transaction, None before there is one."""

    def __init__(self, batch_id: int) -> None:
        self._batch_id = batch_id
        self.txn: Transaction | None = None

    @property
    def _committed(self) -> str | None:
        """That the batch is committed, as errors say it of "the batch"; None where nothing is known of that."""
        result = None if self.txn is None else self.txn.result
        return None if result is None else f"committed, at version {result.version}: a restart of the query skips it"

    def of_error(self, error: Exception) -> Exception:
        """An error of the batch, which says so where the batch is committed all the same."""
        committed = self._committed
        return error if committed is None else behind_commit(error, f"batch {self._batch_id} is {committed}")

    def of_exit(self, error: BaseException) -> InvalidInputError:
        """The error in place of one that is no Exception, and would end the thread instead of the query."""
        advice = "raise an Exception in the handler to stop the query"
        if isinstance(error, SystemExit):
            advice += ", and call sys.exit() after awaitTermination()"
        durable = Durable.NOTHING
        if (committed := self._committed) is not None:
            end = f"the batch is {committed}"
            durable = Durable.MAYBE
        elif self.txn is None or self.txn.state == "ABORTED":
            end = "nothing of the batch is committed, and a restart of the query repeats it"
        else:
            end = "whether the batch is committed is unknown here: a restart of the query finds out in the log"
            durable = Durable.MAYBE
        where = "" if self.txn is None else "the handler of "
        what = f"{type(error).__name__}({', '.join(shown(item) for item in error.args)})"
        return InvalidInputError(f"{where}batch {self._batch_id} raised {what}; {end}", advice=advice, durable=durable)


@contextlib.contextmanager
def reaching_spark(query: StreamingQuery | None, batch_id: int) -> Iterator[BatchOutcome]:
    """Context of a batch: whatever is raised inside comes out as an Exception whose text py4j can send."""
    outcome = BatchOutcome(batch_id)
    try:
        with recognised_interrupt(query, batch_id):
            try:
                yield outcome
            except Exception as error:
                answer = outcome.of_error(error)
                if answer is error:
                    raise
                raise answer from error.__cause__
            except BaseException as error:
                raise outcome.of_exit(error) from error
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        sendable = text.encode(errors="backslashreplace").decode()
        if sendable == text:
            raise
        raise RuntimeError(sendable) from None


__all__ = ["BatchOutcome", "reaching_spark"]
