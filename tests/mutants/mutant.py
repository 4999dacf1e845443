"""What a planted bug is: text that is replaced, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Attributes:
        name: what it does.
        file: where, from the root of the project.
        original: text that occurs once in it, as a whole or a part of a line.
        replacement: what stands there instead.
        why: what would go wrong.
        tests: pytest ids; at least one of them must fail, and all pass without the mutant.
    """

    name: str
    file: str
    original: str
    replacement: str
    why: str
    tests: tuple[str, ...]
