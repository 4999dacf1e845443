"""Limits of the format, and defaults, each with its reason.

What a limit refuses is an error that names it (``LimitExceeded`` where a count or a size is full); nothing is forgotten
instead.
"""

from __future__ import annotations

from typing import Final

# --- the log --------------------------------------------------------------------------------------------------------

FORMAT_VERSION: Final = 1
"""Reader and writer version of PROTOCOL.md that this code implements."""

ENTRIES_PER_FOLDER: Final = 10_000
"""A folder of slots stays short enough for an unordered listing (S3 Express, local file systems)."""

MAX_ENTRY_BYTES: Final = 8 << 20
"""One entry is one single-part PUT, read whole; 8 MiB keeps it far below every store's single-part limit."""

MAX_ENTRY_ACTIONS: Final = 50_000
"""Decoding an entry stays below about 100 ms whatever a hostile writer put into it."""

MAX_PROPOSAL_BYTES: Final = 1 << 20
MAX_PROPOSAL_ROWS: Final = 10_000
MAX_PROPOSAL_PIECES: Final = 256
"""One proposal, with its rows: who collects decodes those of many writers for each entry. Who has more races."""

MAX_PROPOSED_NUMBERS: Final = 1 << 16
"""What one proposal may reserve: as many as a client asks for at most, but for one with so many rows of so many topics.
That one races."""

PROPOSAL_ENTRIES: Final = 64
PROPOSAL_LIFE_MS: Final = 60_000
"""After so many entries, or so long in the time of the log, a proposal cannot come true: its writer may have died."""

TARGET_ENTRY_BYTES: Final = 1 << 20
"""Group commit stops adding commands here: above it, latency grows without fewer requests."""

MAX_NUMBER: Final = (1 << 63) - 1
"""Numbers have 112 bits in a TxnID; this format version gives out 63, so that Parquet and Spark hold them as long."""

MAX_TIME_MS: Final = 253_402_300_799_999
"""Log time, in epoch milliseconds: to the end of the year 9999, the last that dates of Python and SQL can show."""

MAX_BLOCK_NUMBERS: Final = 1 << 40
"""One reserved block; a Spark job spreads its tasks' numbers over a sparse block."""

# --- names ----------------------------------------------------------------------------------------------------------

MAX_NAME_CHARACTERS: Final = 100
"""Names become folder names; file systems allow 255 bytes, and an incarnation suffix must fit."""

MAX_LABEL_CHARACTERS: Final = 256
"""Producer names, application ids, consumer names: shown to people, never part of a key."""

MAX_WRITER_CHARACTERS: Final = 200
"""A writer's id with its client, in the blocks of numbers that the log keeps for ever."""

MAX_COLUMN_CHARACTERS: Final = 255
"""Names of columns: about what catalogs of tables take (AWS Glue: 255 bytes)."""

# --- state of a namespace -------------------------------------------------------------------------------------------

MAX_COORDINATORS: Final = 1 << 16
"""Namespaces of one root: the coordinator id has 16 bits."""

MAX_TOPICS: Final = 10_000
MAX_SUBSCRIPTIONS: Final = 100_000
"""Each is kept in the memory of every client, with a cursor for each of its partitions, and read at each opening."""

MAX_PARTITIONS: Final = 10_000
"""Of a topic: a commit has a slice for each partition that it touches, and all of them must fit into one entry."""

MAX_COLUMNS: Final = 2_000
MAX_SCHEMA_DEPTH: Final = 32
"""The schema stands in the entry that creates the topic, and Parquet readers descend into it by recursion."""

MAX_OPEN_TRANSACTIONS: Final = 10_000
"""Transactions that the log shows OPEN or PREPARED: each is kept in the memory of every client."""

MAX_PRODUCERS: Final = 100_000
MAX_APPS: Final = 100_000
MAX_STREAMS: Final = 100_000
"""Names that are remembered for ever, and by every client: a name for each run would fill them."""

MAX_SEQUENCES: Final = 1_000_000
"""(producer, topic, partition) with sequences, remembered likewise."""

MAX_ACKNOWLEDGED_RANGES: Final = 10_000
"""Individually acknowledged ranges above the cursor of one (subscription, partition): behind one message that nobody
acknowledges memory and checkpoints must not grow without end."""

MAX_LEASED_MESSAGES: Final = 50_000
"""Messages leased to one Shared consumer at a time: who takes and never acknowledges must not starve the others."""

MOST_DEAD_LETTERS: Final = 1_000
"""Dead letters that one entry moves: whoever asked for messages waits while their rows are read and written."""

RECENT_BATCHES: Final = 5
"""Sequenced batches whose offsets a (producer, partition) answers from memory (Kafka's number); older: from history."""

# --- time -----------------------------------------------------------------------------------------------------------

DEFAULT_TIMEOUT_MS: Final = 60_000
"""Of a transaction (Kafka's transaction.timeout.ms): what a dead process claims is free again after a minute."""

MAX_TIMEOUT_MS: Final = 15 * 60_000
"""Cap of a namespace that sets none (Kafka's transaction.max.timeout.ms)."""

DEFAULT_LEASE_MS: Final = 30_000
"""Of a subscription: what a dead consumer had is free after half a minute."""

BEATS_PER_LEASE: Final = 3
"""A third of the lease leaves room for two heartbeats that are late; the protocol allows no more of them (P-175)."""

MIN_LEASE_MS: Final = 1_000
"""A shorter lease ends while its consumer works: messages come twice, and become dead letters. 30 means seconds."""

MAX_LEASE_MS: Final = 24 * 3_600_000
"""A longer lease is a slip: what a dead consumer had would not be free for days."""

EXPIRY_GRACE_MS: Final = 5_000
"""Others end a transaction this long after its deadline; the owner stops at the deadline itself."""

MAX_CLOCK_AHEAD_MS: Final = 60_000
"""A client further ahead of the store may not append: it would drag log time with it."""

OUTCOME_RETENTION_MS: Final = 7 * 24 * 3_600_000
"""Ended transactions are remembered at least this long after their end."""

MIN_GRACE_MS: Final = 3_600_000
"""The least grace of a vacuum: a writer that is silent for less is never refused for it."""

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
"""Those that others make for the main thread: one at a time, and one more for each handler of a signal in another.

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
    "ENTRIES_PER_FOLDER",
    "EXPIRY_GRACE_MS",
    "FORMAT_VERSION",
    "MAINTAIN_BYTES",
    "MAX_ACKNOWLEDGED_RANGES",
    "MAX_APPS",
    "MAX_BLOCK_NUMBERS",
    "MAX_CHECKPOINT_RUNS",
    "MAX_CLOCK_AHEAD_MS",
    "MAX_COLUMNS",
    "MAX_COLUMN_CHARACTERS",
    "MAX_COORDINATORS",
    "MAX_ENTRY_ACTIONS",
    "MAX_ENTRY_BYTES",
    "MAX_FOOTER_BYTES",
    "MAX_LABEL_CHARACTERS",
    "MAX_LEASED_MESSAGES",
    "MAX_LEASE_MS",
    "MAX_NAME_CHARACTERS",
    "MAX_NUMBER",
    "MAX_OPEN_TRANSACTIONS",
    "MAX_PARTITIONS",
    "MAX_PRODUCERS",
    "MAX_PROPOSAL_BYTES",
    "MAX_PROPOSAL_PIECES",
    "MAX_PROPOSAL_ROWS",
    "MAX_PROPOSED_NUMBERS",
    "MAX_ROW_BYTES",
    "MAX_SCHEMA_DEPTH",
    "MAX_SEGMENT_BYTES",
    "MAX_SEQUENCES",
    "MAX_STREAMS",
    "MAX_SUBSCRIPTIONS",
    "MAX_TIMEOUT_MS",
    "MAX_TIME_MS",
    "MAX_TOPICS",
    "MAX_WRITER_CHARACTERS",
    "MIN_GRACE_MS",
    "MIN_LEASE_MS",
    "MIN_RETAIN_MS",
    "MOST_DEAD_LETTERS",
    "OUTCOME_RETENTION_MS",
    "PARALLEL_REQUESTS",
    "PROPOSAL_ENTRIES",
    "PROPOSAL_LIFE_MS",
    "RECENT_BATCHES",
    "RENEW_AFTER_MS",
    "REQUESTS_OF_MAIN_THREAD",
    "SMALL_PRODUCE_BYTES",
    "STATISTICS_CHARACTERS",
    "STATISTICS_COLUMNS",
    "TARGET_ENTRY_BYTES",
    "TARGET_SEGMENT_BYTES",
]
