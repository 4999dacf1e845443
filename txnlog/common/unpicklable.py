"""What stays in the process that made it."""

from __future__ import annotations

from typing import NoReturn

from txnlog.errors import InvalidInputError


class ProcessBound:
    """Has a place in this process that a copy would not have; a Namespace can be sent, and opens itself anew."""

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError(
            f"a {type(self).__name__} cannot be sent to another process, as a closure that uses it would be",
            advice="send the Namespace, a TxnID or an Arrow table, and begin anew there",
        )


__all__ = ["ProcessBound"]
