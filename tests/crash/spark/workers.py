"""Spark's Python processes, with places to die: drivers have Spark start this instead of Python.

It runs the module that Spark asked for. Each process first puts the places in: around the files of a task on executors,
around batch and entry where the format's sink commits. Nothing else is changed.
"""

from __future__ import annotations

import json
import os
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "TXNLOG_CRASH_SPARK"
"""Environment: a :class:`Told` as JSON."""

_EXECUTOR: Final = "CoarseGrainedExecutorBackend"

ZOMBIES: Final = "zombies"
KILLED: Final = "killed"
"""Files in the folder of a run: what became of commits whose driver was dead, and the executors that were killed."""

IN_TIME: Final = "committed"
TOO_LATE: Final = "there-already"
ORDERS: Final = "orders"


@dataclass(frozen=True)
class Told:
    """What the Python processes of a run know of it."""

    folder: str
    engine: str
    seed: int
    kill: str | None = None
    orders: bool = False

    def to_json(self) -> str:
        """For the environment."""
        return json.dumps(asdict(self))

    @classmethod
    def known(cls) -> Told:
        """Of this process's environment."""
        return cls(**json.loads(os.environ[VARIABLE]))


def put_places_in() -> None:
    """In a fresh process: what it is told decides where."""
    told = Told.known()
    if told.orders:
        _around_files(told)
    if told.kill is not None and _is_sink(told.engine):
        _around_commits(told, told.kill)


def _is_sink(engine: str) -> bool:
    """Where not, the driver's own process commits, and dies."""
    from tests.crash.spark.workload import Engine

    return Engine(engine).is_sink


# --- tasks ------------------------------------------------------------------------------------------------------------


def _around_files(told: Told) -> None:
    from pyspark import TaskContext

    from spark_ext.write import task_writer
    from tests.crash.spark.orders import Board, Moment
    from txnlog.store.wrappers import ForwardingStore

    board = Board(Path(told.folder) / ORDERS)

    class Dying(ForwardingStore):
        def put(self, key: str, data: bytes) -> None:
            self._meet(Moment.BEFORE_FILE)
            self.inner.put(key, data)
            self._meet(Moment.AFTER_FILE)

        def _meet(self, moment: Moment) -> None:
            context = TaskContext.get()
            assert context is not None, "runs inside of a Spark task"
            order = board.take(moment, context.stageId(), told.seed)
            if order is not None:
                _strike(order.blow.value, order.ms, Path(told.folder))

    module: Any = task_writer
    honest = module.store_of
    module.store_of = lambda *arguments: Dying(honest(*arguments))


def _strike(blow: str, ms: int, folder: Path) -> None:
    match blow:
        case "executor":
            _kill_executor(_executor(), folder)
        case "later":
            # By a process of its own: this one may be gone by then, when a speculative copy was quicker.
            process, killed = _executor(), shlex.quote(str(folder / KILLED))
            still = f"grep -q {_EXECUTOR} /proc/{process}/cmdline"
            script = f"sleep {ms / 1000}; {still} && kill -KILL {process} && echo {process} >> {killed}"
            subprocess.Popen(["sh", "-c", script], start_new_session=True, stderr=subprocess.DEVNULL)
        case "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            time.sleep(ms / 1000)


def _executor() -> int:
    """The JVM above the daemon above this process."""
    status = (Path("/proc") / str(os.getppid()) / "stat").read_text()
    found = int(status.rpartition(")")[2].split()[1])
    assert _is_executor(found), "a task's process is below an executor"
    return found


def _is_executor(process: int) -> bool:
    try:
        return _EXECUTOR in (Path("/proc") / str(process) / "cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _kill_executor(process: int, folder: Path) -> None:
    """Kill it, and count it, unless something else did."""
    if _is_executor(process):
        with (folder / KILLED).open("a") as file:
            file.write(f"{process}\n")
        os.kill(process, signal.SIGKILL)


# --- the sink's commit ------------------------------------------------------------------------------------------------


def _around_commits(told: Told, text: str) -> None:
    import txnlog
    from examples.demo.kills import Kill, KillStore, KillSwitch, Place
    from spark_ext.streaming import format_sink
    from spark_ext.support import namespace_cache
    from tests.crash.spark.deaths import DyingSink, death_of
    from tests.crash.spark.driver import root_of
    from tests.crash.spark.workload import NAMESPACE, ROWS, Engine, taken
    from txnlog.store import open_store

    engine, kill = Engine(told.engine), Kill.parse(text)
    used: list[Any] = []

    def there_are(entries: int) -> bool:
        follower = used[0]._connection.follower
        return entries == 0 or follower.log.get(follower.version + entries) is not None

    dying = DyingSink(death_of(told.seed, engine, kill), lambda: _say_kill(kill), there_are)

    class Once(KillSwitch):
        """What outlives its driver comes to the place again where an entry of another one was quicker."""

        def reached(self, place: Place) -> None:
            if not dying.begun:
                super().reached(place)

    switch = Once(kill, dying)
    writer: Any = format_sink.TopicStreamWriter
    open_honestly, make_spec, commit = writer._open, writer._make_spec, writer.commit

    def opened(self: Any) -> Any:
        if not used:
            root = root_of(Path(told.folder))
            ns = txnlog.open(str(root), NAMESPACE, store=KillStore(open_store(str(root), {}), switch))
            namespace_cache.use(ns)
            used.append(ns)
        return open_honestly(self)

    def made(self: Any) -> Any:
        switch.enter(taken(opened(self), engine) // ROWS)
        switch.reached(Place.BEFORE_DATA)
        return make_spec(self)

    def committed(self: Any, messages: Sequence[Any], batch: int) -> None:
        ns = opened(self)
        switch.enter(taken(ns, engine) // ROWS)
        answer = TOO_LATE
        try:
            commit(self, messages, batch)
            # A batch that the successor had committed by then is a success as well.
            outcome = ns._connection.outcome(messages[0].numbers.txn)
            if outcome is not None and outcome.state == "COMMITTED":
                answer = IN_TIME
        except Exception as error:
            answer = type(error).__name__
            raise
        finally:
            if dying.outlived:
                with (Path(told.folder) / ZOMBIES).open("a") as file:
                    file.write(f"{answer}\n")

    writer._open, writer._make_spec, writer.commit = opened, made, committed


def _say_kill(kill: Any) -> None:
    """Tell it on the driver's own output, as a driver does that dies itself: a worker's is not the driver's."""
    event = {"event": "kill", "at_ms": time.time_ns() // 1_000_000, "place": kill.place.value, "batch": kill.batch}
    with open(f"/proc/{os.getsid(0)}/fd/1", "wb", buffering=0) as output:
        output.write(f"{json.dumps(event)}\n".encode())


def interpreter(folder: Path) -> Path:
    """A program that Spark takes for Python, and which is Python where Spark asks for no module."""
    found = folder / "python"
    python = shlex.quote(sys.executable)
    found.write_text(f'#!/bin/sh\n[ "$1" = -m ] && exec {python} -m {__spec__.name} "$@"\nexec {python} "$@"\n')
    found.chmod(0o755)
    return found


def main() -> None:
    """As Spark calls it: ``-m MODULE ARGUMENTS``."""
    _, module, *arguments = sys.argv[1:]
    if module == "pyspark.daemon":
        os.register_at_fork(after_in_child=put_places_in)  # not in the daemon: it must not have threads
    else:
        put_places_in()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
