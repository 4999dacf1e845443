"""The command that shows a namespace at work."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Final

import click

from txnlog.cli.commands import duration
from txnlog.cli.output import Printer
from txnlog.cli.rendering import rendered
from txnlog.cli.target import Target
from txnlog.cli.top_frame import Line, Size, frame, record
from txnlog.cli.top_readings import Reading, read
from txnlog.cli.top_screen import Woken, noting_ctrl_c, pause, plain_size, terminal
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.installed import installed_version
from txnlog.common.validation import Duration, duration_ms, time_of
from txnlog.engine.runtime import SYSTEM_CLOCK, Clock
from txnlog.errors import TxnLogError

LEAST_INTERVAL_MS: Final = 100
"""Below it a screen would do little but ask the store."""


class Watch:
    """Reads a namespace again and again, and knows what the newest reading and the one before it were.

    Args:
        reading: reads the namespace, given the reading before.
        clock: the clock of the readings.
        wording: an error in a line.
    """

    def __init__(
        self, reading: Callable[[Reading | None], Reading], clock: Clock, wording: Callable[[TxnLogError], str]
    ) -> None:
        self._reading = reading
        self._clock = clock
        self._wording = wording
        self.earlier: Reading | None = None
        self.now = reading(None)  # what cannot be read at all is an error of the command
        self._error: tuple[int, str] | None = None

    def read(self, *, and_raise: bool = False) -> None:
        """Read again. An error stands in the next frames until a reading succeeds, unless it is raised."""
        try:
            self.earlier, self.now = self.now, self._reading(self.now)
            self._error = None
        except TxnLogError as error:
            if and_raise:
                raise
            since_ms = self._clock.now_ms() if self._error is None else self._error[0]
            self._error = (since_ms, self._wording(error))

    @property
    def error(self) -> str | None:
        """Why the newest reading is not newer."""
        return None if self._error is None else self._error[1]

    def frame(self, size: Size) -> list[Line]:
        """What is shown now."""
        notes: list[Line] = []
        if self._error is not None:
            since_ms, text = self._error
            notes.append(Line(f"since {time_of(since_ms).isoformat(timespec='seconds')}: {text}", "error"))
        return frame(self.earlier, self.now, size, notes)


def run(watch: Watch, show: Callable[[], None], wait: Callable[[int], Woken], interval_ms: int) -> None:
    """Show frame after frame, until somebody ends it.

    Args:
        watch: is read between two frames.
        show: shows what it knows.
        wait: waits so many milliseconds, and says why it ended.
        interval_ms: how long a frame is shown.
    """
    with noting_ctrl_c() as is_pressed:
        while not is_pressed():
            show()
            while (woken := wait(interval_ms)) == "resized":
                show()
            if woken == "end":
                return
            watch.read()


@click.command()
@click.option(
    "--interval",
    type=duration,
    metavar="DURATION",
    default="2s",
    show_default=True,
    help="How long a frame is shown before the namespace is read again.",
)
@click.option("--once", is_flag=True, help="Print one frame, of two readings with the interval between them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a frame, until Ctrl-C or with --once.")
@click.pass_context
def top(context: click.Context, interval: Duration, *, once: bool, as_json: bool) -> None:
    """Watch the namespace at work: lag, transactions, topics, what matters most first. Only reads. q or Ctrl-C ends it.

    In a pipe it prints one frame, as with --once.
    """
    interval_ms = duration_ms("interval", interval, LEAST_INTERVAL_MS, MAX_NUMBER)
    target: Target = context.obj
    root = context.find_root().command
    assert isinstance(root, click.Group), "the command line has commands"

    def wording(error: TxnLogError) -> str:
        return f"{type(error).__name__}: {rendered(error.message, root, context.command)}"

    with target.open() as ns:
        watch = Watch(lambda earlier: read(ns, earlier, SYSTEM_CLOCK.now_ms()), SYSTEM_CLOCK, wording)
        if once:
            _print_one(watch, interval_ms, as_json=as_json)
        elif as_json:
            with contextlib.suppress(KeyboardInterrupt):
                run(watch, lambda: _print_record(watch), pause, interval_ms)
        elif not _shown_on_screen(watch, interval_ms):
            _print_one(watch, interval_ms, as_json=False)
            if sys.stdout.isatty() and installed_version("rich") is None:
                click.echo("A screen needs the package rich: pip install 'txnlog[progress]'", err=True)


def _shown_on_screen(watch: Watch, interval_ms: int) -> bool:
    """Show frames on the terminal until somebody ends it. Returns whether there is one."""
    with contextlib.suppress(KeyboardInterrupt), terminal() as screen:
        if screen is None:
            return False
        run(watch, lambda: screen.show(watch.frame(screen.size)), screen.wait, interval_ms)
    return True


def _print_one(watch: Watch, interval_ms: int, *, as_json: bool) -> None:
    pause(interval_ms)
    watch.read(and_raise=True)
    if as_json:
        _print_record(watch)
    else:
        for line in watch.frame(plain_size()):
            click.echo(line.text)


def _print_record(watch: Watch) -> None:
    Printer(as_json=True).record(record(watch.earlier, watch.now, watch.error))


__all__ = ["Watch", "run", "top"]
