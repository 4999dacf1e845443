"""What a namespace depends on: the store, the rights of this client, its clock, the packages that are installed."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from txnlog.api.doctor.notes import Notes
from txnlog.common.installed import installed_version, is_supported, supported_versions
from txnlog.common.validation import rough_duration
from txnlog.errors import AccessDenied, ClockSkew, StoreError
from txnlog.format import keys
from txnlog.sentences import Argument, Call, Words
from txnlog.store.identity import identity_of

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

_PACKAGES: Final = ("pyarrow", "pyspark", "delta-spark")

_PROBE: Final = bytes(4 << 10)
"""A full disk takes an object without bytes, and no other."""

_NOT_ASKED: Final = Words("not tried: only with ", Argument("probe", True))


def look_at_store(notes: Notes, connection: Connection) -> None:
    """Is this store one of the safe ones, and did it pass the test of its create-if-absent?"""
    identity = identity_of(connection.store)
    notes.seen["store"] = identity.store_kind
    if not identity.sends_condition:
        notes.complain(
            "store",
            identity.store_kind,
            "this store is not known to have an atomic create-if-absent: it can be read, and whoever writes is refused",
            "move the namespace to a store that docs/stores.md calls safe",
        )
        return
    try:
        has_verdict = connection.session.has_verdict()
    except AccessDenied as error:
        notes.seen["test of the store"] = f"not known: no right to {error.right} the list of the root"
        return
    notes.seen["test of the store"] = "passed" if has_verdict else "none is recorded"
    if not has_verdict:
        notes.warn(
            "store",
            identity.store_kind,
            "no log says that this store passed the test: it was moved here, or is reached through another address",
            Words("write something: whoever writes next tests it, for example ", Call("produce", "topic", "data")),
        )


def look_at_rights(notes: Notes, connection: Connection, *, probe: bool) -> None:
    """May this client do what it may have to do?"""
    notes.seen["right to read"] = "yes"
    notes.seen["right to list"] = _tried(
        notes, "list", "without it the end of the log cannot be distinguished from a refusal", lambda: _list(connection)
    )
    for name in ("write", "delete", "write heartbeats"):
        notes.seen[f"right to {name}"] = "not tried: no right to write" if probe else _NOT_ASKED
    notes.seen["right to write proposals"] = "not tried: other clients read what lies there"
    if probe:
        _probe(notes, connection)


def _list(connection: Connection) -> None:
    next(iter(connection.store.list(keys.PROBE_FOLDER)), None)


def _probe(notes: Notes, connection: Connection) -> None:
    """Put an object where each client puts one before its first append, and one where consumers do; delete both."""
    key = f"{keys.PROBE_FOLDER}doctor-{connection.runtime.unique()}"
    notes.seen["right to write"] = _tried(
        notes, "write", "nothing can be appended to the log without it", lambda: connection.store.put(key, _PROBE)
    )
    if notes.seen["right to write"] != "yes":
        return
    notes.seen["right to delete"] = "no"
    with contextlib.suppress(AccessDenied):  # only a maintainer needs it
        connection.store.delete(key)
        notes.seen["right to delete"] = "yes"
    if notes.seen["right to delete"] == "no":
        notes.seen["right to write heartbeats"] = "not tried: without the right to delete, an object would stay"
        return
    sign = f"{keys.HEARTBEAT_FOLDER}doctor-{connection.runtime.unique()}"
    notes.seen["right to write heartbeats"] = _tried(
        notes,
        "write heartbeats",
        "consumers of subscriptions with leases cannot show that they live",
        lambda: connection.store.put(sign, _PROBE),
    )
    if notes.seen["right to write heartbeats"] == "yes":
        connection.store.delete(sign)


def _tried(notes: Notes, name: str, without: str, call: Callable[[], object]) -> str:
    try:
        call()
    except AccessDenied as error:
        notes.complain("rights", f"right to {name}", f"{error.message}; {without}", error.advice)
        return "no"
    except StoreError as error:  # a full disk, one that is mounted to be read only
        notes.complain("store", f"right to {name}", f"{error.message}; {without}", error.advice)
        return "not known: the store failed"
    return "yes"


def look_at_clock(notes: Notes, connection: Connection, *, probe: bool) -> None:
    """Is this machine's clock right, as far as the log and the store show it?"""
    session = connection.session
    ahead_ms = session.time_ahead_ms
    notes.seen["time of the log"] = "not ahead of this machine's clock"
    if ahead_ms:
        notes.seen["time of the log"] = f"{rough_duration(ahead_ms)} ahead of this machine's clock"
        notes.warn(
            "clock",
            "time of the log",
            f"the time of the log is {rough_duration(ahead_ms)} ahead of this machine's clock: no lease ends, and no "
            "deadline passes, until the clock gets there",
            "set this machine's clock if it is behind; docs/operations/damage.md says more",
        )
    if connection.runtime.trusts_clock:
        notes.seen["clock of the store"] = "not compared: the clock was given"
    elif not probe:
        notes.seen["clock of the store"] = _NOT_ASKED
    elif notes.seen.get("right to write") != "yes":
        notes.seen["clock of the store"] = "not known: nothing could be written"
    else:
        try:
            session.check_clock()
            notes.seen["clock of the store"] = "not behind this machine's clock"
        except ClockSkew as error:
            notes.seen["clock of the store"] = error.message
            notes.complain("clock", "this machine", f"{error.message}: it may not write", error.advice)


def look_at_versions(notes: Notes) -> None:
    """Are the packages that are installed among those that this txnlog is made for?"""
    found = {"python": platform.python_version()}
    found |= {name: version for name in _PACKAGES if (version := installed_version(name)) is not None}
    for name, version in found.items():
        notes.seen[name] = version
        wanted = supported_versions(name)
        if wanted is not None and not is_supported(version, wanted):
            install = f"use Python {wanted}" if name == "python" else f"pip install '{name}{wanted}'"
            notes.warn("versions", name, f"version {version} is installed, which no test ran with", install)


__all__ = ["look_at_clock", "look_at_rights", "look_at_store", "look_at_versions"]
