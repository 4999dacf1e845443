"""Bugs planted in txnlog/cli: the command line."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    COMMAND_LINE_ADMINISTRATION,
    COMMAND_LINE_ADVICE,
    COMMAND_LINE_PRODUCE,
    COMMAND_LINE_SUBSCRIPTIONS,
    COMMAND_LINE_TOPICS,
    DOCTOR,
    FRAME,
    LISTINGS,
    TOP,
)

MUTANTS: Final = (
    Mutant(
        "rows reach the terminal as they are",
        "txnlog/cli/output.py",
        "else printable(plain) if isinstance(plain, str) else",
        "else plain if isinstance(plain, str) else",
        "who may produce controls the terminal of whoever looks, and what he reads there",
        (LISTINGS + "nothing_that_others_wrote_controls_the_terminal",),
    ),
    Mutant(
        "Ctrl-C in a commit calls it aborted",
        "txnlog/cli/commands.py",
        "in notes_of(interrupt)]",
        "in ()]",
        "who reads it runs the command again, and its rows are there twice",
        (
            "tests/cli/test_interrupts.py::test_where_rows_may_be_there_all_the_same_the_command_names_their_transaction",
        ),
    ),
    Mutant(
        "doctor tries a full disk with no bytes",
        "txnlog/api/doctor/surroundings.py",
        "_PROBE: Final = bytes(4 << 10)",
        '_PROBE: Final = b""',
        "doctor says healthy where nothing can be written",
        ("tests/cli/test_doctor.py::test_a_disk_that_takes_nothing_is_a_finding",),
    ),
    # --- what is written, and by which command ----------------------------------------------------------------------
    Mutant(
        "rows of a file are looked at behind the beginning of their transaction",
        "txnlog/cli/produce.py",
        "        place(connection, topic_name, rows, partition, None, named=False)",
        "        _ = place",
        "a file that is refused has appended to the log",
        (COMMAND_LINE_PRODUCE + "bad_input_is_refused_before_anything_is_written",),
    ),
    Mutant(
        "a repeated run begins a transaction",
        "txnlog/cli/produce.py",
        "before = connection.committed_before(txn_app_id, txn_version)",
        "before = connection.committed_before(None, None)",
        "each repetition of a job appends to the log",
        (COMMAND_LINE_PRODUCE + "a_repeated_run_writes_nothing",),
    ),
    Mutant(
        "a seek opens its consumer before it looks at the position",
        "txnlog/cli/subscriptions.py",
        "        check_reachable(connection_of(ns), topic_name, wanted)",
        "        _ = check_reachable",
        "a mistyped offset stops the consumer that is at work",
        (COMMAND_LINE_SUBSCRIPTIONS + "what_cannot_be_a_position_fences_nobody",),
    ),
    Mutant(
        "messages that were deleted before count as not acknowledged again",
        "txnlog/cli/retention.py",
        "max(cursor.cursor, starts[cursor.partition])",
        "cursor.cursor",
        "an operator sees more lost than there was to lose",
        (COMMAND_LINE_TOPICS + "deleted_records_are_counted_by_the_subscriptions_that_had_not_acknowledged_them",),
    ),
    Mutant(
        "nobody names the checkpoint of the command",
        "txnlog/cli/maintenance.py",
        "        connection_of(ns).session.name_checkpoint(made)",
        "        _ = connection_of",
        "a checkpoint that is made by hand makes no opening quicker",
        (COMMAND_LINE_ADMINISTRATION + "a_checkpoint_of_a_command_is_found_by_those_who_open_the_namespace_later",),
    ),
    Mutant(
        "a doctor leaves what it tried the right to write with",
        "txnlog/api/doctor/surroundings.py",
        "        connection.store.delete(key)\n",
        "",
        "each look leaves an object in the namespace",
        (DOCTOR + "a_right_that_is_missing",),
    ),
    # --- top --------------------------------------------------------------------------------------------------------
    Mutant(
        "the smallest lag comes first",
        "txnlog/cli/top_frame.py",
        "key=lambda item: (-item.lag_messages, item.topic, item.name)",
        "key=lambda item: (item.lag_messages, item.topic, item.name)",
        "on a small screen whoever is far behind is not seen",
        (FRAME + "what_matters_most_is_shown_where_not_all_fits",),
    ),
    Mutant(
        "an error of the store ends the screen",
        "txnlog/cli/top.py",
        "            if and_raise:\n",
        "            if not and_raise:\n",
        "nobody sees when the store is back, and a pipe gets an old frame",
        (TOP + "a_store_that_fails_for_a_while_is_a_line_and_the_watching_goes_on",),
    ),
    Mutant(
        "entries behind a gap count for the last minute",
        "txnlog/cli/top_readings.py",
        "if known and known[0].version + 1 < found[-1].version:",
        "if known and known[0].version < 0:",
        "the busier a namespace is, the fewer commits are shown",
        (TOP + "where_more_entries_came_than_are_asked_for_those_before_are_forgotten",),
    ),
    # --- what handles say, and what lies in the way -----------------------------------------------------------------
    Mutant(
        "a call is shown as Python on the command line",
        "txnlog/cli/rendering.py",
        "if path is None or command is None or",
        "if path is not None or command is None or",
        "whoever types a command is told to call a function",
        (COMMAND_LINE_ADVICE + "errors_speak_of_the_command_line",),
    ),
)
