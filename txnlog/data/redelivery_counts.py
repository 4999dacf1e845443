"""How often each of some messages was delivered before. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txnlog.fold.state import Redelivery


def redeliveries_of(messages: pa.Table, found: Mapping[int, Sequence[Redelivery]]) -> npt.NDArray[np.int32]:
    """How often each of some messages was delivered before, from what its partition's cursor counts."""
    partitions, offsets = np.asarray(messages.column("_partition")), np.asarray(messages.column("_offset"))
    counts = np.zeros(len(messages), np.int32)
    for partition, items in found.items():
        for item in items:
            counts[(partitions == partition) & (offsets >= item.start) & (offsets < item.end)] = item.count
    return counts


__all__ = ["redeliveries_of"]
