"""Offsets by topic and partition as JSON: so the plans of Spark's Kafka source have them, and so it takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from spark_ext.ingest.positions import TopicPartition


def partition_offsets(text: str) -> dict[str, dict[int, int]]:
    """Offsets by topic and partition, as Spark's Kafka source writes them into a query's plan. Raises ValueError."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("no object")
    result: dict[str, dict[int, int]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise ValueError("no object of partitions")
        for number, offset in partitions.items():
            if type(offset) is not int or not number.isdecimal():
                raise ValueError("no offset")
            result.setdefault(topic, {})[int(number)] = offset
    return result


def offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    """The inverse of ``partition_offsets``."""
    found: dict[str, dict[str, int]] = {}
    for part, offset in sorted(offsets.items()):
        found.setdefault(part.topic, {})[str(part.partition)] = offset
    return json.dumps(found)


__all__ = ["offsets_text", "partition_offsets"]
