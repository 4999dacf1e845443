"""Where a namespace is, or a copy of one: paths and URLs as callers give them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from txnlog.common.names import parse_namespace_name
from txnlog.common.validation import mapping
from txnlog.errors import InvalidInputError
from txnlog.maintenance.repair.work import Copy
from txnlog.store.folders import close_folders
from txnlog.store.open import absolute, open_store
from txnlog.store.wrappers import ReadOnlyStore


def root_text(root: object) -> str:
    """The path or the URL of a root. Raises InvalidInputError for what is none."""
    if not isinstance(root, str | os.PathLike):
        raise InvalidInputError(f"a root is a path or a URL, not {type(root).__name__}")
    text = os.fspath(root)
    if not isinstance(text, str):
        raise InvalidInputError("a root is text, not bytes", advice="use os.fsdecode(...)")
    return text


def root_and_name(root: object, namespace: object) -> tuple[str, str]:
    """Root and name of a namespace, whose path may be given as one. Raises InvalidInputError for what is no path."""
    text = root_text(root)
    text = text.rstrip("/") or text
    if namespace is None:
        text, slash, namespace = text.rpartition("/")
        text = text or slash or "."
    return text, parse_namespace_name(namespace)


@contextmanager
def opened_copy(
    source: str | os.PathLike[str] | None, storage_options: Mapping[str, Any] | None
) -> Iterator[Copy | None]:
    """The copy at an address, whose store is only read; None for none."""
    options = mapping("source_storage_options", storage_options)
    if source is None:
        yield None
        return
    text = root_text(source)
    if not text:
        raise InvalidInputError("the source is empty", advice="pass the path or the URL of the copy")
    store = ReadOnlyStore(open_store(absolute(text.rstrip("/") or text), options))
    try:
        yield Copy(store)
    finally:
        close_folders(store)


__all__ = ["opened_copy", "root_and_name", "root_text"]
