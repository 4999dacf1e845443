"""Opening a namespace: what ``txnlog.open`` is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from txnlog.api.namespace import Namespace
from txnlog.api.paths import root_and_name
from txnlog.client.client_text import parse_client_name
from txnlog.client.connection import Connection
from txnlog.client.session_owner import Mode
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.validation import Duration, duration_ms, mapping, shown, truth
from txnlog.engine.runtime import Clock, Runtime
from txnlog.errors import InvalidInputError
from txnlog.maintenance.optimizer import merge_newest
from txnlog.replies import in_parts
from txnlog.store.base import Store


@in_parts()
def open_namespace(
    root: str | os.PathLike[str],
    namespace: str | None = None,
    *,
    create: bool = False,
    mode: Mode = "rw",
    storage_options: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    min_commit_interval_ms: Duration = 0,
    store: Store | None = None,
    runtime: Runtime | None = None,
    client_name: str | None = None,
    client_info: bool = True,
) -> Namespace:
    """Open a namespace of a root.

    Args:
        root: a local path or any fsspec URL (``s3://bucket/lake``, ``abfss://``, ``gs://``, ``memory://``). A relative
            path means the working directory of now, also for the handle in another process.
        namespace: its name; left out, the last part of ``root`` is the name.
        create: make root and namespace where they do not exist. A namespace whose folder was removed or moved is
            refused (``NamespaceNotFound``), except in the first ten seconds after it was created: another client may
            still be creating it, which looks the same. So close a namespace's handles and call ``drop_namespace``
            before you remove its folder; else the new one may give the same TxnIDs.
        mode: ``"rw"``, or ``"r"``, which needs only GET and LIST and refuses every write.
        storage_options: fsspec's options for the store; they appear in no repr, error, log or plan.
        clock: a clock to trust instead of the machine's (tests). It is never compared with the store's (no
            ``ClockSkew``): one that is ahead takes the log's time along, by which timeouts and leases of all end.
        min_commit_interval_ms: let concurrent commits gather so long, for fewer requests.
        store: an object with the interface of ``txnlog.store`` to use for ``root`` (tests, wrappers).
        runtime: time, chance and concurrency of a simulation (``txnlog.testing``), in place of ``clock``.
        client_name: a name for this client, at most 64 characters, which ``history`` and ``transactions`` show with
            what it wrote: the name of a job, for example. It stays in the log for ever, so let it name no person.
        client_info: say in the log which client wrote: its name, this machine's name, the process id, and the version
            of txnlog, in the line that reserves its numbers. False says nothing.

    Raises:
        NamespaceNotFound: there is none, or it was dropped (``mode="r"`` reads it yet), and ``create`` is False.
        InvalidInputError: a wrong argument; or the folder is a copy: its root lists another log under the name, or this
            one under another name, or, for ``mode="rw"``, does not list it at all. ``catalog.open(root)
            .adopt_namespace(name)`` makes a copy a namespace of its own.
        UnsafeStore: the store has no atomic create-if-absent (found out before the first append).
        UnsupportedFeature: the log needs a newer txnlog.
        CorruptionError: the log is damaged.
    """
    if not isinstance(mode, str) or mode not in {"r", "rw"}:
        raise InvalidInputError(f"unknown mode {shown(mode)}", advice='use mode="r" or mode="rw"')
    create = truth("create", create)
    if mode == "r" and create:
        raise InvalidInputError('create=True needs mode="rw"')
    client_info = truth("client_info", client_info)
    if client_name is not None and not client_info:
        raise InvalidInputError("client_name needs client_info=True", advice="leave one of them out")
    check_clock(clock)
    check_store(store)
    if runtime is not None and not isinstance(runtime, Runtime):
        raise InvalidInputError(
            f"a runtime is one of txnlog.testing, not {type(runtime).__name__}", advice="leave it out"
        )
    text, name = root_and_name(root, namespace)
    connection = Connection(
        text,
        name,
        create=create,
        mode=mode,
        storage_options=mapping("storage_options", storage_options),
        clock=clock,
        min_commit_interval_ms=duration_ms("min_commit_interval_ms", min_commit_interval_ms, 0, MAX_NUMBER),
        store=store,
        runtime=runtime,
        merge=merge_newest,
        client_name=client_name if client_name is None else parse_client_name(client_name),
        client_info=client_info,
    )
    try:
        connection.session.check_identity()
    except BaseException:
        connection.close()
        raise
    return Namespace(connection)


def check_clock(clock: object) -> None:
    """Raise InvalidInputError for what is given as a clock, and is none."""
    if clock is not None and not hasattr(clock, "now_ms"):
        raise InvalidInputError(
            f"a clock has a method now_ms(), unlike {shown(clock)}",
            advice="leave clock out for the machine's clock, or pass an object whose now_ms() gives epoch milliseconds",
        )


def check_store(store: object) -> None:
    """Raise InvalidInputError for what is given as a store, and is none."""
    if store is not None and not hasattr(store, "create"):
        raise InvalidInputError(  # not shown: it may hold secrets
            f"a store has the methods of txnlog.store.Store, unlike {type(store).__name__}",
            advice="leave store out for the one that root names",
        )


__all__ = ["check_clock", "check_store", "open_namespace"]
