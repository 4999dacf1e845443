"""Names of the demo's namespace, topics and subscription."""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "airport"
FLIGHTS: Final = "flights"
DELAYS: Final = "delays"
CARRIER_TOTALS: Final = "carrier_totals"
SUBSCRIPTION: Final = "delay-report"

__all__ = ["CARRIER_TOTALS", "DELAYS", "FLIGHTS", "NAMESPACE", "SUBSCRIPTION"]
