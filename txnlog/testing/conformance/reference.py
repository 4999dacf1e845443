"""The reference reader: txnlog itself, as the kit asks it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from txnlog.api.opening import open_namespace
from txnlog.engine.runtime import Runtime
from txnlog.errors import (
    CorruptionError,
    InvalidInputError,
    NamespaceNotFound,
    TopicNotFound,
    TxnLogError,
    UnsupportedFeature,
    VersionNotAvailable,
)
from txnlog.testing.conformance.cases import LATEST, OK, Answer
from txnlog.testing.conformance.encoding import encoded_rows

T = TypeVar("T")

_KINDS: Final[tuple[tuple[type[TxnLogError], str], ...]] = (
    (UnsupportedFeature, "unsupported"),
    (VersionNotAvailable, "version"),
    (TopicNotFound, "topic"),
    (NamespaceNotFound, "namespace"),
    (CorruptionError, "damaged"),
)


class _Plain(Runtime):
    """No threads, since these roots are small, and no waiting, since nobody writes to them."""

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """One by one."""
        return [call() for call in calls]

    def sleep_ms(self, milliseconds: float) -> None:
        """Do not."""


def answer(root: Path | str, namespace: str, topic: str, version: str, level: str) -> Answer:
    """What ``read`` with these arguments answers. Raises TxnLogError for what no answer stands for."""
    logger = logging.getLogger("txnlog")
    level_before = logger.level
    runtime = _Plain()
    try:
        logger.setLevel(logging.ERROR)  # unusable checkpoints are part of the cases
        with open_namespace(root, namespace, mode="r", runtime=runtime) as ns:
            snapshot = ns.snapshot(None if version == LATEST else int(version))
            table = snapshot.read(topic, isolation_level=level, include_metadata=True)
    except TxnLogError as error:
        if type(error) is InvalidInputError and "adopt_namespace" in error.advice:
            return Answer("namespace")  # the folder's log is another one than the root lists
        for kind, name in _KINDS:
            if isinstance(error, kind):
                return Answer(name)
        raise
    finally:
        logger.setLevel(level_before)
        runtime.close()
    return Answer(OK, tuple(encoded_rows(table)))


__all__ = ["answer"]
