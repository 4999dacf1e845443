"""What the exceptions of s3fs, adlfs and gcsfs say, and a text of them that gives nothing away.

Each library translates its service's answers in its own way; the code of the answer is looked for along the chain of
causes. Nothing is imported: an exception is known by what it carries.

An answer has to be proven: by the service's code, or by the name of what was asked for. The libraries read files of
this machine as well (a token, a program that gives credentials), and what is wrong with one of these says nothing of
any object: Python has the same exceptions for both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

_CHAIN_LIMIT: Final = 8
_TEXT_LIMIT: Final = 300
_SECRET_CHARACTERS: Final = 3
"""Shorter values of options ("1", "eu") would blot out text at random and protect nothing."""

_REFUSED: Final = frozenset(
    {
        # S3 (Error codes in its API reference); ExpiredToken and RequestTimeTooSkewed are missing on purpose: they
        # pass.
        *("AccessDenied", "AllAccessDisabled", "AccountProblem", "InvalidAccessKeyId", "SignatureDoesNotMatch"),
        *("NoSuchBucket", "InvalidBucketName", "MethodNotAllowed", "PermanentRedirect", "EntityTooLarge"),
        *("KeyTooLongError", "NotSignedUp", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"),
        # Azure (Blob service error codes)
        *("AuthorizationFailure", "AuthorizationPermissionMismatch", "AuthenticationFailed", "ContainerNotFound"),
        *("InsufficientAccountPermissions", "AccountIsDisabled", "ContainerDisabled", "InvalidResourceName"),
        *("AuthorizationProtocolMismatch", "AuthorizationServiceMismatch", "AuthorizationSourceIPMismatch"),
    }
)
"""Codes of answers that stored nothing and stay the same until somebody changes rights, names or keys."""

_DENIED: Final = frozenset(
    {"AccessDenied", "403", "Forbidden", "AuthorizationPermissionMismatch", "InsufficientAccountPermissions"}
)
"""The answers to credentials that lack a right; S3 also gives them for absent objects in what may not be listed."""

_NEVER_SENT: Final = frozenset({"NoCredentialsError", "PartialCredentialsError", "ParamValidationError"})
"""Exceptions of botocore from before the first byte went out."""

_CONTAINER_MISSING: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})

_NOT_FOUND: Final = 404

_RATE_LIMIT: Final = re.compile(r"rate.?limit", re.IGNORECASE)

_BROKEN_BODY: Final = frozenset(
    {"ClientPayloadError", "IncompleteReadError", "IncompleteRead", "ResponseStreamingError"}
)
"""An answer that began and broke off, which botocore's own retries do not cover."""


def is_refused(error: BaseException, path: str) -> bool:
    """Whether a conditional write certainly stored nothing and would be answered the same way again.

    The answer to a repeated request says nothing of the first, which may have been stored; botocore counts how often it
    asked. Nor does what went wrong before the repeated one was sent.
    """
    for link in _answer(error, path):
        if type(link).__name__ in _NEVER_SENT:
            return True
        if _code(link) in _REFUSED:
            return _retries(link) == 0
        # gcsfs makes an OSError of a 403 ("Forbidden: …"), of a rate limit too, and a FileNotFoundError of a missing
        # bucket.
        if str(link).startswith("Forbidden:"):
            return _RATE_LIMIT.search(str(link)) is None
    return isinstance(error, FileNotFoundError) and (_names(error, path) or _names_bucket(error, path))


def is_denied(error: BaseException, path: str) -> bool:
    """Whether the service knows these credentials, and refuses what they have no right to."""
    codes = {code for link in _answer(error, path) if (code := _code(link))}
    if codes:
        return not codes.isdisjoint(_DENIED)
    if str(error).startswith("Forbidden:"):
        return _RATE_LIMIT.search(str(error)) is None
    return isinstance(error, PermissionError) and _names(error, path)


def is_conflict(error: BaseException) -> bool:
    """Whether the answer to a conditional write is the everyday one: the name exists, or somebody is creating it."""
    return isinstance(error, FileExistsError) or any(
        _code(link) in {"PreconditionFailed", "ConditionalRequestConflict", "412"} for link in _chain(error)
    )


def is_absent(error: BaseException, path: str) -> bool:
    """Whether the answer to a read is: no such object. A missing bucket or container is not.

    s3fs raises it from the service's 404; the others name the path, or the address, that they asked for.
    """
    if not isinstance(error, FileNotFoundError):
        return False
    links = list(_answer(error, path))
    if any(_code(link) in _CONTAINER_MISSING for link in links):
        return False
    return _names(error, path) or any(_status(link) == _NOT_FOUND for link in links)


def is_empty_range(error: BaseException) -> bool:
    """Whether a ranged read began behind the end of the object (416)."""
    return any(_code(link) in {"InvalidRange", "416"} or _status(link) == 416 for link in _chain(error))


def is_broken_body(error: BaseException) -> bool:
    """Whether a read may simply be asked again: the answer broke off in the middle."""
    return any(type(link).__name__ in _BROKEN_BODY for link in _chain(error))


def advice_for(error: BaseException, path: str) -> str | None:
    """What to do about it, where that is known."""
    if _is_of_this_machine(error, path):
        return "see to this file of the machine, from which the library takes its credentials or its configuration"
    links = list(_chain(error))
    codes = {_code(link) for link in links}
    if codes & {"ExpiredToken", "RequestTimeTooSkewed", "TokenRefreshRequired"}:
        return "renew the credentials (and check this machine's clock)"
    if any(_is_of_credentials(link) for link in links):
        return "check the role, the token and the service from which the library takes its credentials"
    if codes & _CONTAINER_MISSING or isinstance(error, FileNotFoundError):
        return "create the bucket or container, or correct the URL"
    if isinstance(error, PermissionError) or codes & _REFUSED or str(error).startswith("Forbidden:"):
        return "check these credentials and their rights: docs/operations/access.md has those of each role"
    if any(type(link).__name__ in _NEVER_SENT for link in links):
        return "pass credentials in storage_options or by the environment"
    if isinstance(error, TypeError):  # how the libraries refuse an argument that they do not know
        return "check the names in storage_options: they are fsspec's for this store"
    return None


def describe(error: BaseException, secrets: Iterable[str]) -> str:
    """Kind, code and text of an exception, without the values of storage options, signatures and queries of URLs."""
    codes = [code for link in _chain(error) if (code := _code(link))]
    code = f" {codes[0]}" if codes else ""
    return scrub(f"{type(error).__name__}{code}: {error}", secrets)


def scrub(text: str, secrets: Iterable[str]) -> str:
    """``text`` on one line, cut short, without anything secret."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())[:_TEXT_LIMIT]


def option_values(options: Mapping[str, Any]) -> frozenset[str]:
    """Every text inside storage options, however deep: none of them may show up in a message."""
    return frozenset(text for text in _texts(options) if len(text) >= _SECRET_CHARACTERS)


_PATTERNS: Final = (
    # The query of a signed URL, user:password@ in one, key ids of AWS, fields of an Azure connection string, bearers.
    (re.compile(r"\?[^\s\"'<>)]+"), "?***"),
    (re.compile(r"://[^\s/@\"'<>]+@"), "://***@"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), "***"),
    (
        re.compile(r"\b(AccountKey|SharedAccessSignature|sig|Signature|X-Amz-[A-Za-z-]+)=[^\s;&\"'<>]+", re.IGNORECASE),
        r"\1=***",
    ),
    (re.compile(r"\bBearer\s+\S+", re.IGNORECASE), "Bearer ***"),
)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for below in value.values():
            yield from _texts(below)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for below in value:
            yield from _texts(below)


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(_CHAIN_LIMIT):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _answer(error: BaseException, path: str) -> Iterator[BaseException]:
    """The links of an error that may be the service's answer to a request for ``path``."""
    if not _is_of_this_machine(error, path):
        yield from (link for link in _chain(error) if not _is_of_credentials(link))


def _is_of_this_machine(error: BaseException, path: str) -> bool:
    """Whether it is the kernel's answer about a file, which is neither what was asked for nor its bucket."""
    filename = getattr(error, "filename", None)
    return filename is not None and filename not in {path, _bucket(path)}


def _is_of_credentials(link: BaseException) -> bool:
    """Whether a service that gives credentials answered so, and not the store: botocore says what it was asked for."""
    operation = getattr(link, "operation_name", None)
    return isinstance(operation, str) and "Object" not in operation and "Bucket" not in operation


def _names(error: BaseException, path: str) -> bool:
    """Whether an exception names what was asked for: by its path, or its address, where gcsfs quotes the key."""
    if (filename := getattr(error, "filename", None)) is not None:
        return bool(filename == path)
    key = path.strip("/").partition("/")[2]
    texts = [unquote(text.partition("?")[0]) for text in error.args if isinstance(text, str)]
    return any(text.strip("/") == path.strip("/") or (bool(key) and text.endswith(f"/o/{key}")) for text in texts)


def _names_bucket(error: BaseException, path: str) -> bool:
    """Whether it names the bucket in which ``path`` is to be, as gcsfs does by the address of an upload."""
    return any(isinstance(text, str) and f"/b/{_bucket(path)}/o" in text for text in error.args)


def _bucket(path: str) -> str:
    return path.strip("/").partition("/")[0]


def _code(error: BaseException) -> str | None:
    """The service's code: S3 keeps it in ``response``, Azure in ``error_code``."""
    code = _of_response(error, "Error", "Code") or getattr(error, "error_code", None)
    return str(getattr(code, "value", code)) if code else None


def _status(error: BaseException) -> int | None:
    status = _of_response(error, "ResponseMetadata", "HTTPStatusCode") or getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _retries(error: BaseException) -> int:
    retries = _of_response(error, "ResponseMetadata", "RetryAttempts")
    return retries if isinstance(retries, int) else 0


def _of_response(error: BaseException, part: str, field: str) -> object:
    response = getattr(error, "response", None)
    inner = response.get(part) if isinstance(response, dict) else None
    return inner.get(field) if isinstance(inner, dict) else None


__all__ = [
    "advice_for",
    "describe",
    "is_absent",
    "is_broken_body",
    "is_conflict",
    "is_denied",
    "is_empty_range",
    "is_refused",
    "option_values",
    "scrub",
]
