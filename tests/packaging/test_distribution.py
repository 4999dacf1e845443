"""Files of tests are given out in an order that lets no process wait for another at the end."""

from __future__ import annotations

from pathlib import Path

from tests.distribution import LONGEST, SPARK, next_file

ROOT = Path(__file__).parent.parent.parent
UNITS = ["tests/unit/a.py", "tests/unit/b.py"]
FILES = [UNITS[0], "tests/spark/many.py", LONGEST[0], "tests/spark/few.py", UNITS[1], LONGEST[-1]]


def taken(*, spark: bool) -> list[str]:
    """All files in the order in which one process alone would take them."""
    waiting, order = [*FILES], []
    while waiting:
        order.append(next_file(waiting, spark=spark))
        waiting.remove(order[-1])
    return order


def test_the_process_with_the_session_takes_sparks_files_first_and_long_ones_before_the_others():
    spark = [LONGEST[-1], "tests/spark/many.py", "tests/spark/few.py"]
    assert taken(spark=True) == [*spark, LONGEST[0], *UNITS]


def test_the_other_one_takes_long_files_first_and_helps_with_sparks_short_ones_at_the_end():
    spark = ["tests/spark/few.py", "tests/spark/many.py", LONGEST[-1]]
    assert taken(spark=False) == [LONGEST[0], *UNITS, *spark]


def test_the_long_files_and_sparks_folder_are_there():
    assert all((ROOT / name).is_file() for name in LONGEST)
    assert (ROOT / SPARK / "conftest.py").is_file()
