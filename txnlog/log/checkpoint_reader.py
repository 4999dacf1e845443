"""Reading the checkpoints of a log: manifests, the state and the cold rows in their parts, and which are unusable."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Container, Iterable, Iterator
from functools import partial
from typing import Protocol

import pyarrow as pa

from txnlog.common.limits import MAX_CHECKPOINT_RUNS
from txnlog.common.lru import Recent
from txnlog.common.validation import shortened
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import CorruptionError, UnsupportedFeature
from txnlog.fold.apply import newer_checkpoint
from txnlog.fold.state import Batch, Outcome, SegmentRecord, State
from txnlog.format import keys
from txnlog.format.codec import Entry, digest_of
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import Manifest, Part
from txnlog.sentences import Call, Words
from txnlog.store.base import ObjectNotFound, Store

_logger = LogLines("txnlog.log")

_CACHED_PARTS = len(checkpoint_codec.COLD_KINDS) * MAX_CHECKPOINT_RUNS
"""Cold runs kept in memory: those of a whole checkpoint."""

_CACHED_TOPICS = 8 * MAX_CHECKPOINT_RUNS
"""One topic's segments of a run kept decoded, for eight topics: a consumer asks for them at every receive."""


class UnusableCheckpoint(CorruptionError):
    """An object of a checkpoint is missing or damaged. No user sees it: an older checkpoint is used instead.

    Only a missing or damaged entry is corruption, since all that checkpoints hold follows from the entries.

    Attributes:
        subject: the version of the manifest, or the part as a manifest names it.
    """

    def __init__(self, subject: int | Part, message: str) -> None:
        super().__init__(message, advice=Words("make a new checkpoint: ", Call("checkpoint")))
        self.subject = subject

    @property
    def key(self) -> str:
        """The key of the object."""
        return keys.manifest_key(self.subject) if isinstance(self.subject, int) else keys.part_key(self.subject.unique)


class Entries(Protocol):
    """The log that the checkpoints are of, as they need it: see :class:`txnlog.log.log_reader.Log`."""

    store: Store

    def get(self, version: int) -> bytes | None:
        """The bytes of an entry, None where there is none."""

    def entry(self, version: int) -> Entry:
        """An entry. Raises CorruptionError where it is missing or damaged."""


class CheckpointReader:
    """The checkpoints of one log."""

    def __init__(self, log: Entries, runtime: Runtime) -> None:
        self._log = log
        self._runtime = runtime
        self._warned: set[str] = set()
        self._unusable_parts: set[Part] = set()  # with size and digest: another manifest may say what it is
        self._unusable_versions: set[int] = set()
        self._parts: Recent[str, pa.Table] = Recent(_CACHED_PARTS)
        self._segments: Recent[tuple[str, int], tuple[int, tuple[SegmentRecord, ...]]] = Recent(_CACHED_TOPICS)

    def usable(self, named: int | None) -> Iterator[Manifest]:
        """The usable checkpoints, newest first: the one that a header names, then those that its own entry leads to."""
        while named is not None:
            manifest = self._usable_manifest(named)
            if manifest is not None:
                yield manifest
            named = self.named_by(named)

    def named_by(self, version: int) -> int | None:
        """The checkpoint that the header of an entry names: one of an older version."""
        return newer_checkpoint(None, self._log.entry(version).header)

    def _usable_manifest(self, version: int) -> Manifest | None:
        """The manifest at a version, None where it is unusable, or names an object that is known to be."""
        if version in self._unusable_versions:
            return None
        try:
            manifest = self.manifest(version)
        except UnusableCheckpoint as error:
            self.note(error)
            return None
        return manifest if self.judged_usable(manifest) else None

    def judged_usable(self, manifest: Manifest) -> bool:
        """Whether no object of a checkpoint is known to be missing or damaged; one that names such is unusable then."""
        if not self._unusable_parts.isdisjoint(manifest.parts):
            self._unusable_versions.add(manifest.version)
        return manifest.version not in self._unusable_versions

    def exclude(self, manifest: Manifest) -> None:
        """Use a checkpoint no more, whatever of it is bad."""
        self._unusable_versions.add(manifest.version)

    def is_unusable(self, version: int) -> bool:
        """Whether the checkpoint at a version is known to be unusable."""
        return version in self._unusable_versions

    def note(self, error: UnusableCheckpoint) -> None:
        """Remember that an object is unusable, and warn of it once."""
        if isinstance(error.subject, int):
            self._unusable_versions.add(error.subject)
        else:
            self._unusable_parts.add(error.subject)
        if error.key not in self._warned:
            self._warned.add(error.key)
            _logger.warning(
                "%s is unusable: %s. Nothing is lost, since all of it follows from the entries of the log: an older "
                "checkpoint is used, or the whole log, which takes longer. ns.repair(), or the command repair, "
                "makes it again.",
                shortened(self._log.store.url(error.key)),
                error.message,
            )

    @contextlib.contextmanager
    def _reading(self, subject: int | Part) -> Iterator[None]:
        """Raise UnusableCheckpoint where an object of a checkpoint is missing, or is not what it should be."""
        try:
            yield
        except UnusableCheckpoint:
            raise
        except ObjectNotFound:
            raise UnusableCheckpoint(subject, "it is missing") from None
        except (CorruptionError, UnsupportedFeature) as error:
            raise UnusableCheckpoint(subject, error.message) from None

    def manifest(self, version: int) -> Manifest:
        """The manifest of a checkpoint. Raises UnusableCheckpoint."""
        with self._reading(version):
            return checkpoint_codec.decode_manifest(self._log.store.get(keys.manifest_key(version)), version)

    def restore(self, manifest: Manifest) -> State:
        """The state of a checkpoint. Raises UnusableCheckpoint."""
        (part,) = manifest.runs("hot")
        with self._reading(part):
            state = checkpoint_codec.decode_hot(self._read(part))
        if state.head.version != manifest.version or state.head.digest != manifest.digest:
            raise UnusableCheckpoint(manifest.version, "its part holds the state of another version, or of another log")
        return state

    def is_of_this_log(self, manifest: Manifest) -> bool:
        """Whether the entry that a checkpoint is of is the one in this log."""
        data = self._log.get(manifest.version)
        return data is not None and digest_of(data) == manifest.digest

    def is_whole(self, version: int) -> bool:
        """Whether the checkpoint at a version can be used, by reading all of it."""
        manifest = self._usable_manifest(version)
        if manifest is None:
            return False
        try:
            self.verify(manifest.parts)
        except UnusableCheckpoint as error:
            self.note(error)
        return self.judged_usable(manifest)

    def verify(self, parts: Iterable[Part]) -> None:
        """Read parts again, whatever is in memory. Raises UnusableCheckpoint for the first bad one."""
        self._runtime.run_all([partial(self._verify, part) for part in parts])

    def _verify(self, part: Part) -> None:
        with self._reading(part):
            checkpoint_codec.check_part(self._log.store.get(keys.part_key(part.unique)), part)

    def _read(self, part: Part) -> pa.Table:
        return checkpoint_codec.read_part(self._log.store.get(keys.part_key(part.unique)), part)

    # Cold runs are kept in memory while they are used. All of these raise UnusableCheckpoint.

    def read_run(self, part: Part) -> pa.Table:
        """The rows of a cold run."""
        table = self._parts.get(part.unique)
        if table is None:
            with self._reading(part):
                table = self._read(part)
            self._parts.put(part.unique, table)
        return table

    def segments(
        self, part: Part, topic: int, gone: Collection[int] = (), version: int = -1
    ) -> tuple[SegmentRecord, ...]:
        """The segments of one topic in a cold run, which stay decoded while they are used.

        Those that are ``gone`` at a version may be missing: where nearly all were merged, the rest is found soon.
        """
        key = (part.unique, topic)
        at_version, found = self._segments.get(key) or (version, None)
        if found is None or at_version > version:
            with self._reading(part):
                found = tuple(checkpoint_codec.segments_of(self.read_run(part), topic, gone))
            self._segments.drop(key)
            self._segments.put(key, (version, found))
        return found

    def removals(self, part: Part) -> dict[int, int]:
        """Which segments a cold run says were replaced, and at which version."""
        return checkpoint_codec.removals_in(self.read_run(part))

    def outcome(self, part: Part, number: int, topics: Container[int]) -> Outcome | None:
        """The outcome of one transaction in a cold run, as far as it is there; ``topics`` are all that there are."""
        with self._reading(part):
            found = checkpoint_codec.outcome_in(self.read_run(part), number)
            unknown = () if found is None else [topic for topic in found.dropped_topics if topic not in topics]
            if unknown:
                raise CorruptionError(f"a checkpoint gives outcome {number} the unknown topic {unknown[0]}")
            return found

    def batches(self, part: Part, producer: str, topic: int, partition: int, first: int, last: int) -> list[Batch]:
        """The sequenced batches of a cold run that hold sequences from ``first`` to ``last``."""
        return checkpoint_codec.batches_in(self.read_run(part), producer, topic, partition, first, last)


__all__ = ["CheckpointReader", "UnusableCheckpoint"]
