"""What the command lines of all runs with kills have in common: a seed, a folder that goes or stays, and findings."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a run happens; ``base`` is removed at its end unless it is to be kept, or there are findings."""

    seed: int
    base: Path
    kept: bool
    console: Console = field(repr=False)

    @classmethod
    def of(cls, given: argparse.Namespace, name: str) -> Self:
        """From what was given; a temporary folder has the name in its own. Prints the seed."""
        seed = secrets.randbits(32) if given.seed is None else given.seed
        console = Console(width=None if sys.stdout.isatty() else 120)
        console.print(f"seed {seed}", highlight=False)
        if given.keep is None:
            base = Path(tempfile.mkdtemp(prefix=f"txnlog-{name}-"))
        else:
            base = given.keep.resolve()
            base.mkdir(parents=True)
        return cls(seed, base, given.keep is not None, console)

    def end(self, found: Sequence[str], what_is_kept: str) -> int:
        """Print the findings, and where everything is; the exit code."""
        if found:
            found = [*found, f"seed {self.seed}; {what_is_kept} are in {self.base}"]
        elif not self.kept:
            shutil.rmtree(self.base)
        for text in found:
            self.console.print(text, markup=False, highlight=False)
        return 1 if found else 0


def add_arguments(parser: argparse.ArgumentParser, what_is_kept: str) -> None:
    """The options ``--seed`` and ``--keep``."""
    parser.add_argument("--seed", type=int, help="repeats the choices of a run, not what the machine makes of them")
    parser.add_argument("--keep", type=Path, metavar="DIR", help=f"a new folder for {what_is_kept}, which stay")


__all__ = ["Surroundings", "add_arguments"]
