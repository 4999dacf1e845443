"""Defaults, and limits of what this client does, each with its reason: other versions may have others.

What the format fixes is in ``format_limits``.
"""

from __future__ import annotations

from typing import Final

from txnlog.common.format_limits import MIN_GRACE_MS

# --- the log --------------------------------------------------------------------------------------------------------

TARGET_ENTRY_BYTES: Final = 1 << 20
"""Group commit stops adding commands here: above it, latency grows without fewer requests."""

# --- state of a namespace -------------------------------------------------------------------------------------------

MOST_DEAD_LETTERS: Final = 1_000
"""Dead letters that one entry moves: whoever asked for messages waits while their rows are read and written."""

# --- time -----------------------------------------------------------------------------------------------------------

DEFAULT_TIMEOUT_MS: Final = 60_000
"""Of a transaction (Kafka's transaction.timeout.ms): what a dead process claims is free again after a minute."""

DEFAULT_LEASE_MS: Final = 30_000
"""Of a subscription: what a dead consumer had is free after half a minute."""

BEATS_PER_LEASE: Final = 3
"""A third of the lease leaves room for two heartbeats that are late; the protocol allows no more of them (P-175)."""

MIN_LEASE_MS: Final = 1_000
"""A shorter lease ends while its consumer works: messages come twice, and become dead letters. 30 means seconds."""

MAX_LEASE_MS: Final = 24 * 3_600_000
"""A longer lease is a slip: what a dead consumer had would not be free for days."""

DEFAULT_GRACE_MS: Final = 24 * 3_600_000
"""Nobody shows life in the log while a long job writes: a day of it costs a day of garbage at most."""

MIN_RETAIN_MS: Final = 3_600_000
"""A vacuum that leaves versions readable for less is refused unless it says that it is meant: 0 and 60 are slips."""

DEFAULT_RETAIN_MS: Final = 7 * 24 * 3_600_000
"""How long a vacuum leaves versions readable by default (Delta's number)."""

RENEW_AFTER_MS: Final = MIN_GRACE_MS // 3
"""A writer that was silent for so long renews its blocks: a third of the grace leaves room for two failed tries."""

# --- requests -------------------------------------------------------------------------------------------------------

PARALLEL_REQUESTS: Final = 16
"""Store requests of a client that are under way at once: those of one data wave, or of one catch-up."""

REQUESTS_OF_MAIN_THREAD: Final = 16
"""Those of one service that others make for the main thread: one at a time, one more for each handler of a signal in
another, and those that a time limit of the program left behind.

A library that keeps connections open has to keep as many as both together, else requests wait for one.
"""

# --- segments and checkpoints ---------------------------------------------------------------------------------------

AUTO_MERGE_SEGMENTS: Final = 64
"""Small segments of a topic that come together before a client that commits merges them.

Fewer would write each row more often, and more leave more files to readers (docs/decisions/0039).
"""

AUTO_MERGE_BYTES: Final = 16 << 20
"""What is merged by itself makes segments up to this size; ``optimize`` makes bigger ones."""

SMALL_PRODUCE_BYTES: Final = 1 << 20
"""Below it, buffered rows may share a segment with other transactions of the same entry; above it they do not."""

TARGET_SEGMENT_BYTES: Final = 128 << 20
"""Uncompressed Arrow bytes after which a big write goes on in the next segment."""

MERGE_TARGET_BYTES: Final = 128 << 20
"""Bytes of a file up to which ``optimize`` merges segments by default: some readers take a whole file into memory."""

MAX_SEGMENT_BYTES: Final = 1 << 30
"""The largest target of an optimize: a reader has a whole file in memory."""

MAX_ROW_BYTES: Final = (1 << 29) - 1
"""One row, counting a character as a byte: the offsets of Arrow's strings have 31 bits, a character up to 4 bytes."""

MAINTAIN_BYTES: Final = 16 << 30
"""What one call of maintenance reads to merge it by default: minutes, and an entry for each 128 MiB."""

BUFFER_BYTES: Final = 64 << 20
"""A transaction's buffered rows above this are written as segments, which no entry names yet: memory stays bounded."""

MAX_FOOTER_BYTES: Final = 64 << 20
"""A Parquet footer that claims more is refused before it is read."""

CHECKPOINT_ENTRIES: Final = 1_000
CHECKPOINT_TAIL_BYTES: Final = 16 << 20
"""A checkpoint is due after about either, and mostly earlier, by what applying the tail costs. It is made next to the
commits, so that an opening may find somewhat more."""

MAX_CHECKPOINT_RUNS: Final = 8
"""More runs than this are merged, so that opening reads few objects."""

STATISTICS_COLUMNS: Final = 32
STATISTICS_CHARACTERS: Final = 32
"""Columns with recorded minimum and maximum, and the length of a string there (Delta's defaults)."""

__all__ = [
    "AUTO_MERGE_BYTES",
    "AUTO_MERGE_SEGMENTS",
    "BEATS_PER_LEASE",
    "BUFFER_BYTES",
    "CHECKPOINT_ENTRIES",
    "CHECKPOINT_TAIL_BYTES",
    "DEFAULT_GRACE_MS",
    "DEFAULT_LEASE_MS",
    "DEFAULT_RETAIN_MS",
    "DEFAULT_TIMEOUT_MS",
    "MAINTAIN_BYTES",
    "MAX_CHECKPOINT_RUNS",
    "MAX_FOOTER_BYTES",
    "MAX_LEASE_MS",
    "MAX_ROW_BYTES",
    "MAX_SEGMENT_BYTES",
    "MERGE_TARGET_BYTES",
    "MIN_LEASE_MS",
    "MIN_RETAIN_MS",
    "MOST_DEAD_LETTERS",
    "PARALLEL_REQUESTS",
    "RENEW_AFTER_MS",
    "REQUESTS_OF_MAIN_THREAD",
    "SMALL_PRODUCE_BYTES",
    "STATISTICS_CHARACTERS",
    "STATISTICS_COLUMNS",
    "TARGET_ENTRY_BYTES",
    "TARGET_SEGMENT_BYTES",
]
