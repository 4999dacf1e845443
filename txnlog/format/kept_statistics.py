"""Whether the log keeps the least and the greatest value of columns: a property of the topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeVar, get_args

from txnlog.format.topic_properties import ModeSetting

StatisticsMode = Literal["auto", "off"]

STATISTICS: Final[ModeSetting[StatisticsMode]] = ModeSetting(
    "statistics", get_args(StatisticsMode), default="auto", if_newer="off"
)

S = TypeVar("S")


def kept_statistics(properties: Mapping[str, str], statistics: dict[str, S]) -> dict[str, S]:
    """What the log is to say of a file's columns: an entry is never changed, and has these values for ever."""
    return statistics if STATISTICS.of(properties) == "auto" else {}


__all__ = ["STATISTICS", "StatisticsMode", "kept_statistics"]
