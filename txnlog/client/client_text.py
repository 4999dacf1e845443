"""Who a client says it is, in the blocks of numbers that it reserves: a name, host and process, the library (P-253).

No name of a user, no path and nothing of the environment is part of it: whoever may read the log sees it, for ever.
"""

from __future__ import annotations

import os
import re
import socket
from typing import Final

from txnlog.common.installed import installed_version
from txnlog.common.names import parse_label
from txnlog.common.writer_text import MAX_CLIENT_CHARACTERS
from txnlog.errors import InvalidInputError

_MAX_NAME_CHARACTERS: Final = 64
_MAX_HOST_CHARACTERS: Final = 48
_MAX_VERSION_CHARACTERS: Final = 20
"""All together, with a process id of ten digits, are what a writer may say."""

_ODD: Final = re.compile(r"[^A-Za-z0-9._+-]")


def parse_client_name(name: object) -> str:
    """The name of a client, a label. Raises InvalidInputError for anything else, and for one that is too long."""
    label = parse_label("name of the client", name)
    if len(label) > _MAX_NAME_CHARACTERS:
        raise InvalidInputError(
            f"the name of the client has {len(label):,} characters", advice=f"use at most {_MAX_NAME_CHARACTERS}"
        )
    return label


def client_text(name: str | None, *, of_process: bool = True) -> str:
    """What this process says; a simulation, which has none, says its name alone."""
    parts = [] if name is None else [name]
    if of_process:
        host = _ODD.sub("_", socket.gethostname())[:_MAX_HOST_CHARACTERS]
        version = _ODD.sub("_", installed_version("txnlog") or "")[:_MAX_VERSION_CHARACTERS]
        parts += [f"{host}:{os.getpid()}", f"txnlog/{version}".rstrip("/")]
    return " ".join(parts)[:MAX_CLIENT_CHARACTERS]


__all__ = ["client_text", "parse_client_name"]
