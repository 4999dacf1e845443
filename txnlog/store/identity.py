"""Which store this is, in a form that may be written into a log: no secret, the same for everybody who opens it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
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

    @property
    def is_near(self) -> bool:
        """Whether a request mostly takes less time than to hand it to another thread."""
        return self.store_kind in {"local", "memory"}


def identity_of(store: object) -> StoreIdentity:
    """The identity of any store; one without (a simulated store of a test) is known by its class alone.

    Every store of this package has a property ``identity``, and a wrapper's is that of what it wraps. It is asked once:
    a look whether it is there would be another question, so that each wrapper would double the questions.
    """
    identity: StoreIdentity | None = getattr(store, "identity", None)
    return identity or make_identity(f"other/{type(store).__name__}", "", "")


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


__all__ = ["StoreIdentity", "identity_of", "make_identity"]
