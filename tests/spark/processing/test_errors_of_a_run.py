"""Errors that a run of ``spark_ext.process`` meets on the driver: what they say, and what the run takes them for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.spark.shop import Shop, shop
from tests.spark.support import ids
from txnlog.errors import TopicNotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_ext.write.dataframe_transaction import DataFrameTransaction

__all__ = ["shop"]  # a fixture


def test_a_wrong_call_of_a_handler_that_caught_an_error_of_spark_makes_no_dead_letters(shop: Shop) -> None:
    """LOSE: a misspelt topic, named in an ``except`` block: all messages go to the dead letters.

    What the handler caught is the context of the error. Reworded, the error has it as its cause, by which the run takes
    it for one that a task met in a row.
    """

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        try:
            raise PySparkException("one row is no number")
        except PySparkException:
            txn.write(batch, "evne")

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    with pytest.raises(TopicNotFound, match="did you mean 'even'"):
        shop.run(handler, on_error="dead_letter", max_attempts=1)
    assert (ids(shop.ns, "orders-dead"), shop.behind()) == ([], 4)


def test_an_interrupt_is_found_behind_an_error_of_its_clean_up(shop: Shop) -> None:
    """LOSE: Ctrl-C in a handler whose ``finally`` fails: reworded, the error has no context to find it in."""

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            txn.write(batch, "evne")

    shop.produce(0)
    with pytest.raises(KeyboardInterrupt):
        shop.run(handler)
