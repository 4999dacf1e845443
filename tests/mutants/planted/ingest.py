"""Bugs planted in the ingestion of Kafka's messages."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import INGEST_KAFKA

MUTANTS: Final = (
    Mutant(
        "what the log has is not left out of a batch",
        "spark_ext/ingest/kafka_batches.py",
        "if found.start < found.begin}",
        "if found.start < 0}",
        "with an older checkpoint messages come twice",
        (INGEST_KAFKA + "an_older_checkpoint_brings_what_the_log_does_not_have",),
    ),
    Mutant(
        "a checkpoint may be ahead of the log",
        "spark_ext/ingest/kafka_batches.py",
        "if start > max(begin, self.lost.get(part, 0)):",
        "if False:",
        "messages are missing without an error",
        (INGEST_KAFKA + "a_checkpoint_ahead_of_the_log_is_refused",),
    ),
    Mutant(
        "a new checkpoint begins at the beginning",
        "spark_ext/ingest/ingest_kafka.py",
        "        starts[part] = position.offset\n",
        "        starts[part] = bounds.earliest\n",
        "with a new checkpoint everything is read again, and what retention took is not noticed",
        (INGEST_KAFKA + "a_new_checkpoint_begins_where_the_log_is",),
    ),
    Mutant(
        "the id of a Kafka topic says nothing",
        "spark_ext/ingest/ingest_kafka.py",
        "    check_topic_ids(name, known, found.ids)\n",
        "",
        "the first messages of a topic that was made again are taken for ingested",
        (INGEST_KAFKA + "a_topic_of_kafka_that_was_made_again_is_refused_before_anything_is_written",),
    ),
    Mutant(
        "a topic may change while a batch is read",
        "spark_ext/ingest/kafka_batches.py",
        "        self._check_topics()\n",
        "",
        "messages of a topic that was made again count as those of the old one",
        (INGEST_KAFKA + "a_topic_of_kafka_that_is_made_again_while_a_batch_is_read_ends_the_query",),
    ),
    Mutant(
        "messages that retention took are passed over",
        "spark_ext/ingest/ingest_kafka.py",
        "            if wanted.fail_on_data_loss:\n                raise error\n",
        "",
        "messages are lost, and a line of the log alone says so",
        (INGEST_KAFKA + "messages_that_retention_took_are_an_error_and_going_on_without_them_is_a_choice",),
    ),
    Mutant(
        "an older run is not fenced",
        "spark_ext/ingest/positions.py",
        "begin_transaction(connection_of(ns), ingestion.name, ingestion.epoch, timed_from_log=True)",
        "begin_transaction(connection_of(ns), None, None, timed_from_log=True)",
        "a run that hung commits behind the positions that a newer one has read",
        (INGEST_KAFKA + "a_run_that_was_overtaken_while_it_hung_commits_nothing",),
    ),
    Mutant(
        "messages of several partitions share a file",
        "spark_ext/write/task_writer.py",
        "        for source in distinct:\n"
        "            yield source, rest if len(distinct) == 1 else rest.filter(pc.equal(sources, source))\n",
        "        yield distinct[0], rest\n",
        "rows are committed with the position of another partition",
        (INGEST_KAFKA + "of_a_batch_whose_commits_came_in_part_the_rest_comes_also_of_one_task",),
    ),
)
