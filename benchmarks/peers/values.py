"""Messages that do not compress: what a system saves by compressing what is all the same is not what is asked."""

from __future__ import annotations

import random

from benchmarks.peers.load import Load

_MOST = 65_536
"""So many are different. A page of a Parquet file, and a batch of a broker, has fewer."""


def random_values(load: Load) -> list[bytes]:
    """Different random messages for one transaction of a load; more than there are different ones begin again."""
    count = min(_MOST, load.partitions * load.messages)
    data = random.Random(count).randbytes(count * load.size)
    return [data[number * load.size : (number + 1) * load.size] for number in range(count)]


__all__ = ["random_values"]
