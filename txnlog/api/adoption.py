"""Adopting a log: the explicit step that makes the copy of a namespace a namespace of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from txnlog.api.paths import root_and_name
from txnlog.client.connection import Connection
from txnlog.common.validation import mapping, truth
from txnlog.engine.runtime import Clock
from txnlog.replies import in_parts, refused_write
from txnlog.store.base import Store


@in_parts()
def adopt_namespace(
    root: str | os.PathLike[str],
    namespace: str | None = None,
    *,
    force: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    store: Store | None = None,
) -> tuple[str, int]:
    """Register the log in a namespace's folder under a new coordinator id; returns the name and that id.

    ``catalog.Catalog.adopt_namespace`` says what this means, and what it raises.
    """
    text, name = root_and_name(root, namespace)
    force = truth("force", force)
    with refused_write():
        connection = Connection(
            text, name, storage_options=mapping("storage_options", storage_options), clock=clock, store=store
        )
    try:
        return connection.name, connection.session.adopt(force=force)
    finally:
        connection.close()


__all__ = ["adopt_namespace"]
