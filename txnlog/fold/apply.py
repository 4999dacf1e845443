"""How an entry changes the materialized state, in one place: ``apply_entry(state, entry)``.

Validation and replay are the same code. A writer applies its own actions to a draft and takes a typed refusal as its
answer; a reader applies what the log holds, and there a refusal can only mean damage: :class:`CorruptionError` naming
entry and action.

So this package says what any log may hold, and a refusal that is added here makes logs that exist damaged: it is for
new actions and fields only. A rule for those who write from now on goes into the ``decide`` of its command, in ``log``,
``client``, ``maintenance`` or ``api``. What a writer chooses by the state alone, such as the messages of a lease, is
here as well: pure functions that no entry is applied by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from txnlog.common.format_limits import FORMAT_VERSION, MAX_COORDINATORS, OUTCOME_RETENTION_MS
from txnlog.common.names import folded, parse_namespace_name
from txnlog.errors import (
    CorruptionError,
    InvalidInputError,
    LimitExceeded,
    NameNotAllowed,
    TxnLogError,
    UnsupportedFeature,
)
from txnlog.fold import (
    number_blocks,
    producers,
    segment_replacement,
    subscriptions,
    topics,
    transaction_ends,
    transactions,
)
from txnlog.fold.state import Draft, NamespaceRecord, State
from txnlog.format.actions import (
    Abort,
    Acknowledge,
    Adopt,
    AlterTopic,
    AnyAction,
    Begin,
    Close,
    Commit,
    Consumer,
    DeleteRecords,
    DropSubscription,
    DropTopic,
    ForgetApp,
    Header,
    Lease,
    Namespace,
    Prepare,
    Producer,
    Protocol,
    Register,
    Release,
    Renew,
    Replace,
    Reserve,
    Seek,
    Segment,
    Subscription,
    Topic,
    Unregister,
    Vacuum,
    Verdict,
)
from txnlog.format.codec import Entry, damaged_entry
from txnlog.format.features import HOLES
from txnlog.format.keys import CATALOG_FOLDER, UNIQUE
from txnlog.sentences import Either, Words

READER_FEATURES: frozenset[str] = frozenset({HOLES})
WRITER_FEATURES: frozenset[str] = frozenset({HOLES})
"""Features of the format that this code implements; a log that names another one is refused."""


def apply(draft: Draft, action: AnyAction, at: Header) -> None:
    """Apply one action of the entry headed ``at``. Raises a typed refusal: the caller rolls back to its savepoint."""
    _HANDLERS[type(action)](draft, action, at)


def begin_entry(draft: Draft, header: Header) -> None:
    """Move the head to a new entry. Raises CorruptionError where the chain is broken."""
    head = draft.head
    if header.version != head.version + 1:
        raise damaged_entry(header.version, f" follows entry {head.version}")
    if header.previous != head.digest:
        raise CorruptionError(
            f"entry {header.version} continues another log: it names {header.previous[:40]!a} as the digest of entry "
            f"{head.version}, which is {head.digest!r}",
            advice="one of the two is damaged, or the entries of two copies that went on apart were mixed in one "
            "folder: restore the whole folder from one copy",
        )
    if header.timestamp_ms < head.timestamp_ms:
        raise damaged_entry(header.version, f" goes back in time, from {head.timestamp_ms} to {header.timestamp_ms}")
    checkpoint = newer_checkpoint(head.checkpoint, header)
    draft.head = msgspec.structs.replace(
        head, version=header.version, timestamp_ms=header.timestamp_ms, checkpoint=checkpoint
    )


def newer_checkpoint(known: int | None, header: Header) -> int | None:
    """The newer of a known checkpoint and the one that a header names. Raises CorruptionError."""
    named = header.checkpoint
    if named is None:
        return known
    if named >= header.version:
        raise damaged_entry(header.version, f" names a checkpoint of the future, {named}")
    return named if known is None else max(known, named)


def finish_entry(draft: Draft, digest: str) -> None:
    """Check what must hold at the end of an entry, and note its digest."""
    transactions.check_claims(draft)
    if draft.head.version == 0 and not (draft.head.reader_version and draft.head.name):
        raise InvalidInputError("entry 0 must hold a protocol and a namespace action")
    draft.head = msgspec.structs.replace(draft.head, digest=digest)


def apply_entry(state: State, entry: Entry) -> None:
    """Apply one entry to a state: all of it, or nothing and CorruptionError or UnsupportedFeature."""
    applied(state, entry).merge()


def applied(state: State, entry: Entry) -> Draft:
    """The draft that stands for an entry, still to be merged; CorruptionError or UnsupportedFeature for a bad one."""
    draft = state.draft()
    header = entry.header
    begin_entry(draft, header)
    position = 1
    try:
        for action in entry.actions:
            position += 1
            apply(draft, action, header)
        position += 1
        finish_entry(draft, entry.digest)
    except (CorruptionError, UnsupportedFeature):
        raise
    except TxnLogError as refusal:
        kind = type(entry.actions[position - 2]).__name__ if position - 2 < len(entry.actions) else "end"
        # What was refused may quote the log: escaped and cut short, without the refusal as a cause.
        said = ascii(refusal.message)[1:-1][:400]
        raise damaged_entry(header.version, f", line {position} ({kind}): {said}") from None
    return draft


# --- protocol, namespace, root log ----------------------------------------------------------------------------------


def _protocol(draft: Draft, action: Protocol, at: Header) -> None:
    if action.reader_version > FORMAT_VERSION or not READER_FEATURES.issuperset(action.reader_features):
        missing = sorted(set(action.reader_features) - READER_FEATURES)
        raise UnsupportedFeature(
            f"entry {at.version} asks readers for format version {action.reader_version}"
            f"{_and_features(missing)}; this txnlog reads version {FORMAT_VERSION}",
            advice="use a newer txnlog",
        )
    head = draft.head
    if action.writer_version < max(1, head.writer_version) or action.reader_version < max(1, head.reader_version):
        raise InvalidInputError("versions of the protocol begin at 1 and cannot go back")
    taken_back = {*head.reader_features} - {*action.reader_features} | {*head.writer_features} - {
        *action.writer_features
    }
    if taken_back:
        raise InvalidInputError("a feature of the log cannot be disabled: older entries may need it")
    draft.head = msgspec.structs.replace(
        head,
        reader_version=action.reader_version,
        writer_version=action.writer_version,
        reader_features=action.reader_features,
        writer_features=action.writer_features,
    )


def _and_features(missing: list[str]) -> str:
    return f" and the features {', '.join(ascii(item[:40]) for item in missing[:5])}" if missing else ""


def check_writable(state: State | Draft) -> None:
    """Raise UnsupportedFeature where the log may be read but not written by this code."""
    head = state.head
    missing = sorted(set(head.writer_features) - WRITER_FEATURES)
    if head.writer_version > FORMAT_VERSION or missing:
        raise UnsupportedFeature(
            f"the log asks writers for format version {head.writer_version}"
            f"{_and_features(missing)}; this txnlog writes version {FORMAT_VERSION}",
            advice=Words(
                "use a newer txnlog",
                Either(', or open with mode="r"', "; the commands that only look work with this one"),
            ),
        )


def _namespace(draft: Draft, action: Namespace, at: Header) -> None:
    if at.version != 0:
        raise InvalidInputError("a namespace is named at version 0 only")
    if draft.head.name:
        raise InvalidInputError("a namespace is named once")
    if action.name != CATALOG_FOLDER:
        parse_namespace_name(action.name)
    if action.max_timeout_ms == 0:
        raise InvalidInputError("max_timeout_ms is a positive number of milliseconds")
    if action.outcome_retention_ms is not None and action.outcome_retention_ms < OUTCOME_RETENTION_MS:
        raise InvalidInputError(f"outcome_retention_ms is at least {OUTCOME_RETENTION_MS:,}, 7 days")
    _check_coordinator(action.coordinator)
    draft.head = msgspec.structs.replace(
        draft.head,
        name=action.name,
        first_coordinator=action.coordinator,
        max_timeout_ms=action.max_timeout_ms,
        outcome_retention_ms=action.outcome_retention_ms,
    )


def _check_coordinator(coordinator: int) -> None:
    if not 0 <= coordinator < MAX_COORDINATORS:
        raise InvalidInputError(f"the coordinator id {coordinator} has more than 16 bits")


def _adopt(draft: Draft, action: Adopt, at: Header) -> None:
    if at.version == 0:
        raise InvalidInputError("a log is adopted behind version 0")
    head = draft.head
    name = parse_namespace_name(action.name)
    _check_coordinator(action.coordinator)
    if action.coordinator in head.coordinators:
        raise InvalidInputError(f"the log had the coordinator id {action.coordinator} before")
    number_blocks.close_all(draft)
    draft.head = msgspec.structs.replace(
        draft.head, name=name, adoptions=(*head.adoptions, (head.next_number, action.coordinator))
    )


def _register(draft: Draft, action: Register, at: Header) -> None:
    name = parse_namespace_name(action.name)
    head = draft.head
    taken = draft.namespace_names.get(folded(name))
    if taken is not None:
        other = draft.namespaces.get(taken)
        assert other is not None, "names and namespaces are changed together"
        raise NameNotAllowed(f"the namespace {other.name!r} exists", advice="choose another name, not only in case")
    if draft.namespaces.get(at.version) is not None:
        raise InvalidInputError("one entry registers one namespace, whose id is the entry's version")
    if action.log and UNIQUE.fullmatch(action.log) is None:
        raise InvalidInputError("the digest of entry 0 has 32 hexadecimal digits")
    # A log that is adopted had ids before, of this root or of others: those are passed over.
    if action.coordinator < head.next_coordinator or (action.coordinator > head.next_coordinator and not action.log):
        raise InvalidInputError(f"the next coordinator id is {head.next_coordinator}, not {action.coordinator}")
    if action.coordinator >= MAX_COORDINATORS:
        raise LimitExceeded(
            "all coordinator ids of this root are used", advice=f"use another root: one has {MAX_COORDINATORS:,}"
        )
    draft.namespaces.put(at.version, NamespaceRecord(at.version, name, action.coordinator, log=action.log))
    draft.namespace_names.put(folded(name), at.version)
    draft.head = msgspec.structs.replace(head, next_coordinator=action.coordinator + 1)


def _unregister(draft: Draft, action: Unregister, at: Header) -> None:
    record = draft.namespaces.get(action.namespace)
    if record is None or record.dropped:
        raise InvalidInputError(f"no namespace with the id {action.namespace}")
    draft.namespaces.put(record.id, msgspec.structs.replace(record, dropped_version=at.version))
    draft.namespace_names.remove(folded(record.name))


def _verdict(draft: Draft, action: Verdict, _at: Header) -> None:
    draft.verdicts.put((action.store, action.endpoint), action)


def _vacuum(draft: Draft, action: Vacuum, at: Header) -> None:
    head = draft.head
    if not head.oldest_readable <= action.oldest_readable <= at.version:
        raise InvalidInputError(
            f"the oldest readable version goes from {head.oldest_readable} up to {at.version}, "
            f"not to {action.oldest_readable}"
        )
    draft.head = msgspec.structs.replace(head, oldest_readable=action.oldest_readable)


_HANDLERS: dict[type[Any], Callable[[Draft, Any, Header], None]] = {
    Protocol: _protocol,
    Namespace: _namespace,
    Adopt: _adopt,
    Register: _register,
    Unregister: _unregister,
    Verdict: _verdict,
    Topic: topics.create,
    AlterTopic: topics.alter,
    DropTopic: topics.drop,
    DeleteRecords: topics.delete_records,
    Subscription: subscriptions.create,
    DropSubscription: subscriptions.drop,
    Consumer: subscriptions.open_consumer,
    Seek: subscriptions.seek,
    Lease: subscriptions.lease,
    Release: subscriptions.release,
    Reserve: number_blocks.reserve,
    Renew: number_blocks.renew,
    Close: number_blocks.close,
    Producer: producers.start_producer,
    ForgetApp: producers.forget_app,
    Begin: transactions.begin,
    Segment: transactions.add_segment,
    Acknowledge: transactions.acknowledge,
    Commit: transactions.commit,
    Abort: transaction_ends.abort,
    Prepare: transactions.prepare,
    Replace: segment_replacement.replace_segments,
    Vacuum: _vacuum,
}


__all__ = [
    "READER_FEATURES",
    "WRITER_FEATURES",
    "applied",
    "apply",
    "apply_entry",
    "begin_entry",
    "check_writable",
    "finish_entry",
    "newer_checkpoint",
]
