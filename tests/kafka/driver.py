"""A driver of Spark with Kafka, as a program: it ingests what is there, until it is done, or killed (SIGKILL).

    python -m tests.kafka.driver FOLDER ADDRESS SOURCE PLACE

PLACE is where it dies. In its second batch: ``read`` (before its job), ``written`` (its files are there, and nothing in
the log), ``committed`` (it is, and Spark does not know). Where it begins, at the latest offsets: ``noted`` (the log has
where). In its first batch: ``owned`` (it has taken over, and committed nothing). Or ``nowhere``.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import spark_ext
from spark_ext.ingest import kafka_batches, position_commits
from spark_ext.ingest.kafka_batches import KafkaBatches
from tests.kafka.lake import COLUMNS
from tests.kafka.session import session

PLACES: Final = ("read", "written", "committed")
PLACE_OF_A_START: Final = "noted"
PLACE_OF_THE_FIRST: Final = "owned"


def main() -> None:
    folder, address, source, place = Path(sys.argv[1]), *sys.argv[2:]
    spark = session(folder)
    (die_at_the_start if place in {PLACE_OF_A_START, PLACE_OF_THE_FIRST} else die_in)(place)
    query = spark_ext.ingest_kafka(
        spark,
        f"{folder}/lake/sales",
        subscribe=source,
        topic="orders",
        columns=COLUMNS,
        options={
            "kafka.bootstrap.servers": address,
            "maxOffsetsPerTrigger": "9",
            "startingOffsets": "latest" if place == PLACE_OF_A_START else "earliest",
        },
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    spark.stop()


def die_in(place: str) -> None:
    """Die in the second batch."""
    patch = pytest.MonkeyPatch()
    commit, write = position_commits.commit_batch, KafkaBatches._write
    writes, commits = itertools.count(1), itertools.count(1)

    def writing(batches: KafkaBatches, *given: Any) -> Any:
        second = next(writes) == 2
        if second and place == "read":
            die()
        written = write(batches, *given)
        if second and place == "written":
            die()
        return written

    def committing(*given: Any, **more: Any) -> Any:
        done = commit(*given, **more)
        if next(commits) == 2 and place == "committed":
            die()
        return done

    patch.setattr(KafkaBatches, "_write", writing)
    patch.setattr(kafka_batches, "commit_batch", committing)


def die_at_the_start(place: str) -> None:
    """Die behind the entry that says where the ingestion begins, or behind the one that fences older runs."""
    patch = pytest.MonkeyPatch()

    def noting(*given: Any) -> None:
        position_commits.note_starts(*given)
        die()

    def owning(*given: Any) -> None:
        epoch_of(*given)
        die()

    if place == PLACE_OF_A_START:
        patch.setattr(kafka_batches, "note_starts", noting)
    else:
        epoch_of = kafka_batches.epoch_of
        patch.setattr(kafka_batches, "epoch_of", owning)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
