"""``top``: what it reads of a namespace, how frame follows frame, and what a terminal, a pipe and a program get."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

import txnlog
from tests.cli.command_line import lines, run
from tests.client.support import SCHEMA, Place, memory_place, rows
from txnlog.cli import top, top_readings
from txnlog.cli.top_frame import Size
from txnlog.cli.top_readings import read
from txnlog.common.validation import time_of
from txnlog.errors import StoreError
from txnlog.store import HookStore
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

__all__ = ["memory_place"]  # a fixture

SIZE = Size(80, 24)


@pytest.fixture
def clock():
    return ManualClock(START_MS)


@pytest.fixture
def busy(memory: Place, clock: ManualClock):
    """A handle that writes, and one that only reads."""
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA, partitions=2)
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", rows(*range(10)))
    ns.create_subscription("orders", "billing")
    return ns, memory.open(mode="r", clock=clock)


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_reading_has_what_the_other_commands_show(busy, clock):
    ns, reader = busy
    first = read(reader, None, clock.now_ms())
    with ns.consumer("orders", "billing", name="worker-1") as consumer:
        consumer.acknowledge(consumer.receive(4, timeout_ms=0))
    clock.advance(5_000)
    ns.produce("orders", rows(10, 11))
    open_one = ns.producer("loader").begin()
    open_one.produce("audit", rows(1))
    open_one.flush()
    ns.delete_records("orders", {0: 1}, allow_unacknowledged=True)
    clock.advance(1_000)
    second = read(reader, first, clock.now_ms())
    orders = second.topics["orders"]
    snapshot = ns.snapshot()
    assert (orders.written, orders.messages) == (12, 11)
    assert (orders.files, orders.size_bytes > 0) == (2, True)
    assert (second.version, second.namespace, list(second.topics)) == (snapshot.version, "sales", ["audit", "orders"])
    billing = second.subscriptions["orders", "billing"]
    lag = ns.lag("orders", "billing")
    assert (billing.lag_messages, billing.consumer) == (sum(item.behind_messages for item in lag), "worker-1")
    assert billing.lag_ms == max(item.behind_ms for item in lag if item.behind_ms is not None)
    assert [(str(item.txn_id), item.producer, item.age_ms) for item in second.unended] == [
        (str(open_one.id), "loader", 1_000)
    ]
    assert (first.committed, second.committed, second.committed_since_ms) == (0, 2, START_MS)
    assert not second.is_hanging(second.unended[0])
    open_one.abort()


def test_readings_only_read_and_an_idle_namespace_costs_four_requests(busy, memory, clock):
    ns, _ = busy
    reader, store = memory.counted(mode="r", clock=clock)
    reading = read(reader, None, clock.now_ms())
    ns.produce("orders", rows(12))
    reading = read(reader, reading, clock.now_ms())
    assert {call for call, _ in store.counts()} <= {"get", "list", "info"}
    store.reset()
    read(reader, reading, clock.now_ms())
    assert sum(store.counts().values()) == 4
    assert ns.snapshot().version == reading.version


def test_the_entries_of_a_minute_are_read_once(busy, clock):
    ns, reader = busy
    first = read(reader, None, clock.now_ms())
    assert [item.version for item in first.entries] == list(range(first.version, -1, -1))
    clock.advance(59_000)
    ns.produce("orders", rows(20))
    second = read(reader, first, clock.now_ms())
    assert [item.version for item in second.entries] == list(range(second.version, -1, -1))
    clock.advance(2_000)
    third = read(reader, second, clock.now_ms())
    kept = [item.timestamp_ms for item in third.entries]
    assert kept == [START_MS + 59_000, START_MS], "and one before the minute, which says that all of it is known"


def test_where_more_entries_came_than_are_asked_for_those_before_are_forgotten(busy, clock, monkeypatch):
    ns, reader = busy
    monkeypatch.setattr(top_readings, "MOST_ENTRIES", 3)
    first = read(reader, None, clock.now_ms())
    for number in range(4):
        ns.produce("orders", rows(number))
    second = read(reader, first, clock.now_ms())
    assert [item.version for item in second.entries] == [second.version - place for place in range(3)]
    ns.produce("orders", rows(9))
    third = read(reader, second, clock.now_ms())
    assert [item.version for item in third.entries] == [third.version - place for place in range(4)]


# --- frame after frame ------------------------------------------------------------------------------------------------


class FakeScreen:
    """Shows into a list; each wait is answered from a script, and does its work first."""

    def __init__(self, watch, *script):
        self.watch = watch
        self.script = list(script)
        self.frames = []
        self.waited = []

    def show(self):
        self.frames.append([line.text for line in self.watch.frame(SIZE)])

    def wait(self, milliseconds):
        self.waited.append(milliseconds)
        woken = self.script.pop(0)
        return (woken() or "due") if callable(woken) else woken


def test_a_store_that_fails_for_a_while_is_a_line_and_the_watching_goes_on(busy, memory, clock):
    ns, _ = busy
    failures: list[StoreError] = []

    def before(call, key):
        if failures:
            raise failures[-1]

    reader = memory.open(wrap=lambda store: HookStore(store, before=before), mode="r", clock=clock)
    watch = top.Watch(lambda earlier: read(reader, earlier, clock.now_ms()), clock, str)

    def breaks(text):
        clock.advance(2_000)
        failures.append(StoreError(text))

    def heals():
        clock.advance(2_000)
        failures.clear()
        ns.produce("orders", rows(*range(6)))

    screen = FakeScreen(watch, lambda: breaks("away"), lambda: breaks("still away"), heals, "end")
    top.run(watch, screen.show, screen.wait, 2_000)
    good, away, still_away, healed = screen.frames
    assert away[:3] == good[:3]
    since = time_of(START_MS + 2_000).isoformat()
    assert away[3].startswith(f"since {since}: away (check the store")
    assert still_away[3].startswith(f"since {since}: still away ("), "since the first of them"
    assert healed[3] == ""
    (orders,) = [line for line in healed if line.startswith("orders")]
    assert orders.split()[1:3] == ["1.0", "16"], "six messages in the six seconds since the reading before"
    assert screen.waited == [2_000] * 4


def test_another_size_shows_the_frame_again_and_reads_nothing(busy, clock):
    _, reader = busy
    read_so_far = []

    def reading(earlier):
        read_so_far.append(1)
        return read(reader, earlier, clock.now_ms())

    watch = top.Watch(reading, clock, str)
    screen = FakeScreen(watch, "resized", "resized", "due", "end")
    top.run(watch, screen.show, screen.wait, 500)
    assert (len(screen.frames), len(read_so_far)) == (4, 2)


def test_what_cannot_be_read_at_all_is_an_error_of_the_command(clock):
    def reading(_earlier):
        raise StoreError("away")

    with pytest.raises(StoreError):
        top.Watch(reading, clock, str)


# --- pipes and programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [("--once",), ()])
def test_a_pipe_gets_one_plain_frame(lake, options):
    path, open_one = lake
    done = run(path, "top", "--interval", "100ms", *options)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    assert "\x1b" not in done.stdout
    assert shown[0].startswith("sales  version ")
    assert shown[2] == "transactions: 1 open, 0 prepared, 0 hanging"
    assert [line.split()[:3] for line in shown if line.startswith("billing")] == [["billing", "orders", "2"]]
    assert [line.split()[:2] for line in shown if str(open_one.id) in line] == [[str(open_one.id), "OPEN"]]
    assert [line.split()[:3] for line in shown if line.startswith("orders")] == [["orders", "0.0", "2"]]


def test_a_plain_frame_has_the_size_that_the_surroundings_say(lake, monkeypatch):
    with txnlog.open(lake[0]) as ns:
        for number in range(30):
            ns.create_topic(f"topic-of-a-rather-long-name-{number}")
    asked = (lake[0], "top", "--once", "--interval", "100ms")
    assert 22 < len(run(*asked).stdout.splitlines()) <= 24  # a line less where the transaction timed out meanwhile
    monkeypatch.setenv("LINES", "100")
    monkeypatch.setenv("COLUMNS", "60")
    shown = run(*asked).stdout.splitlines()
    assert (len([line for line in shown if line.startswith("topic-")]), max(map(len, shown))) == (30, 60)


def test_a_program_gets_one_object_a_frame(lake):
    path, open_one = lake
    (found,) = lines(path, "top", "--once", "--json", "--interval", "100ms")
    assert (found["namespace"], found["error"], found["open"]) == ("sales", None, 1)
    assert found["transactions"][0]["txn_id"] == str(open_one.id)
    assert found["topics"] == [
        {"topic": "orders", "messages_per_second": 0.0, "messages": 2, "size_bytes": found["topics"][0]["size_bytes"]}
        | {"files": 1}
    ]
    assert found["subscriptions"][0]["lag_messages"] == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_ends_it_although_a_finalizer_had_the_error(busy, clock):
    """Python drops what is raised there."""

    class Dropped:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    rounds = []

    def wait(_milliseconds):
        rounds.append(Dropped())
        rounds[-1] = None
        assert len(rounds) < 9
        return "due"

    watch = top.Watch(lambda earlier: read(busy[1], earlier, clock.now_ms()), clock, str)
    before = signal.getsignal(signal.SIGINT)
    top.run(watch, lambda: None, wait, 100)
    assert len(rounds) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_objects_follow_each_other_until_ctrl_c(lake):
    command = [sys.executable, "-m", "txnlog", lake[0], "top", "--json", "--interval", "100ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        found = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (0, "")
    assert [item["topics"][0]["messages_per_second"] for item in found] == [None, 0.0, 0.0]


def test_nothing_is_written_by_top(lake):
    def files():
        return sorted(os.path.join(folder, name) for folder, _, names in os.walk(lake[0]) for name in names)

    before = files()
    assert run(lake[0], "top", "--once", "--interval", "100ms").returncode == 0
    assert files() == before


@pytest.mark.parametrize("interval", ["99ms", "soon", "-1", "0"])
def test_an_interval_that_makes_no_sense_is_refused(lake, interval):
    done = run(lake[0], "top", "--once", "--interval", interval)
    assert (done.returncode, "--interval is a length of time, at least 100ms" in done.stderr) == (2, True)


def test_a_namespace_that_is_not_there_is_refused(lake):
    done = run(lake[0] + "x", "top", "--once")
    assert (done.returncode, "lake/salesx'" in done.stderr) == (2, True)


# --- terminals --------------------------------------------------------------------------------------------------------

ENTERS, LEAVES, HIDES, SHOWS = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h"


OWN = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from txnlog.cli import main; main(sys.argv[1:])"
)
"""The command line as a process whose terminal sends it Ctrl-C, as that of a shell does."""


def on_terminal(path, end, program=OWN):
    """Run ``top`` on a terminal: its exit code, what it wrote there, and the settings before, meanwhile and after.

    ``end`` is typed, or sent as a signal, once the second frame is there.
    """
    outer, inner = pty.openpty()
    termios.tcsetwinsize(inner, (24, 80))
    settings = [termios.tcgetattr(inner)]
    command = [sys.executable, "-c", program, path, "top", "--interval", "200ms"]
    environment = {**os.environ, "TERM": "xterm-256color", "LINES": "24", "COLUMNS": "80"}
    process = subprocess.Popen(
        command, stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True
    )
    written, ended, due = b"", False, time.monotonic() + 60
    while time.monotonic() < due and (process.poll() is None or select.select([outer], [], [], 0.1)[0]):
        if select.select([outer], [], [], 0.1)[0]:
            written += os.read(outer, 65_536)
        if not ended and b"of watching" in written:
            ended = True
            settings.append(termios.tcgetattr(inner))
            os.write(outer, end) if isinstance(end, bytes) else process.send_signal(end)
    process.kill()
    code = process.wait()
    settings.append(termios.tcgetattr(inner))
    os.close(inner)
    os.close(outer)
    return code, written.decode(), settings


@pytest.mark.parametrize(
    ("end", "code"), [(b"q", 0), (b"Q", 0), (b"xyz\x1aq", 0), (b"\x03", 0), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_terminal_is_left_as_it_was(lake, end, code):
    found, written, (before, during, after) = on_terminal(lake[0], end)
    assert (found, after) == (code, before), written
    assert not during[3] & (termios.ECHO | termios.ICANON)
    assert during[6][termios.VSUSP] == b"\0", "a shell in the foreground would write on the screen"
    assert [written.count(item) for item in (ENTERS, LEAVES, HIDES, SHOWS)] == [1] * 4
    assert written.index(HIDES) < written.index("sales  version") < written.index(LEAVES)
    assert not [item for item in written.split(LEAVES)[1].split(SHOWS) if item], "nothing is left behind it"


def test_log_records_are_printed_when_the_screen_is_gone(lake):
    logging_one = (
        "import logging; import txnlog.cli.top as top; real = top.read; "
        "top.read = lambda *given: (logging.getLogger('txnlog.log').warning('a part is damaged'), real(*given))[1]"
    )
    code, written, _ = on_terminal(lake[0], b"q", f"{logging_one}; {OWN}")
    shown, after = written.split(LEAVES)
    assert (code, "a part is damaged" in after) == (0, True)
    assert "a part is damaged" not in shown.split(ENTERS)[1]


def test_without_the_package_that_draws_a_terminal_gets_one_frame_and_its_name(lake):
    lacking = "import sys; sys.modules['rich.console'] = None; import txnlog.cli.top as top"
    code, written, _ = on_terminal(lake[0], b"", f"{lacking}; top.installed_version = lambda _: None; {OWN}")
    assert (code, ENTERS in written) == (0, False)
    assert written.splitlines()[0].startswith("sales  version")
    assert written.splitlines()[-1] == "A screen needs the package rich: pip install 'txnlog[progress]'"
