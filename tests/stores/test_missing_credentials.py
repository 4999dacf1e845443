"""Files of this machine from which a store's library takes credentials: what is wrong with one is no answer of a store.

A token that is being replaced, a program that is being installed: Python has the same exceptions for them as for an
object that is not there, or that nobody may read.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import txnlog
from tests.stores.recorder import Answer, Recorder, recording_server
from txnlog.errors import AccessDenied, Durable, StoreError
from txnlog.store import Created, FsspecStore, ObjectNotFound, Store, fsspec_errors, open_store
from txnlog.store.fsspec_store import Backend
from txnlog.store.identity import make_identity

KEY = "_log/0000000000/00000000000000000001.json"
TOKEN = "/var/run/secrets/serviceaccount/token"
CALLS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get(KEY),
    "get_range": lambda store: store.get_range(KEY, 0, 1),
    "info": lambda store: store.info(KEY),
    "list": lambda store: list(store.list("_log/")),
    "delete": lambda store: store.delete(KEY),
    "put": lambda store: store.put(KEY, b"x"),
}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A service, and nothing in the environment that gives credentials for it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with recording_server() as running:
        yield running


def _open(recorder: Recorder) -> Store:
    return open_store(
        "s3://bucket/lake", {"client_kwargs": {"endpoint_url": recorder.endpoint, "region_name": "eu-west-1"}}
    )


def _by_token(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/x")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)


def _by_program(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """A program that gives credentials, which are renewed before each request."""
    program = folder / "credentials"
    until = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=120)).strftime("%Y-%m-%dT%H:%M:%SZ")
    given = {"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "S", "SessionToken": "T", "Expiration": until}
    program.write_text(f"#!/bin/sh\necho '{json.dumps(given)}'\n")
    program.chmod(0o755)
    (folder / "config").write_text(f"[default]\ncredential_process = {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    return program


@pytest.mark.parametrize("call", CALLS)
def test_without_its_token_a_call_is_an_error_and_no_absence(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    _by_token(monkeypatch, TOKEN)
    with pytest.raises(StoreError, match="this file of the machine") as caught:
        CALLS[call](_open(recorder))
    assert not isinstance(caught.value, ObjectNotFound | AccessDenied)
    assert not recorder.requests


def test_without_its_program_a_read_is_an_error_and_no_absence(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _by_program(monkeypatch, tmp_path).unlink()
    with pytest.raises(StoreError, match="this file of the machine"):
        _open(recorder).get(KEY)


def test_a_404_of_the_service_that_gives_credentials_is_an_error_and_no_absence(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("token")
    _by_token(monkeypatch, str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", recorder.endpoint)
    body = b"<ErrorResponse><Error><Code>404</Code><Message>no such page</Message></Error></ErrorResponse>"
    recorder.answers = [Answer(404, body, {"Content-Type": "text/xml"})]
    with pytest.raises(StoreError, match=r"404.*check the role, the token and the service"):
        _open(recorder).get(KEY)
    assert {request.method for request in recorder.requests} == {"POST"}


def test_a_create_that_was_sent_before_its_credentials_were_gone_is_unknown(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """NOTHING: s3fs repeats a PUT whose answer was lost, and cannot sign it again."""
    program = _by_program(monkeypatch, tmp_path)
    recorder.answers = [Answer(0)]
    note = recorder.note

    def lost(request: Any) -> Answer:
        program.unlink(missing_ok=True)
        return note(request)

    monkeypatch.setattr(recorder, "note", lost)
    assert _open(recorder).create(KEY, b"bytes") is Created.UNKNOWN
    assert {request.method for request in recorder.requests} == {"PUT"}


class Service:
    """A file system in memory, whose token is missing, or not to be read, for a while."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.error = 0

    def _check(self) -> None:
        if self.error:
            raise OSError(self.error, os.strerror(self.error), TOKEN)

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        self._check()
        if mode == "create" and path in self.objects:
            raise FileExistsError(path)
        self.objects[path] = data

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        self._check()
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path][start:end]

    def info(self, path: str) -> dict[str, object]:
        return {"type": "file", "size": len(self.cat_file(path)), "mtime": 1.5}

    def find(self, base: str, prefix: str = "", detail: bool = True) -> dict[str, dict[str, object]]:
        self._check()
        return {path: self.info(path) for path in list(self.objects) if path.startswith(f"{base}/{prefix}")}

    def rm_file(self, path: str) -> None:
        self._check()
        del self.objects[path]


def _store_of(service: Service) -> FsspecStore:
    return FsspecStore(Backend(lambda: service, "bucket/lake", "s3://bucket/lake", make_identity("s3", "", "bucket")))


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES])
@pytest.mark.parametrize("call", CALLS)
def test_a_token_that_cannot_be_read_is_no_answer_about_an_object(call: str, number: int) -> None:
    service = Service()
    store = _store_of(service)
    service.error = number
    with pytest.raises(StoreError, match="this file of the machine") as caught:
        CALLS[call](store)
    assert not isinstance(caught.value, ObjectNotFound | AccessDenied)
    assert store.create(KEY, b"x") is Created.UNKNOWN
    assert caught.value.durable is (Durable.MAYBE if call in {"put", "delete"} else Durable.NOTHING)


def test_a_snapshot_without_a_token_is_an_error_and_no_older_version() -> None:
    service = Service()
    with txnlog.open("s3://bucket/lake", namespace="a", create=True, store=_store_of(service)) as ns:
        ns.snapshot()
        service.error = errno.ENOENT
        with pytest.raises(StoreError, match="this file of the machine"):
            ns.snapshot()
        service.error = 0


@pytest.mark.parametrize(
    ("error", "absent"),
    [
        (FileNotFoundError("bucket/lake/key"), True),
        (FileNotFoundError("/bucket/lake/key"), True),
        (FileNotFoundError(2, "No such file or directory", "bucket/lake/key"), True),
        (FileNotFoundError("https://storage.googleapis.com/storage/v1/b/bucket/o/lake%2Fkey?alt=media"), True),
        (FileNotFoundError("https://storage.googleapis.com/upload/storage/v1/b/bucket/o"), False),
        (FileNotFoundError(2, "No such file or directory", "/var/lake/key"), False),
        (FileNotFoundError(2, "No such container", "bucket"), False),
        (FileNotFoundError("no credentials"), False),
        (FileNotFoundError(), False),
        (PermissionError("bucket/lake/key"), False),
    ],
)
def test_an_absence_is_proven_by_the_name_of_what_was_asked_for(error: OSError, absent: bool) -> None:
    assert fsspec_errors.is_absent(error, "bucket/lake/key") is absent
