"""Counts what the suite of stores ran on each store: a store that fewer tests looked at is not a conforming one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping


class Accounts:
    """Conformance tests passed, by store."""

    def __init__(self) -> None:
        self.passed: dict[str, set[str]] = defaultdict(set)

    def add(self, store: str, test: str) -> None:
        """Note one passed test."""
        self.passed[store].add(test)

    def lines(self, stores: Mapping[str, object]) -> list[str]:
        """One line per store for the terminal's summary."""
        return [f"{len(self.passed[store]):4d} conformance tests passed on {store}" for store in stores]

    def fault(self, stores: Mapping[str, object]) -> str | None:
        """What is wrong with the counts, if anything."""
        everything = set().union(*self.passed.values()) if self.passed else set()
        for store in stores:
            missing = everything - self.passed[store]
            if missing:
                return f"{store} did not pass {len(missing)} tests that another store passed: {sorted(missing)[:3]}"
        return None
