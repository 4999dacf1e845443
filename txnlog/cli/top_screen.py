"""A terminal that ``top`` draws on: a screen of its own, keys without Enter, and at the end all as it was."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Final, Literal, Protocol

from txnlog.cli.top_frame import Line, Size, Style

Woken = Literal["due", "resized", "end"]
"""Why a wait has ended: its time is over, the terminal has another size, or somebody wants to end."""

_STYLES: Final[dict[Style, str]] = {
    "": "",
    "title": "bold",
    "heading": "reverse",
    "warning": "yellow",
    "error": "bold red",
}

_LOOK_MS: Final = 200
"""How often a screen that waits looks whether its terminal has another size."""

_MOST_RECORDS: Final = 100
"""Log records that are kept while nobody can read them: the newest ones."""

_logger = logging.getLogger("txnlog")


class Screen(Protocol):
    """Where frames are shown, one in place of the other."""

    @property
    def size(self) -> Size:
        """What there is room for now."""

    def show(self, lines: Sequence[Line]) -> None:
        """Show a frame in place of the one before."""

    def wait(self, milliseconds: int) -> Woken:
        """Wait as long, or until the size changes, or somebody wants to end."""


@contextlib.contextmanager
def terminal() -> Iterator[Screen | None]:
    """Context with the terminal as a screen. Without a terminal, or without the package ``rich``, None.

    The standard input gives single keys meanwhile, and log records are printed at the end. Also where a signal ends
    the process, the terminal is as it was.
    """
    found = _rich_screen() if sys.stdout.isatty() else None
    if found is None:
        yield None
        return
    with _ends_in_order(), _records_afterwards(), _single_keys(), found:
        yield found


def pause(milliseconds: int) -> Woken:
    """Wait as long, where nobody can end it but by Ctrl-C."""
    time.sleep(milliseconds / 1_000)
    return "due"


@contextlib.contextmanager
def noting_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Context with the question whether somebody pressed Ctrl-C, which also raises KeyboardInterrupt as always.

    Python drops an error that is raised while a finalizer runs: then only the note is left of it.
    """
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def plain_size() -> Size:
    """The size of a frame that is printed: that of the terminal but for the line of its prompt, or 80 times 24."""
    columns, lines = shutil.get_terminal_size((80, 25))
    return Size(columns, lines - 1)


def _rich_screen() -> _RichScreen | None:
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    console = Console()
    return None if not console.is_terminal or console.is_dumb_terminal else _RichScreen()


class _RichScreen:
    """The alternate screen of a terminal."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stderr=False)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @property
    def size(self) -> Size:
        """What there is room for now."""
        return Size(*self._console.size)

    def show(self, lines: Sequence[Line]) -> None:
        """Show a frame in place of the one before."""
        from rich.text import Text  # noqa: PLC0415

        texts = [Text(line.text, _STYLES[line.style], no_wrap=True, overflow="crop") for line in lines]
        self._live.update(Text("\n", no_wrap=True, overflow="crop").join(texts), refresh=True)

    def wait(self, milliseconds: int) -> Woken:
        """Wait as long, or until the size changes, or ``q`` is typed."""
        size, end = self.size, time.monotonic() + milliseconds / 1_000
        while (left := end - time.monotonic()) > 0:
            if "q" in _typed(min(left, _LOOK_MS / 1_000)).lower():
                return "end"
            if self.size != size:
                return "resized"
        return "due"


def _typed(seconds: float) -> str:
    """What is typed within a time; nothing where the standard input is no terminal."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return ""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1_024).decode(errors="replace") if ready else ""


@contextlib.contextmanager
def _single_keys() -> Iterator[None]:
    """Context in which keys come without Enter, are not shown, and do not stop the process in its screen."""
    try:
        import termios  # noqa: PLC0415 - not on Windows, where Ctrl-C ends it
        import tty  # noqa: PLC0415
    except ImportError:
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        during = termios.tcgetattr(sys.stdin)
        during[6][termios.VSUSP] = b"\0"  # Ctrl-Z: the shell would write on this screen
        termios.tcsetattr(sys.stdin, termios.TCSANOW, during)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, before)


@contextlib.contextmanager
def _ends_in_order() -> Iterator[None]:
    """Context in which SIGTERM and SIGHUP end the process by an exception, so that others restore what they changed."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = [(number, signal.signal(number, end)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextlib.contextmanager
def _records_afterwards() -> Iterator[None]:
    """Context in which log records are kept, and printed at the end as logging does it by itself."""
    kept = _Kept()
    _logger.addHandler(kept)
    try:
        yield
    finally:
        _logger.removeHandler(kept)
        kept.report()


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._records: deque[logging.LogRecord] = deque(maxlen=_MOST_RECORDS)

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)

    def report(self) -> None:
        """Print them, unless another handler of the process has had them."""
        if not logging.getLogger().handlers and logging.lastResort is not None:
            for record in self._records:
                logging.lastResort.handle(record)


__all__ = ["Screen", "Woken", "noting_ctrl_c", "pause", "plain_size", "terminal"]
