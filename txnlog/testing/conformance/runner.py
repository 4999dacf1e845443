"""Asking a reader in any language: a process for each case, and what its exit code and its lines mean."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from txnlog.testing.conformance.cases import EXIT_CODES, OK, Answer, Case, difference

TIMEOUT_SECONDS: Final = 120.0

_KINDS: Final = {code: kind for kind, code in EXIT_CODES.items()}


class NoAnswerError(Exception):
    """A reader answered in a way that means nothing."""


@dataclass(frozen=True, slots=True)
class Result:
    """A case and in what the reader's answer differs; None where in nothing."""

    case: Case
    difference: str | None


def ask(command: Sequence[str], case: Case) -> Answer:
    """What a command answers to a case. Raises NoAnswerError for an exit code or lines that mean nothing."""
    try:
        done = subprocess.run(  # noqa: S603 - the command is what the caller wants to test
            [*command, "read", *case.arguments], capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"no answer after {TIMEOUT_SECONDS:.0f} s") from None
    kind = _KINDS.get(done.returncode)
    if kind is None:
        said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise NoAnswerError(f"the exit code {done.returncode}: {said[-1][:160] if said else 'no word of it'}")
    if kind != OK:
        return Answer(kind)
    return Answer(OK, tuple(_rows_in(done.stdout)))


def _rows_in(output: bytes) -> Iterator[dict[str, object]]:
    # Only line feeds end a line: texts may hold other characters at which Python would split them.
    for number, line in enumerate(output.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise NoAnswerError(f"line {number} is no JSON: {error}") from None
        if not isinstance(row, dict) or not {"_partition", "_offset"} <= row.keys():
            raise NoAnswerError(f"line {number} is no row: {line[:160]!r}")
        yield row


def check(case: Case, reader: Callable[[Case], Answer]) -> Result:
    """Ask a reader and compare."""
    try:
        found = reader(case)
    except NoAnswerError as error:
        return Result(case, str(error))
    return Result(case, None if found.kind in case.also else difference(case.expected, found))


def run(
    cases: Iterable[Case],
    reader: Callable[[Case], Answer],
    *,
    jobs: int = 1,
    each: Callable[[Result], object] = lambda _: None,
) -> list[Result]:
    """Ask a reader all cases, some of them at a time; ``each`` is called with every result, in their order."""
    results: list[Result] = []
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        for result in pool.map(lambda case: check(case, reader), cases):
            each(result)
            results.append(result)
    return results


def table(results: Sequence[Result]) -> str:
    """The results as text: a line for each golden root, and one below for each case that differs."""
    lines: list[str] = []
    names = list(dict.fromkeys(result.case.golden for result in results))
    width = max((len(name) for name in names), default=0)
    for name in names:
        own = [result for result in results if result.case.golden == name]
        wrong = [result for result in own if result.difference is not None]
        lines.append(f"{name:<{width}}  {len(own) - len(wrong):>3} of {len(own):>3}  {'differs' if wrong else 'ok'}")
        lines += [f"    {result.case.name}: {result.difference}" for result in wrong]
    passed = sum(result.difference is None for result in results)
    lines.append(f"{passed} of {len(results)} cases passed")
    return "\n".join(lines)


__all__ = ["TIMEOUT_SECONDS", "NoAnswerError", "Result", "ask", "check", "run", "table"]
