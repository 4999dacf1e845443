"""Which systems are measured, in the order of the tables."""

from benchmarks.peers.delta import Delta
from benchmarks.peers.ducklake import (
    DuckLakeOnDuckDB,
    DuckLakeOnPostgres,
    DuckLakeOnSQLite,
    DuckLakeWithoutInlining,
)
from benchmarks.peers.kafka import Kafka, KafkaWithFsync
from benchmarks.peers.peer import Peer
from benchmarks.peers.pulsar import Pulsar
from benchmarks.peers.txnlog_local import Txnlog, TxnlogOnS3

FEW: tuple[type[Peer], ...] = (Txnlog, KafkaWithFsync, Pulsar, DuckLakeOnDuckDB, Kafka)
"""One of each kind."""

MAIN: tuple[type[Peer], ...] = (*FEW, DuckLakeOnSQLite, DuckLakeOnPostgres)
"""With every catalog of DuckLake."""

ALL: tuple[type[Peer], ...] = (*MAIN, DuckLakeWithoutInlining, TxnlogOnS3, Delta)
"""With variants that matter for small transactions only."""

__all__ = ["ALL", "FEW", "MAIN"]
