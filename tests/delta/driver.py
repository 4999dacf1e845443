"""A driver of Spark with Delta, as a program: orders go to a topic and to a Delta table, until it is killed or done.

    python -m tests.delta.driver HOW FOLDER [APPEND]

HOW is ``process`` or ``decided``. Given a number, it is killed (SIGKILL) right behind that many-th append to the table.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_ext.delta.delta_table import DeltaTable
from tests.delta.lives import Shop
from tests.delta.session import session


def main() -> None:
    how, folder, *killed_at = sys.argv[1:]
    spark: SparkSession = session(Path(folder))
    shop = Shop(spark, Path(folder), pytest.MonkeyPatch(), new=False)
    shop.born()
    if killed_at:
        kill_behind(int(killed_at[0]))
    if how == "process":
        shop.process()
    else:
        shop.decided()
    spark.stop()


def kill_behind(append: int) -> None:
    original, calls = DeltaTable.append, itertools.count(1)

    def appending(table: DeltaTable, *given: Any) -> None:
        original(table, *given)
        if next(calls) == append:
            os.kill(os.getpid(), signal.SIGKILL)

    pytest.MonkeyPatch().setattr(DeltaTable, "append", appending)


if __name__ == "__main__":
    main()
