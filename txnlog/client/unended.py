"""Transactions with work whose end nobody has asked for: noted while they can still end, reported when they cannot."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from txnlog.engine.log_lines import LogLines
from txnlog.sentences import Call

_logger = LogLines("txnlog.transaction")

_MOST_SHOWN: Final = 8
"""Transactions of one report, and topics of one transaction."""


class Unended:
    """Which transactions of a handle in one process have work, and nobody has asked for their end, with their topics.

    The garbage collector may run anywhere, also where this thread has any lock: none is needed here, since a dictionary
    is changed, and listed, in one step.
    """

    def __init__(self) -> None:
        self._topics: dict[int, Collection[int]] = {}

    def note(self, number: int, topics: Collection[int]) -> None:
        """The transaction of this number has work for these topics: the collection may grow later."""
        self._topics[number] = topics

    def settle(self, number: int) -> Collection[int] | None:
        """Somebody asked for its end, or it is reported. Returns its topics; None where it is not noted."""
        return self._topics.pop(number, None)

    def settle_all(self) -> dict[int, Collection[int]]:
        """All of them are reported. Returns their topics by number."""
        return {number: topics for number in list(self._topics) if (topics := self.settle(number)) is not None}


def report(what: str, lost: Mapping[str, Iterable[str]], source: object = None) -> None:
    """Say that the work of transactions is lost: one line in the log of Python, and one ResourceWarning.

    Args:
        what: what happened, as the beginning of a sentence: "The interpreter ended before these".
        lost: by TxnID the names of its topics; nothing is said where there is none.
        source: what was lost: ``tracemalloc`` knows where it was made, and the warning then shows that.
    """
    if not lost:
        return
    text = (
        f"{what} transactions with work were committed, prepared or aborted: {_shown(lost)}. Nothing of them "
        "is visible, and nothing will be. What was flushed may stay pending in the log until the deadline, and so may "
        f"the acknowledged messages: {Call('abort', 'txn_id')} releases them before. Begin a transaction in a with "
        "block, which ends it, or call commit() or abort()."
    )
    _logger.warning("%s", text)  # first: a filter may turn the warning into an error
    warnings.warn(text, ResourceWarning, stacklevel=2, source=source)


def report_aborted(what: str, lost: Mapping[str, Iterable[str]]) -> None:
    """Say in the log of Python that something aborted transactions with work, whose end nobody had asked for."""
    if lost:
        _logger.warning(
            "%s, which aborted these transactions with work: %s. Nothing of them is visible. Call commit() before, or "
            "begin a transaction in a with block, which ends it.",
            what,
            _shown(lost),
        )


def _shown(lost: Mapping[str, Iterable[str]]) -> str:
    more = f" and {len(lost) - _MOST_SHOWN} more" if len(lost) > _MOST_SHOWN else ""
    return ", ".join(f"{txn} ({_listed(topics)})" for txn, topics in list(lost.items())[:_MOST_SHOWN]) + more


def _listed(topics: Iterable[str]) -> str:
    names = sorted(topics)
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return ("topic " if len(names) == 1 else "topics ") + ", ".join(map(repr, names[:_MOST_SHOWN])) + more


__all__ = ["Unended", "report", "report_aborted"]
