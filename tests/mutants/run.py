"""Plant every known bug in a copy of the project, one at a time, and see that its tests fail.

``python tests/mutants/run.py [-k TEXT] [--jobs 2] [--one-in 2]`` fails where a mutant survives, where its text is not
in its file (once), or where a test that should catch it fails without it. A change that changes nothing goes along: if
it is "caught", the alarm is broken.
"""

from __future__ import annotations

import argparse
import compileall
import itertools
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.mutants import starter  # noqa: E402 - found once the path is set
from tests.mutants.mutants import HARMLESS, MUTANTS, Mutant  # noqa: E402

TEST_SECONDS = 60
RUN_SECONDS = 480
LAST_LINES = 25
REWRITE_WARNING = "pytest.PytestAssertRewriteWarning"

CAUGHT, SURVIVED, BROKEN = "caught", "SURVIVED", "BROKEN"

_seconds_of_mutants = itertools.count(1_000_000_000)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    state: str
    seconds: float
    output: str = ""


class Copy:
    """A copy of the project in which one mutant lives at a time, and the process that starts the tests there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            source, target = ROOT / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        compileall.compile_dir(folder / "txnlog", quiet=2)
        # What tests are compiled to is kept from run to run.
        own = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "", "TXNLOG_MUTANT_ROOT": str(folder)}
        self._starter = subprocess.Popen(
            [sys.executable, "-P", starter.__file__],
            cwd=folder,
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        with self._starter:
            assert self._starter.stdin is not None, "a pipe"
            self._starter.stdin.close()

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The project with the mutant in it. Raises LookupError where its text is not there exactly once."""
        path = self.folder / mutant.file
        if not path.is_file():
            raise LookupError(f"there is no {mutant.file}")
        text = path.read_text()
        if (count := text.count(mutant.original)) != 1:
            raise LookupError(f"the text is there {count} times")
        before = path.stat()
        path.write_text(text.replace(mutant.original, mutant.replacement))
        # Compiled code is told from old code by size and the second of the source: every mutant has one of its own.
        os.utime(path, (before.st_atime, next(_seconds_of_mutants)))
        try:
            yield
        finally:
            path.write_text(text)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def test(self, tests: Iterable[str], files: Iterable[str]) -> tuple[int, str]:
        """Run tests in this copy; pytest's exit code, and the end of what it said."""
        options = ["-q", "-x", "--no-header", "--tb=short", f"--timeout={TEST_SECONDS}", "--hypothesis-seed=0"]
        # The process that starts the run has imported plugins of pytest: their own assertions are not what is tested.
        plugins = ["-p", "no:cacheprovider", "-p", "tests.mutants.imported", "-W", f"ignore::{REWRITE_WARNING}"]
        output = self.folder.with_suffix(".txt")
        wanted = {
            "arguments": [*options, *plugins, *tests],
            "environment": {"TXNLOG_MUTANT_FILE": ",".join(files)},
            "output": str(output),
            "seconds": RUN_SECONDS,
        }
        assert self._starter.stdin is not None, "a pipe"
        assert self._starter.stdout is not None, "a pipe"
        print(json.dumps(wanted), file=self._starter.stdin, flush=True)
        code = int(self._starter.stdout.readline())
        if code == starter.NO_END:
            return code, f"no end after {RUN_SECONDS} s"
        return code, "\n".join(output.read_text(errors="replace").splitlines()[-LAST_LINES:])


def judge(copy: Copy, mutant: Mutant) -> Verdict:
    """Plant one mutant and run its tests."""
    began = time.monotonic()
    try:
        with copy.planted(mutant):
            code, output = copy.test(mutant.tests, [mutant.file])
    except LookupError as error:
        return Verdict(mutant, BROKEN, 0.0, f"does not apply: {error}")
    # 1 is pytest's word for tests that failed; anything above it is no test's verdict.
    state = {0: SURVIVED, 1: CAUGHT}.get(code, BROKEN)
    return Verdict(mutant, state, time.monotonic() - began, output)


def check_unmutated(copy: Copy, mutants: Sequence[Mutant]) -> str:
    """Every named test exists and passes without a mutant; what pytest said otherwise."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    code, output = copy.test(tests, sorted({mutant.file for mutant in mutants}))
    return "" if code == 0 else output


def run_all(mutants: Sequence[Mutant], jobs: int, console: Console) -> tuple[list[Verdict], str]:
    """All mutants, and what the tests say without any."""
    with tempfile.TemporaryDirectory(prefix="txnlog-mutants-") as folder, ExitStack() as stack:
        copies: queue.Queue[Copy] = queue.Queue()
        for index in range(jobs):
            copy = Copy(Path(folder).resolve() / f"copy{index}")
            stack.callback(copy.close)
            copies.put(copy)

        def work(mutant: Mutant | None) -> Verdict | str:
            copy = copies.get()
            try:
                return check_unmutated(copy, mutants) if mutant is None else judge(copy, mutant)
            finally:
                copies.put(copy)

        verdicts: list[Verdict] = []
        failed = ""
        with ThreadPoolExecutor(jobs) as pool, Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("mutants", total=len(mutants) + 1)
            for future in as_completed([pool.submit(work, item) for item in (None, *mutants)]):
                result = future.result()
                if isinstance(result, Verdict):
                    verdicts.append(result)
                else:
                    failed = result
                progress.advance(task)
    order = {mutant: index for index, mutant in enumerate(mutants)}
    return sorted(verdicts, key=lambda verdict: order[verdict.mutant]), failed


def report(verdicts: Sequence[Verdict], console: Console) -> None:
    """The table, and what went wrong in full."""
    table = Table(title="Planted bugs", title_justify="left")
    for name in ("bug", "file", "verdict", "s", "test"):
        table.add_column(name, justify="right" if name == "s" else "left", overflow="fold")
    for verdict in verdicts:
        mutant = verdict.mutant
        test = mutant.tests[0].removeprefix("tests/").partition("::")
        table.add_row(
            mutant.name,
            mutant.file.removeprefix("txnlog/"),
            verdict.state,
            f"{verdict.seconds:.1f}",
            f"{test[0]} {test[2].removeprefix('test_')}",
        )
    console.print(table)


def problems(verdicts: Sequence[Verdict], failed: str) -> list[str]:
    """Why the run fails; empty where every bug was caught and the alarm works."""
    found: list[str] = []
    if failed:
        found.append(f"without any mutant the tests fail, or are not there:\n{failed}")
    for verdict in verdicts:
        wanted = SURVIVED if verdict.mutant is HARMLESS else CAUGHT
        if verdict.state != wanted:
            found.append(
                f"{verdict.mutant.name} ({verdict.mutant.file}): {verdict.state}, wanted {wanted}: "
                f"{verdict.mutant.why}\n{verdict.output}"
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", metavar="TEXT", help="only mutants whose name or file holds this text")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at work at once (2)")
    parser.add_argument("--one-in", type=int, default=1, metavar="N", help="one mutant of so many, by chance others")
    given = parser.parse_args(arguments)
    mutants = [mutant for mutant in MUTANTS if given.k in mutant.name or given.k in mutant.file]
    mutants = mutants[random.randrange(given.one_in) :: given.one_in]
    console = Console(width=None if sys.stdout.isatty() else 160)
    began = time.monotonic()
    verdicts, failed = run_all([HARMLESS, *mutants], given.jobs, console)
    report(verdicts, console)
    found = problems(verdicts, failed)
    for text in found:
        console.print(text, markup=False, highlight=False)
    caught = sum(verdict.state == CAUGHT for verdict in verdicts)
    seconds = time.monotonic() - began
    console.print(
        f"{caught} of {len(mutants)} planted bugs caught in {seconds:.0f} s; {len(found)} problems", highlight=False
    )
    return 1 if found or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
