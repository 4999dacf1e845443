"""Bugs planted in txnlog/data: rows, segments and scans."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    ALTER_TOPIC,
    COLUMNS,
    EVOLUTION,
    HIDDEN_NULLS,
    LISTINGS,
    OPTIMIZE,
    PARTITIONER,
    READING,
    ROW_BUFFER,
    ROWS,
    SEGMENTS,
    VISIBILITY,
)

MUTANTS: Final = (
    # --- bytes at rest ----------------------------------------------------------------------------------------------
    Mutant(
        "checksum of a segment not verified",
        "txnlog/data/segment_file.py",
        "if _checksum(view) != checksum:",
        "if not checksum:",
        "damaged bytes are returned as rows",
        (SEGMENTS + "any_flipped_bit_is_found_or_changes_nothing",),
    ),
    Mutant(
        "no column counts the rows",
        "txnlog/data/segment_reader.py",
        " or schema.names[:1]",
        "",
        "a read of no columns has the rows of the last row group only",
        ("tests/client/topics/test_reads_of_no_columns.py::test_a_file_of_several_row_groups_with_a_nested_column",),
    ),
    # --- docs/guarantees.md, rules about producing --------------------------------------------------------------------
    Mutant(
        "keys hashed with another seed",
        "txnlog/data/partitioner.py",
        "SEED: Final = 42",
        "SEED: Final = 43",
        "Spark and Python bring one key to two partitions",
        (PARTITIONER + "hashes_are_those_that_spark_gave",),
    ),
    Mutant(
        "Arrow tables kept over the memory of their caller",
        "txnlog/data/row_buffer.py",
        "tables.append(_copied(_conform_table(batch, self._plan, self._topic, rows)))",
        "tables.append(_conform_table(batch, self._plan, self._topic, rows))",
        "who fills an array again for the next rows loses the last ones and writes the next twice",
        (
            ROW_BUFFER + "later_changes_to_the_memory_of_what_was_passed_do_not_reach_the_buffer",
            ROW_BUFFER + "batches_of_one_memory_that_is_filled_again_are_all_taken",
        ),
    ),
    Mutant(
        "a year that Python does not have is an error",
        "txnlog/data/python_rows.py",
        "    except (OverflowError, ValueError):\n",
        "    except ZeroDivisionError:\n",
        "one such row, and the command line shows none of the topic's",
        (LISTINGS + "times_that_python_does_not_have_are_shown_with_their_year",),
    ),
    # --- docs/guarantees.md, rules about reading ----------------------------------------------------------------------
    Mutant(
        "pending rows have offsets",
        "txnlog/data/scan_planner.py",
        'offset = item.offset if state == "COMMITTED" else None',
        "offset = item.offset or 0",
        "a row that is not committed seems to have a place: another row gets it later",
        (VISIBILITY + "uncommitted_rows_come_with_their_state_and_without_an_offset",),
    ),
    Mutant(
        "merged rows that are not visible show what their file stores",
        "txnlog/data/scan_planner.py",
        "compacted=record.compacted and committed,",
        "compacted=record.compacted,",
        "a merge at work shows rows of committed transactions as open",
        (ROWS + "rows_of_a_merged_segment_that_is_pending_or_aborted_are_those_of_its_own_transaction",),
    ),
    Mutant(
        "offsets that are gone are passed over",
        "txnlog/data/scan_planner.py",
        "if start < low or end > high:",
        "if end > high:",
        "rows that retention took are missing, and the reader is not told",
        (READING + "offsets_that_retention_passed_are_refused_with_what_is_left",),
    ),
    Mutant(
        "aborted files are read as well",
        "txnlog/data/scan_planner.py",
        '        elif state is not None and isolation_level == "read_uncommitted":',
        "        elif state is not None:",
        "every committed reader pays for what was aborted",
        (READING + "open_and_aborted_rows_cost_a_committed_reader_no_request",),
    ),
    # --- altered topics -----------------------------------------------------------------------------------------------
    Mutant(
        "a column that refuses null is added",
        "txnlog/data/schema_evolution.py",
        "    if not field.nullable:\n",
        "    if not field.name:\n",
        "every older row is damage from then on",
        (EVOLUTION + "a_refusal_names_the_column_and_the_rule",),
    ),
    Mutant(
        "null below null is written as it is",
        "txnlog/data/segment_file.py",
        "    table = storable(table)\n",
        "",
        "a commit without a column, or a merge of older files, fails where the column requires a field",
        (
            HIDDEN_NULLS + "null_of_any_type_can_be_written",
            ALTER_TOPIC + "rows_without_a_new_struct_that_requires_a_field_are_committed_and_merged",
        ),
    ),
    Mutant(
        "a long becomes a double",
        "txnlog/data/schema_evolution.py",
        '_EXACT_AS_DOUBLE: Final = frozenset({"byte", "short", "integer", "float"})',
        '_EXACT_AS_DOUBLE: Final = frozenset({"byte", "short", "integer", "long", "float"})',
        "rows that are there cannot be read, or are read as others",
        (EVOLUTION + "a_simple_type_widens_to_those_that_have_all_its_values_and_to_no_other",),
    ),
    Mutant(
        "Arrow's own types count more than Parquet's",
        "txnlog/data/segment_columns.py",
        "            metadata=_own_types(buffer),\n",
        "",
        "a whole file is damage for a note in its footer",
        (COLUMNS + "the_types_are_those_of_parquet_whatever_arrow_left_in_the_footer",),
    ),
    Mutant(
        "a file with nested columns is decoded at once",
        "txnlog/data/segment_columns.py",
        "if file.num_row_groups > 1 and any(",
        "if file.num_row_groups < 1 and any(",
        "a merged file with 2 GiB of a nested text cannot be read any more",
        (COLUMNS + "a_file_with_nested_columns_is_decoded_a_row_group_at_a_time",),
    ),
    Mutant(
        "of a field that is there twice one is read",
        "txnlog/data/segment_columns.py",
        "names.count(field.name) == 1 and",
        "names.count(field.name) > 0 and",
        "which of two values is read depends on the reader",
        (COLUMNS + "a_field_that_a_struct_has_twice_is_damage_where_the_schema_has_it",),
    ),
    Mutant(
        "unsigned integers widen",
        "txnlog/data/segment_columns.py",
        "if is_.is_signed_integer(stored):",
        "if is_.is_integer(stored):",
        "files are read here that other readers refuse",
        (COLUMNS + "a_type_that_is_no_column_s_is_damage",),
    ),
    Mutant(
        "times without a zone are instants",
        "txnlog/data/segment_columns.py",
        'if next(physical, "") == "INT96" else kind',
        "if pa.types.is_timestamp(kind) else kind",
        "local times are read as if they were UTC",
        (COLUMNS + "a_type_that_is_no_column_s_is_damage",),
    ),
    Mutant(
        "a negative number is a transaction's",
        "txnlog/data/segment_columns.py",
        'table.column("_txn").to_numpy().min() < 0',
        'table.column("_txn").to_numpy().max() < 0',
        "rows have a TxnID that no transaction ever had",
        (COLUMNS + "a_negative_number_is_no_transactions",),
    ),
    # --- optimize -----------------------------------------------------------------------------------------------------
    Mutant(
        "merged rows have the version of their merge",
        "txnlog/data/segment_metadata.py",
        "found, by_segment, lambda segment: segment.version, lambda segment: segment.compacted, name",
        "found, by_segment, lambda segment: segment.version or segment.number, lambda _segment: False, name",
        "nobody can say any more by which commit a row came",
        (OPTIMIZE + "many_segments_become_one_and_every_version_shows_the_same_rows",),
    ),
)
