"""A line for people who watch ``spark_ext.process`` on a terminal; nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress_line(title: str, *, wanted: bool) -> Iterator[Callable[[str], None]]:
    """Inside, what the yielded function is told stands in the last line of the terminal, and is gone afterwards.

    Where there is no terminal, or the package ``rich`` is not installed, it does nothing: there is the log.
    """
    console = _terminal() if wanted else None
    if console is None:
        yield lambda _text: None
        return
    from rich.text import Text  # noqa: PLC0415

    with console.status(Text(f"{title}: waiting")) as status:
        yield lambda text: status.update(Text(f"{title}: {text}"))


def _terminal() -> Console | None:
    if not sys.stderr.isatty():  # also where a setting tells rich to take a pipe for a terminal
        return None
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    console = Console(stderr=True)
    return console if console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter else None


__all__ = ["progress_line"]
