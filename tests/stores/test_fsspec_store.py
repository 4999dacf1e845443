"""What goes over the wire to S3, Azure and GCS, what each answer is taken for, and what no message repeats."""

from __future__ import annotations

import base64
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stores.recorder import Answer, Recorder, recording_server
from tools.servers import S3Server, free_port
from txnlog.errors import AccessDenied, Durable, StoreError
from txnlog.store import Created, FsspecStore, Store, fsspec_errors, identity_of, open_store
from txnlog.store.fsspec_store import MAX_CREATE_BYTES, Backend
from txnlog.store.identity import make_identity

SECRETS = ("AKIAQ3EGTXNLOGSECRET", "wJalrXUtnFEMI-K7MDENG-bPxRfiCYSECRETKEY", "FwoGZXIvYXdzSESSIONTOKEN")
ACCOUNT_KEY = base64.b64encode(b"azure-account-key-of-no-value-32").decode()
KEY = "_log/0000000000/00000000000000000001.json"


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """A server that answers what the test wants."""
    with recording_server() as running:
        yield running


def s3_options(endpoint: str, **config: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"key": SECRETS[0], "secret": SECRETS[1], "token": SECRETS[2]}
    options["client_kwargs"] = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    if config:
        options["config_kwargs"] = config
    return options


def open_s3(recorder: Recorder) -> Store:
    quick = {"retries": {"mode": "standard", "total_max_attempts": 2}, "read_timeout": 0.5}
    return open_store("s3://bucket/lake", s3_options(recorder.endpoint, **quick))


def open_azure(recorder: Recorder) -> Store:
    endpoint = f"BlobEndpoint={recorder.endpoint}/account;"
    connection = f"DefaultEndpointsProtocol=http;AccountName=account;AccountKey={ACCOUNT_KEY};{endpoint}"
    return open_store("az://bucket/lake", {"account_name": "account", "connection_string": connection})


def open_gcs(recorder: Recorder) -> Store:
    return open_store("gs://bucket/lake", {"token": "anon", "endpoint_url": recorder.endpoint})


OPENERS = {"s3": open_s3, "azure": open_azure, "gcs": open_gcs}
CREATED = {
    "s3": Answer(200, b"", {"ETag": '"x"'}),
    "azure": Answer(201, b"", {"ETag": '"x"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}),
    "gcs": Answer(200, b'{"name": "root/key", "bucket": "bucket", "generation": "1", "size": "5"}'),
}


@pytest.fixture(params=OPENERS)
def service(request: pytest.FixtureRequest) -> str:
    """Each service in turn."""
    return str(request.param)


def s3_error(status: int, code: str) -> Answer:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>said {SECRETS[1]}</Message></Error>"
    return Answer(status, body.encode(), {"x-ms-error-code": code, "Content-Type": "application/xml"})


# --- create ---------------------------------------------------------------------------------------------------------


@pytest.mark.some(2)
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("size", [0, 5, 8 << 20])
def test_the_condition_travels_with_the_bytes_in_one_request(service: str, recorder: Recorder, size: int) -> None:
    recorder.answers = [CREATED[service]]
    data = b"b" * size
    assert OPENERS[service](recorder).create(KEY, data) is Created.CREATED
    (request,) = recorder.requests
    if service == "gcs":
        assert "ifGenerationMatch=0" in request.target
        assert f'"lake/{KEY}"'.encode() in request.body
    else:
        assert request.method == "PUT"
        assert request.headers["if-none-match"] == "*"
        assert request.target.split("?")[0].endswith(f"/lake/{KEY}")
    assert data in request.body


def test_a_put_carries_no_condition(service: str, recorder: Recorder) -> None:
    recorder.answers = [CREATED[service]]
    OPENERS[service](recorder).put(KEY, b"bytes")
    (request,) = recorder.requests
    assert "if-none-match" not in request.headers
    assert "ifGenerationMatch" not in request.target


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("service", "answer"),
    [
        ("s3", s3_error(412, "PreconditionFailed")),
        ("s3", s3_error(409, "ConditionalRequestConflict")),
        ("s3", s3_error(400, "ExpiredToken")),
        ("s3", s3_error(403, "RequestTimeTooSkewed")),
        ("s3", s3_error(429, "TooManyRequests")),
        ("s3", s3_error(500, "InternalError")),
        ("s3", s3_error(503, "SlowDown")),
        ("s3", s3_error(501, "NotImplemented")),
        ("s3", Answer(0)),
        ("s3", Answer(200, b"<html>a captive portal</html>")),
        ("s3", Answer(302, b"", {"Location": "http://127.0.0.1:9/"})),
        ("azure", s3_error(409, "BlobAlreadyExists")),
        ("azure", s3_error(412, "ConditionNotMet")),
        ("azure", s3_error(409, "LeaseIdMissing")),
        ("azure", s3_error(500, "InternalError")),
        ("azure", s3_error(503, "ServerBusy")),
        ("azure", Answer(0)),
        ("gcs", Answer(412, b"{}")),
        ("gcs", Answer(409, b"{}")),
        ("gcs", Answer(403, b'{"error": {"message": "User rate limit exceeded"}}')),
    ],
)
def test_whatever_is_no_clear_answer_to_a_create_is_unknown(
    service: str, answer: Answer, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="gcsfs")
    recorder.answers = [answer]
    assert OPENERS[service](recorder).create(KEY, b"bytes") is Created.UNKNOWN


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("service", "answer"),
    [
        ("s3", s3_error(403, "AccessDenied")),
        ("s3", s3_error(403, "InvalidAccessKeyId")),
        ("s3", s3_error(403, "SignatureDoesNotMatch")),
        ("s3", s3_error(404, "NoSuchBucket")),
        ("s3", s3_error(405, "MethodNotAllowed")),
        ("azure", s3_error(403, "AuthorizationFailure")),
        ("azure", s3_error(403, "AuthorizationPermissionMismatch")),
        ("azure", s3_error(404, "ContainerNotFound")),
        ("gcs", Answer(403, b'{"error": {"message": "no storage.objects.create access"}}')),
        ("gcs", Answer(404, b'{"error": {"message": "The specified bucket does not exist."}}')),
    ],
)
def test_a_lasting_refusal_of_a_create_is_an_error_that_says_nothing_was_stored(
    service: str, answer: Answer, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="gcsfs")
    recorder.answers = [answer]
    with pytest.raises(StoreError) as caught:
        OPENERS[service](recorder).create(KEY, b"bytes")
    assert caught.value.durable is Durable.NOTHING
    assert caught.value.advice != StoreError._default_advice


def test_a_refusal_after_a_repeated_request_is_unknown_since_the_first_may_be_stored(recorder: Recorder) -> None:
    recorder.answers = [s3_error(500, "InternalError"), s3_error(403, "AccessDenied")]
    assert open_s3(recorder).create(KEY, b"bytes") is Created.UNKNOWN
    assert len(recorder.requests) == 2


def test_repeated_requests_carry_identical_bytes_and_the_condition(recorder: Recorder) -> None:
    recorder.answers = [Answer(0), s3_error(412, "PreconditionFailed")]
    assert open_s3(recorder).create(KEY, b"bytes") is Created.UNKNOWN
    assert {(request.body, request.headers["if-none-match"]) for request in recorder.requests} == {(b"bytes", "*")}


def test_azures_library_does_not_repeat_a_create_by_itself(recorder: Recorder) -> None:
    recorder.answers = [s3_error(500, "InternalError")]
    assert open_azure(recorder).create(KEY, b"bytes") is Created.UNKNOWN
    assert len(recorder.requests) == 1


def test_a_create_without_an_answer_ends_in_finite_time(recorder: Recorder) -> None:
    recorder.answers = [Answer(200, b"", delay_s=2)]
    assert open_s3(recorder).create(KEY, b"bytes") is Created.UNKNOWN
    assert len(recorder.requests) >= 2


def test_a_create_at_an_endpoint_that_is_gone_is_unknown_and_a_read_there_an_error() -> None:
    quick = {"retries": {"mode": "standard", "total_max_attempts": 1}}
    store = open_store("s3://bucket/lake", s3_options(f"http://127.0.0.1:{free_port()}", **quick))
    assert store.create(KEY, b"bytes") is Created.UNKNOWN
    with pytest.raises(StoreError, match="EndpointConnectionError"):
        store.get(KEY)


def test_a_create_too_large_for_one_request_is_refused_unsent(recorder: Recorder) -> None:
    with pytest.raises(StoreError, match="one conditional request") as caught:
        open_s3(recorder).create(KEY, bytes(MAX_CREATE_BYTES + 1))
    assert caught.value.durable is Durable.NOTHING
    assert recorder.requests == []


# --- everything else ------------------------------------------------------------------------------------------------


def test_a_get_is_one_request(recorder: Recorder) -> None:
    recorder.answers = [Answer(200, b"bytes", {"ETag": '"x"'})]
    assert open_s3(recorder).get(KEY) == b"bytes"
    assert [request.method for request in recorder.requests] == ["GET"]


@pytest.mark.parametrize(
    "first",
    [s3_error(503, "SlowDown"), Answer(0), Answer(200, b"byt", cut=True)],
    ids=["busy", "dropped", "broken off"],
)
def test_a_read_that_failed_for_the_moment_is_asked_again(recorder: Recorder, first: Answer) -> None:
    recorder.answers = [first, Answer(200, b"bytes", {"ETag": '"x"'})]
    assert open_s3(recorder).get(KEY) == b"bytes"


def test_a_body_that_keeps_breaking_off_is_an_error_and_never_half_an_object(recorder: Recorder) -> None:
    recorder.answers = [Answer(200, b"byt", cut=True)]
    with pytest.raises(StoreError):
        open_s3(recorder).get(KEY)
    assert 2 <= len(recorder.requests) <= 6


@pytest.mark.parametrize("call", ["get", "info", "list", "delete", "get_range"])
def test_a_missing_bucket_is_an_error_and_no_empty_store(s3: S3Server, call: str) -> None:
    store = open_store("s3://no-such-bucket/lake", s3.storage_options)
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: store.get(KEY),
        "get_range": lambda: store.get_range(KEY, 0, 1),
        "info": lambda: store.info(KEY),
        "list": lambda: list(store.list("")),
        "delete": lambda: store.delete(KEY),
    }
    with pytest.raises(StoreError, match="NoSuchBucket") as caught:
        calls[call]()
    assert "create the bucket" in caught.value.advice


@pytest.mark.parametrize("call", ["get", "info", "list", "put"])
def test_a_denied_call_is_an_error_and_no_absence(recorder: Recorder, call: str) -> None:
    recorder.answers = [s3_error(403, "AccessDenied")]
    store = open_s3(recorder)
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: store.get(KEY),
        "info": lambda: store.info(KEY),
        "list": lambda: list(store.list("")),
        "put": lambda: store.put(KEY, b"x"),
    }
    with pytest.raises(AccessDenied, match=r"docs/operations/access\.md") as caught:
        calls[call]()
    assert caught.value.durable is Durable.NOTHING
    assert caught.value.right == {"put": "write", "list": "list"}.get(call, "read")
    assert caught.value.url == store.url(KEY)[: None if call != "list" else -len(KEY)]


def test_a_put_that_was_not_answered_may_be_durable(recorder: Recorder) -> None:
    recorder.answers = [s3_error(500, "InternalError")]
    with pytest.raises(StoreError) as caught:
        open_s3(recorder).put(KEY, b"x")
    assert caught.value.durable is Durable.MAYBE


def test_an_unsorted_listing_with_strangers_in_it_comes_out_sorted_and_clean(recorder: Recorder) -> None:
    def contents(key: str) -> str:
        stamp = "2026-01-01T00:00:00.000Z"
        return f"<Contents><Key>{key}</Key><LastModified>{stamp}</LastModified><Size>1</Size><ETag>x</ETag></Contents>"

    names = ["root/b/2", "root/b/10", "root/a b", "root/b/", "root/b/x?y", "root/b/1", "root/bb/1", "rooted/b/7"]
    body = "<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>"
    recorder.answers = [Answer(200, (body + "".join(map(contents, names)) + "</ListBucketResult>").encode())]
    store = open_s3(recorder)
    assert [info.key for info in store.list("b/")] == ["b/1", "b/10", "b/2"]
    assert [info.key for info in store.list("b")] == ["b/1", "b/10", "b/2", "bb/1"]


# --- nothing secret -------------------------------------------------------------------------------------------------


def everything_said(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    pickled = pickle.dumps(error).decode("latin-1")
    return "".join(traceback.format_exception(error)) + repr(error) + pickled + caplog.text


def test_no_error_and_no_repr_repeats_what_was_in_the_options(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = open_s3(recorder)
    said = repr(store) + repr(identity_of(store)) + store.url(KEY)
    for answer in (s3_error(403, "AccessDenied"), s3_error(403, SECRETS[0]), s3_error(400, "InvalidToken")):
        recorder.answers = [answer]
        for call in (store.get, store.info, lambda key: store.put(key, b""), lambda key: store.create(key, b"")):
            try:
                call(KEY)
            except StoreError as error:
                said += everything_said(error, caplog)
    assert "AccessDenied" in said
    for secret in (*SECRETS, recorder.endpoint):
        assert secret not in said


def test_the_description_of_a_backend_keeps_its_secrets_to_itself(recorder: Recorder) -> None:
    store = open_azure(recorder)
    assert isinstance(store, FsspecStore)
    assert ACCOUNT_KEY not in repr(vars(store))


@pytest.mark.parametrize(
    "text",
    [
        "GET https://b.s3.amazonaws.com/k?X-Amz-Signature=SECRET&X-Amz-Credential=SECRET failed",
        "https://account.blob.core.windows.net/c/k?sv=2024&sig=SECRET%3D",
        "connect to https://user:SECRET@host:9000/bucket",
        "AccountName=a;AccountKey=SECRET==;EndpointSuffix=core.windows.net",
        "Authorization: Bearer SECRET",
        "the key AKIASECRETSECRET1234 does not exist",
        "line one\nX-Amz-Security-Token=SECRET\nline three",
        "token SECRET in the middle",
    ],
)
def test_signed_urls_keys_and_tokens_are_cut_out_of_foreign_texts(text: str) -> None:
    scrubbed = fsspec_errors.scrub(text, {"token SECRET in"} if text.startswith("token") else ())
    assert "SECRET" not in scrubbed
    assert "\n" not in scrubbed
    assert len(fsspec_errors.scrub("x" * 10_000, ())) <= 300


def test_values_of_options_are_found_however_deep() -> None:
    options = {
        "a": {"b": ["secret-1", {"c": b"secret-2"}]},
        "d": ("secret-3",),
        "e": 7,
        "f": True,
        "g": "eu",
        "h": None,
    }
    assert fsspec_errors.option_values(options) == {"secret-1", "secret-2", "secret-3"}


# --- file systems that are not known --------------------------------------------------------------------------------


def test_an_object_without_a_modification_time_is_an_error() -> None:
    class Timeless:
        def info(self, path: str) -> dict[str, object]:
            return {"type": "file", "size": 1}

    store = FsspecStore(Backend(Timeless, "r", "x://r", make_identity("fsspec/x", "", "", sends_condition=False)))
    with pytest.raises(StoreError, match="modification time"):
        store.info("a")


def test_a_listing_is_sorted_and_filtered_whatever_the_file_system_lists() -> None:
    class Careless:
        def find(self, path: str, **options: object) -> dict[str, dict[str, object]]:
            names = ("b/2", "b/10", "b", "a/b/1", "b/1", "b//1", "b/x y")
            found = {f"r/{name}": {"type": "file", "size": 1, "mtime": 1.5} for name in names}
            return {**found, "r/b/folder": {"type": "directory", "size": 0, "mtime": 0.0}}

    identity = make_identity("fsspec/x", "", "", sends_condition=False)
    store = FsspecStore(Backend(Careless, "r", "x://r", identity))
    assert [(info.key, info.modified_ms) for info in store.list("b/")] == [("b/1", 1500), ("b/10", 1500), ("b/2", 1500)]


def test_a_file_system_that_cannot_be_opened_is_an_error_without_its_secrets() -> None:
    def fail() -> object:
        raise ValueError("cannot parse the key hunter2-secret")

    identity = make_identity("fsspec/x", "", "")
    store = FsspecStore(Backend(fail, "r", "x://r", identity, secrets=frozenset({"hunter2-secret"})))
    for call in (store.get, lambda key: store.create(key, b"")):
        with pytest.raises(StoreError, match=r"key \*\*\*") as caught:
            call("a")
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))
        assert caught.value.durable is Durable.NOTHING
