"""From a path to a namespace and its topic; the URLs of users and of Spark as txnlog writes them.

A path is ROOT/NAMESPACE/TOPIC or ROOT/NAMESPACE; which of them it is, the store says: a namespace is where a log is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from txnlog.common.validation import shortened, type_of
from txnlog.errors import InvalidInputError, NamespaceNotFound, TxnLogError
from txnlog.format.keys import entry_key
from txnlog.store.base import ObjectNotFound
from txnlog.store.open import local_path_of, open_store
from txnlog.store.wrappers import PrefixStore

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_TO_OURS: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


@dataclass(frozen=True, slots=True)
class Location:
    """A namespace of a root, and the topic that the path named."""

    root: str
    namespace: str
    topic: str | None = None


_PATH: Final = "path is"
_CHECKPOINT: Final = "checkpoint is the location of the query's checkpoint,"


def _text(path: object, what: str = _PATH) -> str:
    """A path as text. Raises InvalidInputError for what is none, naming the argument."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidInputError(f"{what} a path or a URL as text, not {type_of(path)}", advice="give it as text")
    return text


def normal(path: str) -> str:
    """A path as txnlog writes it: an absolute local path, or a URL with the scheme that our stores know.

    Raises InvalidInputError for an empty path, or a ``file:`` URL that names a host.
    """
    text = _text(path).strip()
    if not text:
        raise InvalidInputError("the path is empty", advice="give ROOT/NAMESPACE/TOPIC")
    if text.startswith("file:"):
        return os.path.normpath(local_path_of(text))
    match = _SCHEME.match(text)
    if match is None:
        return os.path.abspath(os.path.expanduser(text))
    scheme = match[1].lower()
    return f"{_TO_OURS.get(scheme, scheme)}://{text[match.end() :].rstrip('/')}"


def check_absolute(path: str) -> None:
    """Raise InvalidInputError where what a path names depends on the working directory of the process that asks."""
    text = _text(path).strip()
    if text and not text.startswith(("/", "~", "file:")) and _SCHEME.match(text) is None:
        raise _relative("path", text)


def check_absolute_checkpoint(path: str) -> None:
    """The same for a checkpoint's location, where a blank or ``~`` at the beginning is a folder's name to Spark."""
    text = _text(path, _CHECKPOINT)
    if text.strip() and not text.startswith(("/", "file:")) and _SCHEME.match(text) is None:
        raise _relative("checkpoint's location", text)


def _relative(what: str, path: str) -> InvalidInputError:
    return InvalidInputError(
        f"the {what} {ascii(path)[:120]} is relative: Spark would look where it was started, not where this code runs",
        advice="give an absolute path: os.path.abspath(...)",
    )


def of_checkpoint(path: str) -> str:
    """Where Spark keeps a checkpoint of this location: every character of a local path is itself to it, also in a URL.

    Raises InvalidInputError for an empty path, or a ``file:`` URL that names a host.
    """
    text = _text(path, _CHECKPOINT)
    if _SCHEME.match(text) and not text.startswith("file:"):
        return normal(text)
    if not text.startswith("file:"):
        if not text.strip():
            raise InvalidInputError("the checkpoint's location is empty", advice="give a folder of the query's own")
        return os.path.abspath(text)
    return os.path.normpath(local_path_of(text, quoted=False))


def locate(path: str, storage_options: Mapping[str, Any] | None = None, *, topics_named: bool = False) -> Location:
    """What a path names.

    Args:
        path: as a user wrote it.
        storage_options: fsspec's.
        topics_named: an option names the topics, so that the path should be a namespace.

    Raises:
        NamespaceNotFound: neither the path nor its parent holds a log.
        InvalidInputError: the path names a topic although an option does.
    """
    text = normal(path)
    above, name = _split(text)
    if name and _is_namespace(above, name, storage_options):
        return Location(above, name)
    root, namespace = _split(above)
    if namespace and _is_namespace(root, namespace, storage_options):
        if topics_named:
            raise InvalidInputError(
                f"the path names the topic {name!r}, and an option names topics as well",
                advice=f"leave out one of them: the namespace's path ends in {namespace!r}",
            )
        return Location(root, namespace, name)
    raise _not_found(text, ((above, name), (root, namespace)), storage_options)


def _split(text: str) -> tuple[str, str]:
    """Parent and last part; ``("", "")`` where there is no more to split."""
    match = _SCHEME.match(text)
    start = match.end() if match else 0
    position = text.rfind("/", start)
    if position < 0 or position + 1 >= len(text):
        return "", ""
    parent = text[:position]
    return (parent or "/"), text[position + 1 :]


def _is_namespace(root: str, name: str, storage_options: Mapping[str, Any] | None) -> bool:
    namespace = PrefixStore(open_store(root, storage_options), name)
    try:
        namespace.info(entry_key(0))
    except ObjectNotFound:
        return False
    return True


def _not_found(text: str, places: Iterable[tuple[str, str]], storage_options: Mapping[str, Any] | None) -> TxnLogError:
    """What ``txnlog.open`` would say: of the root that the path is, or of the nearest one above it."""
    from txnlog.engine.runtime import Runtime  # noqa: PLC0415
    from txnlog.log.root_log import Root, advice_for_a_root, namespaces_below, not_found  # noqa: PLC0415 - for the message only

    advice = "a path is ROOT/NAMESPACE/TOPIC, or ROOT/NAMESPACE with the topics in an option"
    runtime = Runtime()
    try:
        below = namespaces_below(open_store(text, storage_options), runtime)
        if below is not None:
            advice = advice_for_a_root(below)
        else:
            for root, wanted in places:
                store = open_store(root, storage_options) if wanted else None
                if store is not None and Root(store, runtime).exists():
                    return not_found(store, wanted, runtime)
    finally:
        runtime.close()
    return NamespaceNotFound(f"{shortened(text)} is neither a namespace nor a topic of one", advice=advice)


__all__ = [
    "Location",
    "check_absolute",
    "check_absolute_checkpoint",
    "locate",
    "normal",
    "of_checkpoint",
]
