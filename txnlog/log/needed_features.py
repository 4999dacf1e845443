"""What a command needs of the format, and a namespace may not have enabled. Pure."""

from __future__ import annotations

from txnlog.errors import UnsupportedFeature
from txnlog.fold.state import Draft, State
from txnlog.format.features import HOLES
from txnlog.sentences import Call, Words


def check_holes(state: State | Draft, what: str) -> None:
    """Raise UnsupportedFeature where the log does not have the feature that lets offsets lose their rows."""
    if HOLES not in state.head.reader_features:
        raise UnsupportedFeature(
            f"{what} needs the feature {HOLES!r} of the format, which this namespace does not have",
            advice=Words(
                "enable it once, for ever: ",
                Call("enable", repr(HOLES)),
                "; versions of txnlog that do not know it can neither read nor write the namespace afterwards",
            ),
        )


__all__ = ["check_holes"]
