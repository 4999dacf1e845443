"""Errors of the catalog, below those of ``txnlog.errors``: a class is what the caller does next."""

from __future__ import annotations

from txnlog.errors import StoreError


class ForeignDeltaLog(StoreError):
    """Somebody else's Delta table lies where a topic's should, or somebody else wrote to it. It was left as it is."""

    _default_advice = "move it away, or remove its _delta_log, then publish again"


__all__ = ["ForeignDeltaLog"]
