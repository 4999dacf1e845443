"""Making unusable checkpoints usable: with the parts that their manifests name, or again, at the same version.

What a checkpoint holds follows from the entries, so one that is made again says the same (P-125), and nothing of the
damaged one is read for it. Whoever reads the old manifest meanwhile cannot use it either way.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from txnlog.client.checkpointer import checkpoint_of
from txnlog.errors import CorruptionError, UnsupportedFeature
from txnlog.fold.state import State
from txnlog.format import keys
from txnlog.format.codec import decode_entry
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import Manifest, Part
from txnlog.log.log_reader import Log
from txnlog.log.slots import put_unnamed
from txnlog.maintenance.fsck.checkpoints import Checkpoints
from txnlog.maintenance.fsck.findings import attempted
from txnlog.maintenance.repair.entries import check_of_log
from txnlog.maintenance.repair.work import FROM_COPY, LeftError, Work
from txnlog.store.base import ObjectNotFound, Store

_AGAIN: Final = "made again from the log"


def repair_checkpoints(work: Work, checkpoints: Checkpoints) -> None:
    """Make the checkpoints usable that a check reported."""
    usable = {manifest.version: manifest for manifest in checkpoints.newest_first()}
    unusable = sorted(checkpoints.unusable.items())
    for done, (version, manifest) in enumerate(unusable):
        repaired = _with_parts(work, manifest) or _made_again(work, version, usable)
        if repaired is not None:
            usable[version] = repaired
        work.show("checkpoint", done + 1, len(unusable))


def _with_parts(work: Work, manifest: Manifest | None) -> Manifest | None:
    """The manifest, where the copy has all parts of it that are missing or damaged, and it is usable then; else None.

    Another checkpoint may have brought back what both name.
    """
    if manifest is None or work.copy is None:
        return None
    bad = [part for part in manifest.parts if attempted(partial(_read, work.store, part)) is not None]
    try:
        found = [(part, work.copy.take(keys.part_key(part.unique), partial(_check, part))) for part in bad]
    except LeftError:
        return None
    for part, data in found:
        key = keys.part_key(part.unique)
        work.attempt("checkpoint", key, FROM_COPY, partial(work.store.put, key, data))
    reader = Log(work.store, work.runtime).checkpoints
    for part in manifest.parts:
        if attempted(partial(_read, work.store, part)) is not None:
            return None
    return manifest if isinstance(attempted(partial(reader.restore, manifest)), State) else None


def _read(store: Store, part: Part) -> None:
    _check(part, store.get(keys.part_key(part.unique)))


def _check(part: Part, data: bytes) -> None:
    checkpoint_codec.read_part(data, part)


def _made_again(work: Work, version: int, usable: dict[int, Manifest]) -> Manifest | None:
    """The checkpoint of a version, made from the newest usable one below it; None where that cannot be."""
    base = max((below for below in usable if below < version), default=None)
    made: list[Manifest] = []

    def make() -> None:
        if _is_of_newer_txnlog(work, version):
            raise LeftError("a newer txnlog made it, which can make it again")
        try:
            manifest, objects = _checkpoint(work, version, None if base is None else usable[base])
        except (CorruptionError, UnsupportedFeature) as error:
            raise LeftError(f"it cannot be made again: {error.message}") from None
        put_unnamed(work.store, work.runtime, objects)
        check = partial(check_of_log, Log(work.store, work.runtime), version, manifest.digest)
        work.put_in_place(keys.manifest_key(version), checkpoint_codec.encode_manifest(manifest), check)
        made.append(manifest)

    work.attempt("checkpoint", keys.manifest_key(version), _AGAIN, make)
    return made[0] if made else None


def _checkpoint(work: Work, version: int, base: Manifest | None) -> tuple[Manifest, list[tuple[str, bytes]]]:
    log = Log(work.store, work.runtime)
    state = State() if base is None else log.checkpoints.restore(base)
    log.fold(state, version)
    following = log.get(version + 1)
    if following is not None and decode_entry(following, version + 1).header.previous != state.head.digest:
        raise CorruptionError(f"entry {version} is not the one that entry {version + 1} continues")
    return checkpoint_of(state, base, log.checkpoints.read_run, work.runtime.unique)


def _is_of_newer_txnlog(work: Work, version: int) -> bool:
    try:
        checkpoint_codec.decode_manifest(work.store.get(keys.manifest_key(version)), version)
    except UnsupportedFeature:
        return True
    except (CorruptionError, ObjectNotFound):
        return False
    return False


__all__ = ["repair_checkpoints"]
