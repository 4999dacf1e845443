"""Bugs planted in the ingestion of Kafka's messages."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import INGEST_COMMITS, INGEST_EXPRESSIONS, INGEST_KAFKA, INGEST_STARTS, INGEST_TAKEOVERS

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
        "if start > begin:",
        "if False:",
        "messages are missing without an error",
        (INGEST_KAFKA + "a_checkpoint_ahead_of_the_log_is_refused",),
    ),
    Mutant(
        "a new checkpoint begins at the beginning",
        "spark_ext/ingest/ingest_kafka.py",
        "{part: position.offset for part, position in known.items()}",
        "{part: found[part].earliest for part in known}",
        "with a new checkpoint everything is read again, and left out",
        (INGEST_KAFKA + "a_new_checkpoint_begins_where_the_log_is",),
    ),
    Mutant(
        "the id of a Kafka topic says nothing",
        "spark_ext/ingest/positions.py",
        "if _NO_ID not in {position.topic_id, own.query} and position.topic_id != own.query:",
        "if False:",
        "the first messages of a topic that was made again are taken for ingested",
        (INGEST_KAFKA + "a_topic_of_kafka_that_was_made_again_is_refused_before_anything_is_written",),
    ),
    Mutant(
        "a topic may change while a batch is read",
        "spark_ext/ingest/kafka_batches.py",
        "        self._check_sources()\n",
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
    Mutant(
        "a start at offset 0 is not logged",
        "spark_ext/ingest/positions.py",
        "(last is None or last.batch < batch.batch)",
        "batch.batch > (0 if last is None else last.batch)",
        "an ingestion that began in an empty topic begins again, behind messages that came meanwhile",
        (INGEST_STARTS + "latest_is_where_the_first_run_began_also_in_an_empty_topic",),
    ),
    Mutant(
        "a run notes where it begins over what another one began",
        "spark_ext/ingest/positions.py",
        "if part.topic not in begun and",
        "if",
        "of two first runs the second one moves the first one's position: messages are missing",
        (INGEST_STARTS + "of_two_first_runs_the_one_that_is_logged_first_says_where_both_begin",),
    ),
    Mutant(
        "a partition without a position begins anew",
        "spark_ext/ingest/positions.py",
        "(first := connection.stream(stream_of(name, Part(part.topic, 0)))) is not None",
        "(first := record) is not None",
        "of a partition that was added, messages that came before the next start are missing",
        (INGEST_STARTS + "a_partition_that_is_added_begins_at_its_first_message_and_misses_what_retention_took",),
    ),
    Mutant(
        "positions are of behind Kafka's bounds",
        "spark_ext/ingest/ingest_kafka.py",
        "    found = cluster.bounds(parts)\n",
        "    found = cluster.bounds(parts)\n    known = positions(ns, ingestion.name, parts)\n",
        "what an older run committed meanwhile looks like offsets that went back, and the advice is to begin anew",
        (INGEST_TAKEOVERS + "a_run_takes_over_from_one_that_commits_meanwhile",),
    ),
    Mutant(
        "a run takes over before Spark starts its query",
        "spark_ext/ingest/ingest_kafka.py",
        "    query = unless_refused(\n",
        "    batches.take_over()\n    query = unless_refused(\n",
        "a call that Spark refuses ends a run that is at work",
        (INGEST_TAKEOVERS + "what_spark_refuses_at_the_start_ends_no_run_that_is_at_work",),
    ),
    Mutant(
        "offsets that go back are passed over",
        "spark_ext/ingest/kafka_batches.py",
        "if end is None or end < start:",
        "if end is None:",
        "new messages at old offsets are taken for ingested",
        (INGEST_COMMITS + "offsets_that_go_back_while_a_query_runs_are_no_silent_loss",),
    ),
    Mutant(
        "rows may go to another topic than before",
        "spark_ext/ingest/positions.py",
        "if position.target != own.offsets_digest:",
        "if False:",
        "a topic that was made again lacks what came before, and nobody hears of it",
        (INGEST_COMMITS + "a_topic_that_is_dropped_between_the_last_look_and_the_commit_fails_the_batch",),
    ),
    Mutant(
        "of several failures the first one is raised",
        "spark_ext/ingest/positions.py",
        "first = unknown[0] if unknown else failures[0]",
        "first = failures[0]",
        "an error says that nothing was written, and something may be",
        (INGEST_COMMITS + "an_unknown_outcome_is_said_before_any_other_error",),
    ),
    Mutant(
        "an expression may have a subquery",
        "spark_ext/ingest/kafka_frames.py",
        "plan.subqueriesAll().size()",
        "0",
        "a join brings the messages of a partition in another order",
        (INGEST_EXPRESSIONS + "expressions_over_other_messages_are_refused",),
    ),
)
