"""Which store this is, in a form that may be written into a log: no secret, the same for everybody who opens it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """What a recorded verdict of the probe holds good for.

    Attributes:
        store_kind: the protocol and who speaks it, such as ``s3/s3fs``, ``local``, ``memory``.
        endpoint_hash: 16 hexadecimal digits over protocol, endpoint and bucket (or the resolved root of a local
            store). Two roots in one bucket share it; the same bucket name behind another endpoint does not.
        sends_condition: whether create-if-absent is known to be left to whoever can decide it. False of fsspec's other
            file systems, most of which look first and write then: the probe refuses them.
    """

    store_kind: str
    endpoint_hash: str
    sends_condition: bool = True


@runtime_checkable
class Identified(Protocol):
    """A store that knows its identity. Every store of this package does; wrappers answer for what they wrap."""

    @property
    def identity(self) -> StoreIdentity:
        """The store's identity."""


def identity_of(store: object) -> StoreIdentity:
    """The identity of any store; one without (a simulated store of a test) is known by its class alone."""
    if isinstance(store, Identified):
        return store.identity
    return make_identity(f"other/{type(store).__name__}", "", "")


def make_identity(store_kind: str, endpoint: str, container: str, *, sends_condition: bool = True) -> StoreIdentity:
    """Identity from where requests go; credentials in ``endpoint`` (``user:password@``, a query) stay out of it."""
    where = f"{store_kind}\n{_plain_endpoint(endpoint)}\n{container}"
    return StoreIdentity(store_kind, hashlib.sha256(where.encode()).hexdigest()[:16], sends_condition)


def _plain_endpoint(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if not parts.hostname:
        return endpoint.partition("?")[0]
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}"


__all__ = ["Identified", "StoreIdentity", "identity_of", "make_identity"]
