"""What all sessions of Spark in tests have: their surroundings, and a namespace on the local disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txnlog

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace


def set_surroundings() -> None:
    """Workers must be this Python, with our packages on their path; the machine's name need not resolve."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    repository = str(Path(__file__).parents[1])
    path = os.environ.get("PYTHONPATH", "")
    if repository not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{repository}{os.pathsep}{path}" if path else repository


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    """A fresh namespace ``sales`` in a root below the test's folder."""
    with txnlog.open(str(tmp_path / "lake"), namespace="sales", create=True) as opened:
        yield opened
