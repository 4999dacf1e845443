"""Errors of the catalog, below those of ``txnlog.errors``: a class is what the caller does next."""

from __future__ import annotations

from txnlog.errors import StoreError


class ForeignDeltaLog(StoreError):
    """The Delta table of a topic, or one in its place, was written by others than txnlog. It was left as it is."""

    _default_advice = "move it away, or remove its _delta_log, then publish again"


__all__ = ["ForeignDeltaLog"]
