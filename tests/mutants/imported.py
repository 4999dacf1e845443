"""A pytest plugin for the runs of mutants: the code under test must be the copy that was mutated.

Anything else (an installed package, the working tree) would let every mutant survive, or be caught for nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

PACKAGES = ("txnlog", "catalog", "spark_ext", "tests")
WRONG_CODE = 97
"""Exit code of a run that imported other code, or never the mutated module."""


def strangers(root: Path) -> list[str]:
    """Modules of ours that were imported from elsewhere."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return [
        f"{name} from {file}"
        for name, file in files.items()
        if file and name.partition(".")[0] in PACKAGES and not Path(file).resolve().is_relative_to(root)
    ]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look at what was imported by the tests."""
    root = Path(os.environ["TXNLOG_MUTANT_ROOT"]).resolve()
    wrong = strangers(root)
    for file in filter(None, os.environ["TXNLOG_MUTANT_FILE"].split(",")):
        path = str(root / file)
        if not any(getattr(module, "__file__", None) == path for module in list(sys.modules.values())):
            wrong.append(f"{file} was never imported")
    if wrong:
        pytest.exit("not the code under test: " + "; ".join(wrong), WRONG_CODE)
