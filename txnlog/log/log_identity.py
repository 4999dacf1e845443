"""Which log the folder of a namespace holds, and whether it is the one that its root lists there. Pure.

Whoever copies a folder copies its log, with the coordinator id and the numbers to come: two logs would give the same
TxnIDs. So a folder is a namespace of its root only if the root lists its log, under its name.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from txnlog.common.validation import shortened
from txnlog.errors import Durable, InvalidInputError, NamespaceNotFound, TxnLogError
from txnlog.fold.state import Head, NamespaceRecord
from txnlog.format.keys import CATALOG_FOLDER
from txnlog.sentences import Call, Either, Words

CATALOG: Final = "catalog.open(root)"
"""The handle of a root, as code."""

_READS: Final = Words(Either('mode="r" reads it', "the commands that only look read it"))
"""What can be done with a log to which nothing may be written."""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """What distinguishes a log from all others, as far as its root knows them.

    Attributes:
        name: the namespace's name, by the log.
        coordinator: the coordinator id of its numbers to come.
        beginning: the digest of its entry 0.
    """

    name: str
    coordinator: int
    beginning: str

    @classmethod
    def of(cls, head: Head, beginning: str) -> LogIdentity:
        """The identity of a materialized log."""
        return cls(head.name, head.coordinators.newest, beginning)

    def is_of(self, record: NamespaceRecord) -> bool:
        """Whether a registration means this log. Older ones name no entry 0."""
        return (record.name, record.coordinator) == (self.name, self.coordinator) and (
            record.log in ("", self.beginning)
        )


class Standing(enum.Enum):
    """What a log in the folder of a name is to the root."""

    LISTED = "the root lists it under this name"
    OTHER_LISTED = "the root lists another log under this name"
    COPY = "the root lists it under another name"
    DROPPED = "it was the namespace of this name, which was dropped"
    UNKNOWN = "the root does not know it"


def listed(records: Iterable[NamespaceRecord], name: str) -> NamespaceRecord | None:
    """The registration of exactly this name, unless it was dropped."""
    return next((item for item in records if item.name == name and not item.dropped), None)


def standing(
    records: Iterable[NamespaceRecord], name: str, found: LogIdentity
) -> tuple[Standing, NamespaceRecord | None]:
    """How a root with these registrations sees the log in the folder of a name, and by which registration."""
    records = tuple(records)
    own = listed(records, name)
    if own is not None:
        return (Standing.LISTED if found.is_of(own) else Standing.OTHER_LISTED), own
    for item in records:
        if found.is_of(item) and not item.dropped:
            return Standing.COPY, item
    for item in records:
        if found.is_of(item) and item.name == name:
            return Standing.DROPPED, item
    return Standing.UNKNOWN, None


def refusal(
    records: Iterable[NamespaceRecord],
    name: str,
    found: LogIdentity,
    url: str,
    *,
    writing: bool,
    newest_of: Callable[[str], int | None] = lambda _folder: None,
) -> TxnLogError | None:
    """The error for opening the log in the folder of a name; None where it may be opened.

    ``newest_of`` gives the newest version of the log in a folder, where that can be seen.
    """
    stands, record = standing(records, name, found)
    if record is not None and stands is Standing.OTHER_LISTED:
        return other_listed(record, found, url)
    if writing and stands is Standing.DROPPED:
        return dropped(name, url)
    if record is not None and stands is Standing.COPY:
        return copied(record.name, name, url, newest_of(record.name), newest_of(name))
    if writing and stands is Standing.UNKNOWN:
        return InvalidInputError(
            f"the folder {name}/ holds the log of a namespace that its root does not list: a copy, perhaps, whose "
            "original gives the same TxnIDs",
            advice=Words(_READS, "; to write to it, make it a namespace of this root: ", how_adopted(name, url)),
            durable=Durable.NOTHING,
        )
    return None


def copied(original: str, name: str, url: str, original_newest: int | None, newest: int | None) -> InvalidInputError:
    """The error for opening the log of a namespace in another folder, where its own has one, too.

    That one may be the new one: the folder was renamed, and the namespace made again with the same first entry.
    """
    versions, first = "", f"open {original!r}; "
    if original_newest is not None and newest is not None and original_newest != newest:
        versions = f": {original}/ ends at version {original_newest}, {name}/ at version {newest}"
        if original_newest < newest:
            first = (
                f"{name}/ has more entries: perhaps it was renamed, and {original!r} made anew; open {original!r} only "
                "if these are not needed; "
            )
    return InvalidInputError(
        f"the folder {name}/ is a copy of the namespace {original!r}, and both would give the same TxnIDs{versions}",
        advice=Words(first, "to make the copy a namespace of its own: ", how_adopted(name, url)),
        durable=Durable.NOTHING,
    )


def rootless(name: str, url: str) -> InvalidInputError:
    """The error for writing to the log in the folder of a name where the root has no list of namespaces at all."""
    return InvalidInputError(
        f"the root of the folder {name}/ has no folder {CATALOG_FOLDER}, which lists its namespaces: it was removed, "
        f"or not copied with the others; nothing in {name}/ is lost",
        advice=Words(
            f"bring {CATALOG_FOLDER} back if it was moved, or if there is a copy of it; otherwise list the folder "
            "again, as a namespace of the root: ",
            how_adopted(name, url),
            "; ",
            _READS,
            " meanwhile",
        ),
        durable=Durable.NOTHING,
    )


def renamed(old: str, new: str, url: str) -> InvalidInputError:
    """The error for opening the log of a namespace in another folder, where its own has none."""
    return InvalidInputError(
        f"the folder {new}/ holds the log of the namespace {old!r}, and the folder {old}/ has none: it was renamed; "
        "nothing is lost",
        advice=Words(
            f"rename it to {old}/ again; or, to keep the new name, close every writer that has {old!r} open, then ",
            how_adopted(new, url),
            ", and then ",
            Call("drop_namespace", repr(str(old)), of=CATALOG),
        ),
        durable=Durable.NOTHING,
    )


def dropped(name: str, url: str) -> NamespaceNotFound:
    """The error for writing to what is left of a namespace that was dropped."""
    return NamespaceNotFound(
        f"the namespace {name!r} was dropped; only its folder is still there",
        advice=Words(
            "to use the name again, close every writer that has it open, then remove the folder "
            f"{name}/; or choose another name; ",
            _READS,
            "; to make it a namespace again: ",
            how_adopted(name, url),
        ),
    )


def other_listed(record: NamespaceRecord, found: LogIdentity, url: str) -> InvalidInputError:
    """The error where the root lists another log under the name of a folder."""
    if found.coordinator != record.coordinator:
        which = f"with coordinator id {found.coordinator} instead of {record.coordinator}"
    elif found.name != record.name:
        which = f"with the name {found.name!r}"
    else:
        which = "with another first entry"
    adopted = how_adopted(record.name, url)
    if record.log == found.beginning:
        advice = Words(
            "bring the right folder back; wait where its adoption is under way; if its adoption was interrupted, "
            "repeat it: ",
            adopted,
        )
    else:
        advice = Words(
            "bring the right folder back, or drop the namespace and choose another name, or adopt this folder then: ",
            adopted,
            "; if this name was dropped while it was created, close its writers, remove the folder "
            f"{record.name}/ and create it again",
        )
    return InvalidInputError(
        f"the folder {record.name}/ holds the log of another namespace, {which}",
        advice=advice,
        durable=Durable.NOTHING,
    )


def how_adopted(name: str, url: str) -> Words:
    """The step that makes the log in the folder of a name a namespace of its own."""
    command = f"txnlog {shortened(url)} adopt"
    code = f"{CATALOG}.adopt_namespace({name!r})"
    return Words(Either(f"{code} in Python, or {command} on the command line", command))


__all__ = [
    "CATALOG",
    "LogIdentity",
    "Standing",
    "dropped",
    "how_adopted",
    "listed",
    "other_listed",
    "refusal",
    "renamed",
    "rootless",
    "standing",
]
