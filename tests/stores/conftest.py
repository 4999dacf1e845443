"""The stores under test, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.subjects import SUBJECTS, Subject
from tools.servers import S3Server, s3_server
from txnlog.store import Store

_FSYNC = os.fsync


@pytest.fixture(autouse=True)
def _real_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the way to the disk is what is tested."""
    monkeypatch.setattr(os, "fsync", _FSYNC)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server that honours create-if-absent."""
    with s3_server() as server:
        yield server


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    """Each store of the suite in turn, with an empty root."""
    # The server is started by the first test that needs it.
    return SUBJECTS[request.param](tmp_path, lambda: request.getfixturevalue("s3"))


@pytest.fixture
def store(subject: Subject) -> Store:
    """A handle on the subject."""
    return subject.store
