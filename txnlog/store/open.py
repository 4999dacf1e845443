"""From a URL to a store. The only place that knows which library speaks which protocol."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from txnlog.common.limits import PARALLEL_REQUESTS, REQUESTS_OF_MAIN_THREAD
from txnlog.common.validation import shortened
from txnlog.errors import InvalidInputError, UnsafeStore
from txnlog.store.base import Store
from txnlog.store.fsspec_errors import option_values
from txnlog.store.fsspec_store import Backend, FsspecStore
from txnlog.store.identity import make_identity
from txnlog.store.key_guard import is_key
from txnlog.store.local import LocalStore
from txnlog.store.memory import MemoryStore
from txnlog.store.wrappers import PrefixStore

Options = dict[str, Any]

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://)?", re.ASCII)
_TO_HADOOP: Final = {"s3": "s3a", "gcs": "gs"}
"""Schemes that Hadoop's file systems, by which Spark reads, know under another name."""

_FILE: Final = re.compile(r"(?:file|local):(?://(?:localhost)?)?(/(?:[^/].*)?)", re.ASCII | re.DOTALL | re.IGNORECASE)


def open_store(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store at ``url``: a path, ``file:``, ``memory://``, ``s3://``, ``abfss://``, ``gs://``, any fsspec URL.

    Opens no connection and writes nothing. ``storage_options`` are fsspec's; they appear in no repr and no error.

    Raises:
        InvalidInputError: a URL that means nothing or several things, or a library that is not installed.
    """
    text = os.fspath(url)
    options = dict(storage_options or {})
    scheme = _scheme_of(text)
    if scheme in {"", "file", "local"}:
        return _open_local(text, scheme, options)
    _check_url(text, scheme)
    if scheme == "memory":
        return _open_memory(text, options)
    return FsspecStore(_backend(text, scheme, options))


def absolute(root: str) -> str:
    """A root as it is meant now, for whoever opens it again: the working directory and ``~`` may be others by then.

    A relative local path becomes the folder that ``open_store`` would use now; an absolute one and a URL stay as they
    are.

    Raises InvalidInputError for a URL that means nothing, as ``open_store`` does.
    """
    if not root or _scheme_of(root):
        return root
    path = os.path.expanduser(root)
    return path if os.path.isabs(path) else os.path.realpath(path)


def local_path_of(url: str, *, quoted: bool = True) -> str:
    """The path that a ``file:`` URL names, written with one slash, three, or ``localhost`` between them.

    Args:
        url: the URL.
        quoted: whether ``%20`` is a blank; where it is not, every character stands for itself.

    Raises:
        InvalidInputError: the URL names another machine or no absolute path, or, quoted, has a query or a fragment.
    """
    match = _FILE.fullmatch(url)
    if match is None:
        raise InvalidInputError("a file: URL names an absolute path of this machine", advice="write file:///path")
    if not quoted:
        return match[1]
    if "?" in match[1] or "#" in match[1]:
        raise InvalidInputError("a file: URL has no query and no fragment", advice="pass the plain path")
    return unquote(match[1])


def hadoop_url(url: str) -> str:
    """The address of an object or folder as Hadoop's file systems know it: ``s3a://``, ``file:///`` for local paths.

    Args:
        url: as a store gives it (``store.url(key)``): an absolute local path, or a URL.
    """
    if os.path.isabs(url):
        return f"file://{url}"
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    return f"{_TO_HADOOP.get(scheme, scheme)}://{rest}"


@dataclass(frozen=True, slots=True)
class _Service:
    """A service whose library is known to leave create-if-absent to it."""

    module: str
    class_name: str
    extra: str
    kind: str
    url_scheme: str | None
    defaults: Callable[[Options], Options]
    endpoint: Callable[[Options, str], str]
    create_options: Mapping[str, Any] = field(default_factory=dict)
    confirms: Callable[[object], bool] = lambda _answer: True
    read_options: Mapping[str, Any] = field(default_factory=dict)


def _s3_options(options: Options) -> Options:
    config = dict(options.get("config_kwargs") or {})
    # One layer of retries: botocore's, jittered, which says in its answers how often it asked. 3 x (5 + 15) s bound a
    # request.
    config.setdefault("retries", {"mode": "standard", "total_max_attempts": 3})
    config.setdefault("connect_timeout", 5)
    config.setdefault("read_timeout", 15)
    config.setdefault("max_pool_connections", PARALLEL_REQUESTS + REQUESTS_OF_MAIN_THREAD)
    return {**options, "config_kwargs": config}


def _s3_endpoint(options: Options, _url: str) -> str:
    client = options.get("client_kwargs") or {}
    named = options.get("endpoint_url") or client.get("endpoint_url")
    return str(named or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "")


def _has_etag(answer: object) -> bool:
    # S3 says it of every object; a proxy's or a captive portal's 200 has none, and s3fs would take it for success.
    return isinstance(answer, dict) and bool(answer.get("ETag"))


def _azure_options(options: Options) -> Options:
    return {"connection_timeout": 5, "read_timeout": 20, **options}


def _azure_endpoint(options: Options, url: str) -> str:
    host = urlsplit(url).netloc.rpartition("@")[2] if "@" in urlsplit(url).netloc else ""
    from_text = re.search(r"(?:AccountName|BlobEndpoint)=([^;?]+)", str(options.get("connection_string") or ""))
    account = options.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    return str(account or host.partition(".")[0] or (from_text[1] if from_text else ""))


def _gcs_endpoint(options: Options, _url: str) -> str:
    return str(options.get("endpoint_url") or "")


_S3: Final = _Service(
    module="s3fs",
    class_name="S3FileSystem",
    extra="s3",
    kind="s3/s3fs",
    url_scheme="s3",
    defaults=_s3_options,
    endpoint=_s3_endpoint,
    confirms=_has_etag,
    # Without it s3fs asks for the size first, a request more.
    read_options={"max_concurrency": 1},
)
_AZURE: Final = _Service(
    module="adlfs",
    class_name="AzureBlobFileSystem",
    extra="azure",
    kind="azure/adlfs",
    url_scheme=None,
    defaults=_azure_options,
    endpoint=_azure_endpoint,
    # Azure's library waits 15 s and more between its attempts: an append settles an unknown outcome sooner by itself.
    create_options={"retry_total": 0},
)
# The class of gcsfs.core by its name: the package's own may stand for one that writes to zonal buckets over gRPC, where
# the condition travels differently (GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT, on by default).
_GCS: Final = _Service(
    module="gcsfs.core",
    class_name="GCSFileSystem",
    extra="gcs",
    kind="gcs/gcsfs",
    url_scheme="gs",
    defaults=dict,
    endpoint=_gcs_endpoint,
)

_SERVICES: Final[Mapping[str, _Service]] = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("abfss", "abfs", "az"), _AZURE),
    **dict.fromkeys(("gs", "gcs"), _GCS),
}


_NOT_ATOMIC: Final = frozenset(
    {"hdfs", "webhdfs", "http", "https", "ftp", "sftp", "ssh", "smb", "git", "github", "hf", "zip", "tar"}
)
"""Schemes that fsspec knows and through which a second create of a name may replace the first one."""

_THAT_WORK: Final = f"use a local path, file:// or one of {', '.join(f'{scheme}://' for scheme in _SERVICES)}"


def _scheme_of(text: str) -> str:
    if "\0" in text:
        raise InvalidInputError("a root must not contain a NUL character")
    if "::" in text:
        raise InvalidInputError(
            "a chained URL (a::b) is no root: caches and archives in between break create-if-absent"
        )
    match = _SCHEME.match(text)
    if match is None:
        return ""
    scheme = match[1].lower()
    if scheme == "dbfs":  # Databricks writes it with one slash
        raise UnsafeStore(
            "dbfs: is a layer of Databricks over object storage without an atomic create-if-absent, by which txnlog "
            "decides who may commit",
            advice="name the bucket or container behind it, as s3://, abfss:// or gs://; docs/stores.md says more",
        )
    if not match[0].endswith("//") and scheme != "file":
        # "C:\data" and "s3:/bucket" would silently become folders of the working directory.
        way_out = f"write '{scheme}://bucket/path'" if scheme in _SERVICES else _THAT_WORK
        raise InvalidInputError(f"the root begins with {match[0]!r} but not with {match[0] + '//'!r}", advice=way_out)
    return scheme


def _check_url(text: str, scheme: str) -> None:
    parts = urlsplit(text)
    user = parts.netloc.rpartition("@")[0]
    # The URL itself is not repeated: what is wrong with it may be that it carries a password.
    if ":" in user or (user and scheme not in {"abfs", "abfss"}):
        raise InvalidInputError(f"the {scheme}:// URL carries credentials", advice="pass them in storage_options")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise InvalidInputError(f"the {scheme}:// URL has a query or a fragment", advice="name only bucket and path")
    if not parts.netloc:
        raise InvalidInputError(f"the {scheme}:// URL names no bucket", advice=f"write {scheme}://bucket/path")
    if any(part in {"", ".", ".."} for part in parts.path.strip("/").split("/")) and parts.path.strip("/"):
        raise InvalidInputError(f"the path of the {scheme}:// URL has an empty part, '.' or '..'")


def _open_local(text: str, scheme: str, options: Options) -> Store:
    if options:
        raise InvalidInputError("a local root takes no storage_options", advice="leave them out")
    if scheme:
        text = local_path_of(text)
    if not text:
        raise InvalidInputError("the root is empty", advice="pass ROOT/NAMESPACE, a path or a URL with both parts")
    path = os.path.expanduser(text)
    if os.path.isfile(path):
        raise InvalidInputError(f"the root {shortened(path)} is a file", advice="give a folder")
    return LocalStore(path)


def _open_memory(text: str, options: Options) -> Store:
    if options:
        raise InvalidInputError("a memory:// root takes no storage_options", advice="leave them out")
    parts = urlsplit(text)
    store = MemoryStore(parts.netloc)
    folder = parts.path.strip("/")
    if folder and not is_key(folder):
        raise InvalidInputError(f"{folder!r} is no folder of a memory:// root", advice="use letters, digits, _ . ~ = -")
    return PrefixStore(store, folder) if folder else store


def _backend(text: str, scheme: str, options: Options) -> Backend:
    service = _SERVICES.get(scheme)
    url = text.rstrip("/")
    secrets = option_values(options)
    if service is None:
        return _unknown_backend(url, scheme, options, secrets)
    filesystem_class = _load(service, scheme)
    if service.url_scheme is not None:
        url = f"{service.url_scheme}://{url.partition('://')[2]}"
    root = str(filesystem_class._strip_protocol(url)).rstrip("/")
    arguments = {**filesystem_class._get_kwargs_from_urls(url), **service.defaults(options)}
    identity = make_identity(service.kind, service.endpoint(options, url), root.partition("/")[0])
    return Backend(
        open_filesystem=lambda: _uncached(filesystem_class, arguments),
        root=root,
        url=url,
        identity=identity,
        create_options=dict(service.create_options),
        confirms=service.confirms,
        read_options=dict(service.read_options),
        secrets=secrets,
    )


def _load(service: _Service, scheme: str) -> Any:
    try:
        return getattr(importlib.import_module(service.module), service.class_name)
    except ImportError:
        raise InvalidInputError(
            f"{scheme}:// needs {service.module.partition('.')[0]}, which is not installed",
            advice=f"pip install txnlog[{service.extra}]",
        ) from None


def _unknown_backend(url: str, scheme: str, options: Options, secrets: frozenset[str]) -> Backend:
    if scheme in _NOT_ATOMIC:
        raise UnsafeStore(
            f"{scheme}:// has no atomic create-if-absent, by which txnlog decides who may commit",
            advice=f"{_THAT_WORK}; docs/stores.md says more",
        )
    from fsspec.registry import get_filesystem_class  # noqa: PLC0415 - needed for strange protocols only

    try:
        filesystem_class = get_filesystem_class(scheme)
    except ValueError:
        raise InvalidInputError(f"no file system is known for {scheme}://", advice=_THAT_WORK) from None
    except ImportError:
        raise InvalidInputError(f"the library for {scheme}:// is not installed", advice="install it") from None
    arguments = {**filesystem_class._get_kwargs_from_urls(url), **options}
    root = str(filesystem_class._strip_protocol(url)).rstrip("/")
    return Backend(
        open_filesystem=lambda: _uncached(filesystem_class, arguments),
        root=root,
        url=url,
        identity=make_identity(f"fsspec/{scheme}", "", root, sends_condition=False),
        secrets=secrets,
    )


def _uncached(filesystem_class: Any, arguments: Options) -> Any:
    """An instance of our own (shared ones may cache listings), whose own retries do not multiply botocore's."""
    filesystem = filesystem_class(**{**arguments, "use_listings_cache": False, "skip_instance_cache": True})
    if filesystem_class.__module__.startswith("s3fs"):
        filesystem.retries = 1
    return filesystem


__all__ = ["absolute", "hadoop_url", "local_path_of", "open_store"]
