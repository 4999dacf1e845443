"""The progress line of ``spark_ext.process`` on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress_line(title: str, *, wanted: bool) -> Iterator[Callable[[str], None]]:
    """Context with a function that shows a text in the last line of the terminal; the line is removed at the end.

    Without a terminal, or without the package ``rich``, the function does nothing: progress is in the log as well.
    """
    console = _terminal() if wanted else None
    if console is None:
        yield lambda _text: None
        return
    from rich.text import Text  # noqa: PLC0415

    with console.status(Text(f"{title}: waiting")) as status:
        yield lambda text: status.update(Text(f"{title}: {text}"))


def _terminal() -> Console | None:
    if not sys.stderr.isatty():  # also where a setting makes rich treat a pipe as a terminal
        return None
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    console = Console(stderr=True)
    return console if console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter else None


__all__ = ["progress_line"]
