"""Bugs planted in txnlog/store: object stores."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import MISSING_CREDENTIALS, RAISING_HANDLERS, TIME_LIMITS

MUTANTS: Final = (
    Mutant(
        "one service that does not answer holds up all others",
        "txnlog/engine/main_thread.py",
        "        found = _by_service.setdefault(service, ",
        '        found = _by_service.setdefault("all", ',
        "a monitor of two regions sees none when one of them is away",
        (
            "tests/client/namespaces/test_limits_of_time.py::test_calls_that_a_time_limit_ended_hold_up_no_other_namespace",
        ),
    ),
    # --- appending --------------------------------------------------------------------------------------------------
    Mutant(
        "exists taken for created",
        "txnlog/store/local.py",
        "                self._refuse_if_no_file(key, folder, name)\n                return Created.UNKNOWN\n",
        "                self._refuse_if_no_file(key, folder, name)\n                return Created.CREATED\n",
        "two clients both own one version of the log",
        ("tests/stores/test_conformance.py::test_a_second_create_is_unknown_and_changes_nothing[local]",),
    ),
    Mutant(
        "a missing token taken for an absent object",
        "txnlog/store/fsspec_errors.py",
        "    return _names(error, path) or any(_status(link) == _NOT_FOUND for link in links)\n",
        "    return True\n",
        "while the credentials are renewed, snapshots are old ones and consumers receive nothing",
        (MISSING_CREDENTIALS + "a_404_of_the_service_that_gives_credentials_is_an_error_and_no_absence",),
    ),
    Mutant(
        "what was sent before the credentials were gone counts as refused",
        "txnlog/store/fsspec_errors.py",
        " and (_names(error, path) or _names_bucket(error, path))",
        "",
        "a commit that is in the log is done again",
        (MISSING_CREDENTIALS + "a_create_that_was_sent_before_its_credentials_were_gone_is_unknown",),
    ),
    Mutant(
        "the main thread makes its requests itself",
        "txnlog/engine/main_thread.py",
        "if threading.current_thread() is not threading.main_thread() or program_has_ended():",
        "if True:",
        "a time limit is an fsync that failed, and the handle refuses every write",
        (
            RAISING_HANDLERS + "what_a_handler_raises_is_no_answer_of_the_disk",
            RAISING_HANDLERS + "what_a_handler_raises_is_no_answer_of_a_service",
            TIME_LIMITS + "it_reaches_the_caller_and_the_handle_can_still_write",
        ),
    ),
    Mutant(
        "what a handler raises in a local read is an answer",
        "txnlog/store/local.py",
        "            if not posix.has_raised(error):",
        "            if False:",
        "a time limit that is over is an object that is not there",
        (RAISING_HANDLERS + "what_a_handler_raises_is_no_answer_of_the_disk",),
    ),
)
