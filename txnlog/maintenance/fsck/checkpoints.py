"""Checking the checkpoints of a log: that those which headers name are there, whole, and of this log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from txnlog.engine.runtime import Runtime
from txnlog.errors import TxnLogError
from txnlog.format import keys
from txnlog.format.codec import Entry, decode_entry, digest_of
from txnlog.log.checkpoint_codec import Manifest, Part
from txnlog.log.checkpoint_reader import UnusableCheckpoint
from txnlog.log.log_reader import NO_ENTRIES, Log
from txnlog.maintenance.fsck.entries import Slots, judged
from txnlog.maintenance.fsck.findings import PAGE, Findings, all_attempted
from txnlog.sentences import Call, Words
from txnlog.store.base import ObjectNotFound

_NEW_ONE: Final = Words(
    "nothing is lost, and an older one or the whole log is used; make it again: ",
    Call("repair"),
    "; or make a new checkpoint: ",
    Call("checkpoint"),
)


class Checkpoints:
    """The checkpoints of a log as far as they are usable; what is wrong with the others was reported.

    Attributes:
        beyond: the newest version of which there is a checkpoint, if that is beyond the version that is checked.
        are_all_usable: whether none was found to be unusable yet.
        unusable: by version those that were reported, with their manifests; None where that is the object that is
            missing or damaged, or does not say what the entries give.
    """

    def __init__(self, log: Log, runtime: Runtime, findings: Findings, version: int) -> None:
        self._log = log
        self._runtime = runtime
        self._findings = findings
        self._version = version
        self._manifests: dict[int, Manifest] = {}
        self._named: set[int] = set()
        self._seen: set[int] = set()
        self._foreign: set[int] = set()
        self.beyond: int | None = None
        self.are_all_usable = True
        self.unusable: dict[int, Manifest | None] = {}
        try:
            self._look()
        except TxnLogError as error:
            findings.unread("checkpoint", keys.CHECKPOINT_FOLDER, error)

    def _look(self) -> None:
        """Read the manifests that are listed, and compare the parts that they name with the listing."""
        versions: list[int] = []
        sizes: dict[str, int] = {}
        for info in self._log.store.list(keys.CHECKPOINT_FOLDER):
            key = keys.parse_key(info.key)
            if isinstance(key, keys.ManifestKey):
                versions.append(key.version)
            elif isinstance(key, keys.PartKey):
                sizes[key.unique] = info.size_bytes
        self.beyond = max((version for version in versions if version > self._version), default=None)
        self._read([version for version in versions if version <= self._version])
        used = {part for manifest in self._manifests.values() for part in manifest.parts}
        self._findings.looked_at("part", len(used))
        self._check_sizes(used, sizes)
        orphans = len(sizes.keys() - {part.unique for part in used})
        if orphans and len(self._manifests) == len(self._seen) and self.beyond is None:
            self._findings.add(
                "note",
                "checkpoint",
                keys.CHECKPOINT_FOLDER,
                f"no manifest that was read names {orphans:,} of the parts of checkpoints",
                "nothing to do: they are of a checkpoint that is being made, was not finished, or was made again by a "
                "repair",
            )

    def _read(self, versions: Iterable[int]) -> None:
        wanted = [version for version in versions if version not in self._seen]
        self._seen.update(wanted)
        reads = [partial(self._log.checkpoints.manifest, version) for version in wanted]
        self._findings.looked_at("checkpoint", len(wanted))
        for version, found in zip(wanted, all_attempted(self._runtime, reads), strict=True):
            if isinstance(found, Manifest):
                self._manifests[version] = found
            elif isinstance(found, UnusableCheckpoint):
                self.report(found)
            elif isinstance(found, TxnLogError):
                self._findings.unread("checkpoint", keys.manifest_key(version), found)

    def _check_sizes(self, parts: Iterable[Part], sizes: Mapping[str, int]) -> None:
        suspects = [part for part in parts if sizes.get(part.unique) != part.size_bytes]
        asked = [partial(self._log.store.info, keys.part_key(part.unique)) for part in suspects]
        for part, found in zip(suspects, all_attempted(self._runtime, asked), strict=True):
            if isinstance(found, ObjectNotFound):
                self.report(UnusableCheckpoint(part, "it is missing"))
            elif isinstance(found, TxnLogError):
                self._findings.unread("checkpoint", keys.part_key(part.unique), found)
            elif found.size_bytes != part.size_bytes:
                text = f"it has {found.size_bytes:,} bytes, its manifest says {part.size_bytes:,}"
                self.report(UnusableCheckpoint(part, text))

    def report(self, error: UnusableCheckpoint) -> None:
        """Report an object of a checkpoint that is missing or damaged, and use no checkpoint that names it."""
        self.are_all_usable = False
        self._findings.add("warning", "checkpoint", error.key, f"{error.key} is unusable: {error.message}", _NEW_ONE)
        subject = error.subject
        if isinstance(subject, int):
            self.unusable[subject] = None
        for version, manifest in list(self._manifests.items()):
            if version == subject or subject in manifest.parts:
                del self._manifests[version]
                self.unusable[version] = None if version == subject else manifest

    def report_difference(self, manifest: Manifest, what: str) -> None:
        """Report that a checkpoint says something else than the entries: who opens the log from it is misled."""
        key = keys.manifest_key(manifest.version)
        self._manifests.pop(manifest.version, None)
        self.unusable[manifest.version] = None
        self._findings.add(
            "damage",
            "checkpoint",
            key,
            f"the checkpoint {manifest.version} differs from what the entries up to its version give, in {what}",
            Words("make it again from the entries: ", Call("repair"), f", which keeps the wrong one; {PAGE} says more"),
        )

    def usable(self, version: int) -> Manifest | None:
        """The manifest of the checkpoint at a version, None where there is none that is usable."""
        return self._manifests.get(version)

    def newest_first(self) -> Iterator[Manifest]:
        """The usable checkpoints, newest first, each judged when its turn comes."""
        for version in sorted(self._manifests, reverse=True):
            manifest = self._manifests.get(version)
            if manifest is not None:
                yield manifest

    def note_header(self, entry: Entry) -> None:
        """Note the checkpoint that the header of an entry names, and report it unless it is there."""
        named = entry.header.checkpoint
        if named is not None and named < entry.header.version and named not in self._named:
            self._named.add(named)
            self._read([named])

    def is_of(self, manifest: Manifest, entry: Entry) -> bool:
        """Whether a checkpoint is of this entry of its version, which is not damaged; one that is not is excluded."""
        if manifest.digest == entry.digest:
            return True
        self.exclude_foreign(manifest)
        return False

    def exclude_foreign(self, manifest: Manifest) -> None:
        """Use a checkpoint no more that is of another log: they are in copies of folders that were written to."""
        self.are_all_usable = False
        self._foreign.add(manifest.version)
        self._manifests.pop(manifest.version, None)

    def check_entries_of(self, slots: Slots) -> None:
        """Read the entry that each checkpoint is of: whether it is of this log, and which one its header names."""
        wanted = sorted(self._manifests)
        found = all_attempted(self._runtime, self._log.reads(wanted, NO_ENTRIES))
        for version, data in zip(wanted, found, strict=True):
            manifest = self._manifests[version]
            if isinstance(data, bytes) and digest_of(data) == manifest.digest:
                self._findings.looked_at("entry", of=slots.version + 1)
                self.note_header(decode_entry(data, version))
                continue
            for _, entry in judged(self._log, self._runtime, self._findings, version, version, slots):
                if entry is not None:
                    self.note_header(entry)
                    self.is_of(manifest, entry)

    def report_foreign(self) -> None:
        """Report those of another log, once all headers were read."""
        for version in sorted(self._foreign):
            key = keys.manifest_key(version)
            named = version in self._named
            if named:
                self.unusable[version] = None
            self._findings.add(
                "warning" if named else "note",
                "checkpoint",
                key,
                f"the checkpoint {version} is of another log than the entry of its version",
                _NEW_ONE if named else "nothing to do: no header names it, and it is not used",
            )

    def verify(self, but: Iterable[Part]) -> None:
        """Read all parts that the usable checkpoints name, but for some that were read: whether they are whole."""
        parts = {part for manifest in self._manifests.values() for part in manifest.parts}.difference(but)
        reads = [partial(self._verified, part) for part in parts]
        for part, found in zip(parts, all_attempted(self._runtime, reads), strict=True):
            if isinstance(found, UnusableCheckpoint):
                self.report(found)
            elif isinstance(found, TxnLogError):
                self._findings.unread("checkpoint", keys.part_key(part.unique), found)

    def _verified(self, part: Part) -> None:
        self._log.checkpoints.verify([part])


__all__ = ["Checkpoints"]
