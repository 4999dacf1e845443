"""Numbers that the format fixes: another one makes logs that clients of other versions refuse (PROTOCOL.md).

So changing one needs a version of the format, or a feature. Defaults, and limits of what this client does, are in
``limits``. What a limit refuses is an error that names it (``LimitExceeded`` where a count or a size is full); nothing
is forgotten instead.
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

RECENT_BATCHES: Final = 5
"""Sequenced batches whose offsets a (producer, partition) answers from memory (Kafka's number); older: from history."""

# --- time -----------------------------------------------------------------------------------------------------------

MAX_TIMEOUT_MS: Final = 15 * 60_000
"""Cap of a namespace that sets none (Kafka's transaction.max.timeout.ms)."""

EXPIRY_GRACE_MS: Final = 5_000
"""Others end a transaction this long after its deadline; the owner stops at the deadline itself."""

MAX_CLOCK_AHEAD_MS: Final = 60_000
"""A client further ahead of the store may not append: it would drag log time with it."""

OUTCOME_RETENTION_MS: Final = 7 * 24 * 3_600_000
"""Ended transactions are remembered at least this long after their end."""

MIN_GRACE_MS: Final = 3_600_000
"""The least grace of a vacuum: a writer that is silent for less is never refused for it."""

__all__ = [
    "ENTRIES_PER_FOLDER",
    "EXPIRY_GRACE_MS",
    "FORMAT_VERSION",
    "MAX_ACKNOWLEDGED_RANGES",
    "MAX_APPS",
    "MAX_BLOCK_NUMBERS",
    "MAX_CLOCK_AHEAD_MS",
    "MAX_COLUMNS",
    "MAX_COLUMN_CHARACTERS",
    "MAX_COORDINATORS",
    "MAX_ENTRY_ACTIONS",
    "MAX_ENTRY_BYTES",
    "MAX_LABEL_CHARACTERS",
    "MAX_LEASED_MESSAGES",
    "MAX_NAME_CHARACTERS",
    "MAX_NUMBER",
    "MAX_OPEN_TRANSACTIONS",
    "MAX_PARTITIONS",
    "MAX_PRODUCERS",
    "MAX_PROPOSAL_BYTES",
    "MAX_PROPOSAL_PIECES",
    "MAX_PROPOSAL_ROWS",
    "MAX_PROPOSED_NUMBERS",
    "MAX_SCHEMA_DEPTH",
    "MAX_SEQUENCES",
    "MAX_STREAMS",
    "MAX_SUBSCRIPTIONS",
    "MAX_TIMEOUT_MS",
    "MAX_TIME_MS",
    "MAX_TOPICS",
    "MAX_WRITER_CHARACTERS",
    "MIN_GRACE_MS",
    "OUTCOME_RETENTION_MS",
    "PROPOSAL_ENTRIES",
    "PROPOSAL_LIFE_MS",
    "RECENT_BATCHES",
]
