"""Applying the actions of producers and applications: names that outlive the processes that use them."""

from __future__ import annotations

from typing import Final

from txnlog.common.format_limits import MAX_PRODUCERS
from txnlog.common.ids import TxnId
from txnlog.common.names import parse_label, parse_producer_name
from txnlog.errors import InvalidInputError, LimitExceeded, ProducerFenced
from txnlog.fold.state import AppRecord, Draft, ProducerRecord, State
from txnlog.fold.transaction_ends import end_aborted
from txnlog.format.actions import ForgetApp, Header, Producer
from txnlog.sentences import Call, Words

NAMES_ADVICE: Final = "use one name for all runs of a job: names are remembered for ever"


def start_producer(draft: Draft, action: Producer, at: Header) -> None:
    """A name gets a higher epoch; the OPEN transactions of its older owner are aborted, PREPARED ones kept."""
    name = parse_producer_name(action.name)
    old = draft.producers.get(name)
    if old is not None and old.epoch == at.version:
        raise InvalidInputError("one entry starts a producer name once: its epoch is the entry's version")
    kept: tuple[int, ...] = ()
    if old is None and len(draft.producers) >= MAX_PRODUCERS:
        raise LimitExceeded(f"the namespace has {MAX_PRODUCERS:,} producers", advice=NAMES_ADVICE)
    if old is not None:
        for number in old.open:
            transaction = draft.transactions.get(number)
            assert transaction is not None, "a producer lists only transactions that have not ended"
            if transaction.state == "OPEN":
                end_aborted(draft, number, at, "fenced")
            else:
                kept = (*kept, number)
    draft.producers.put(name, ProducerRecord(name, at.version, kept, action.fenced_by))


def check_producer(draft: Draft, name: str, epoch: int | None) -> ProducerRecord:
    """The producer's record, or ProducerFenced where the epoch is not the newest."""
    record = draft.producers.get(name)
    if record is None:
        raise InvalidInputError(
            f"no producer {name[:60]!a} was started", advice=Words("start it with ", Call("producer", "name"))
        )
    if record.epoch != epoch:
        raise fenced(name, epoch, record)
    return record


def fenced(
    name: str | None, epoch: int | None, newest: ProducerRecord | None, txn: TxnId | None = None
) -> ProducerFenced:
    """The error for an older epoch of a producer; with the transaction that its end aborted, if it did.

    ``newest`` is the producer's record. It says whether an administrator fenced the name: then nobody owns it.
    """
    if newest is not None and newest.fenced_by:
        aborted = "" if txn is None else f", which aborted the transaction {txn}"
        return ProducerFenced(
            f"the producer {name!r} with epoch {epoch} was fenced by {newest.fenced_by[:60]!a}{aborted}",
            advice="stop: ask who fenced it before a producer with this name is started again",
        )
    aborted = "" if txn is None else f": it aborted the transaction {txn}"
    if newest is None:
        return ProducerFenced(f"the producer {name!r} has epoch {epoch}, which is not the newest{aborted}")
    return ProducerFenced(
        f"the producer {name!r} has epoch {epoch} but {newest.epoch} is the newest{aborted}",
        advice=Words(
            "stop: a newer producer has this name; ",
            Call("table", "'history'"),
            f" says at version {newest.epoch} whose process started it",
        ),
    )


def committed_app(tables: State | Draft, app_id: str | None, app_version: int | None) -> AppRecord | None:
    """The commit that brought this version of an application, or a later one."""
    last = None if app_id is None else tables.apps.get(app_id)
    return last if last is not None and app_version is not None and app_version <= last.app_version else None


def forget_app(draft: Draft, action: ForgetApp, _at: Header) -> None:
    """Forget an application id; the next transaction may bring any version."""
    draft.apps.remove(parse_label("application id", action.app_id))


__all__ = ["NAMES_ADVICE", "check_producer", "committed_app", "fenced", "forget_app", "start_producer"]
