"""How often a test tries what could be tried for ever: a share of it in ``make test``, all of it in ``make test-long``.

Each takes other random choices or other places of the same kind; what is asked of every one of them stays the same.
"""

from __future__ import annotations

import os
import random
from typing import Final

LONG: Final = os.environ.get("TXNLOG_TESTS", "") == "long"


def tries(all_of_them: int, some: int) -> int:
    """How many, in this run."""
    return all_of_them if LONG else some


def every(step: int) -> tuple[int, int]:
    """Where to begin and how far to go on, to take one place of so many: another one in each run, in a long run all."""
    return (0, 1) if LONG else (random.randrange(step), step)


__all__ = ["LONG", "every", "tries"]
