"""Whether small segments of a topic are merged by themselves: a property of the topic."""

from __future__ import annotations

from typing import Final, Literal, get_args

from txnlog.format.topic_properties import ModeSetting

MergeMode = Literal["auto", "manual"]

MERGE: Final[ModeSetting[MergeMode]] = ModeSetting("merge", get_args(MergeMode), default="auto", if_newer="manual")


__all__ = ["MERGE", "MergeMode"]
