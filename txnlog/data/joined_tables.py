"""Tables joined into one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from txnlog.data.arrow_coercion import MAX_PART_BYTES


def joined(tables: Sequence[pa.Table], most_chunks: int = 1) -> pa.Table:
    """Tables with the same columns as one. Many are in one chunk: else whoever goes through it pays for each of them.

    Not where there is too much for one: the offsets of texts in it have 31 bits, and of nested ones no more are made.

    Args:
        tables: at least one.
        most_chunks: so many are left as they are.
    """
    if len(tables) == 1:
        return tables[0]
    table = pa.concat_tables(tables)
    is_one = len(tables) > most_chunks and table.get_total_buffer_size() <= MAX_PART_BYTES
    return table.combine_chunks() if is_one else table


__all__ = ["joined"]
