"""What one client knows of takeovers and seeks of its own whose outcome is unknown, or whose caller was interrupted."""

from __future__ import annotations


class UnsettledEpochs:
    """Epochs that this client may have made, and nobody's consumer has. From any thread."""

    def __init__(self) -> None:
        self._unknown: dict[int, int] = {}
        self._abandoned: dict[int, int] = {}

    def note_unknown(self, subscription: int, epoch: int) -> None:
        """Note that a takeover or a seek of this client may have made this epoch: its outcome is unknown."""
        self._unknown[subscription] = epoch

    def unknown(self, subscription: int) -> int | None:
        """The epoch of a takeover that was not settled yet."""
        return self._unknown.get(subscription)

    def settle(self, subscription: int, epoch: int, *, abandoned: bool) -> None:
        """Note the outcome that the log shows. An epoch that is ``abandoned`` has no consumer, so no lease lasts."""
        self._unknown.pop(subscription, None)
        if abandoned:
            self._abandoned[subscription] = epoch

    def is_abandoned(self, subscription: int, epoch: int) -> bool:
        """Whether nobody has the consumer of this epoch: nobody waits for its lease."""
        return self._abandoned.get(subscription) == epoch


__all__ = ["UnsettledEpochs"]
