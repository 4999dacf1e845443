"""The last gate before a key becomes a path: whatever a caller hands in, no store leaves its root.

Keys are built by :mod:`txnlog.format.keys` from checked names, so a key that fails here is a bug or an attack, never a
user's choice. The alphabet is an allow-list that means the same to POSIX, S3, Azure, GCS, URLs and shells: nothing in
it is a wildcard, a query, an escape or a separator but ``/``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from txnlog.errors import Durable, StoreError

MAX_KEY_CHARACTERS: Final = 768
"""S3, Azure and GCS take 1,024 bytes; this leaves a root's own path room."""

MAX_PART_CHARACTERS: Final = 255
"""The longest file name of a POSIX file system."""

TEMPORARY_PREFIX: Final = ".txnlog-tmp-"
"""What :class:`txnlog.store.local.LocalStore` calls files it has not finished; never a key, never listed."""

_PART: Final = rf"(?!\.\.?(?:/|\Z))(?!{re.escape(TEMPORARY_PREFIX)})[A-Za-z0-9_.~=-]{{1,{MAX_PART_CHARACTERS}}}(?=/|\Z)"
_KEY: Final = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)


@lru_cache(maxsize=1024)
def is_key(key: str) -> bool:
    """Whether ``key`` may name an object. Listings skip what is none: a stranger's file, an unfinished one."""
    return len(key) <= MAX_KEY_CHARACTERS and _KEY.fullmatch(key) is not None


def check_key(key: str) -> str:
    """``key`` itself, or StoreError where it could mean anything but one object below the root."""
    if not is_key(key):
        raise _refusal("object key", key)
    return key


def check_prefix(prefix: str) -> str:
    """``prefix`` itself: empty, a folder with its ``/``, or the beginning of a key."""
    complete = prefix.removesuffix("/")
    if prefix and not is_key(complete):
        raise _refusal("prefix", prefix)
    return prefix


def split_prefix(prefix: str) -> tuple[str, str]:
    """The deepest whole folder of a prefix, without its ``/``, and the rest that names in it begin with."""
    folder, _, rest = prefix.rpartition("/")
    return folder, rest


def _refusal(what: str, text: str) -> StoreError:
    return StoreError(
        f"{text[:MAX_PART_CHARACTERS]!a} is no {what}: parts of A-Z a-z 0-9 _ . ~ = - between single slashes",
        advice="keys come from txnlog.format.keys: report this as a bug",
        durable=Durable.NOTHING,
    )


__all__ = [
    "MAX_KEY_CHARACTERS",
    "MAX_PART_CHARACTERS",
    "TEMPORARY_PREFIX",
    "check_key",
    "check_prefix",
    "is_key",
    "split_prefix",
]
