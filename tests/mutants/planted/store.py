"""Bugs planted in txnlog/store: object stores."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

MUTANTS: Final = (
    # --- appending --------------------------------------------------------------------------------------------------
    Mutant(
        "exists taken for created",
        "txnlog/store/local.py",
        "                self._refuse_if_no_file(key, folder, name)\n                return Created.UNKNOWN\n",
        "                self._refuse_if_no_file(key, folder, name)\n                return Created.CREATED\n",
        "two clients both own one version of the log",
        ("tests/stores/test_conformance.py::test_a_second_create_is_unknown_and_changes_nothing[local]",),
    ),
)
