"""The report of a run: Markdown with a table and a picture for each question, the durable systems first."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.pictures import draw
from benchmarks.peers.question import Case, Column, Question
from benchmarks.peers.questions import QUESTIONS
from benchmarks.peers.results import Run, Unit

PAGE = "RESULTS.md"


def write(run: Run, folder: Path) -> Path:
    """Write the page and its pictures, and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [question for question in QUESTIONS if any(unit.question == question.name for unit in run.units)]
    parts = [_head(run, asked)]
    for question in asked:
        draw(run, question, folder / f"{question.name}.svg")
        parts.append(_section(run, question))
    parts.append(_machine(run))
    page = folder / PAGE
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _head(run: Run, asked: list[Question]) -> str:
    measured = (
        f"Measured on {run.date} with `{run.command}`, in {run.minutes:.0f} minutes, on this machine: {run.machine}. "
        "All servers ran on it, on loopback, with one copy of the data."
    )
    order = (
        "Each table has two parts. Systems whose commits survive a power cut stand first: compare these with each "
        "other. Below the line **not durable** stand those whose commits may be lost with the machine's memory."
    )
    lines = ["# txnlog and its peers on one machine", "", measured, "", order, ""]
    lines += [
        "| system | version | what a commit has reached when it returns | settings |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {each.name} | {each.version} | {each.durability} | {each.settings or '-'} |" for each in run.systems]
    lines += ["", "Questions: " + " · ".join(f"[{each.title}](#{_anchor(each.title)})" for each in asked), ""]
    return "\n".join(lines)


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def _section(run: Run, question: Question) -> str:
    lines = [f"## {question.title}", "", f"**Asked.** {question.asked}", ""]
    lines += [f"![{question.picture.title}]({question.name}.svg)", ""]
    if len(question.cases) == 1 or any(len(case.columns) > 2 for case in question.cases):
        for case in question.cases:
            lines += _table_of_case(run, question, case)
    else:
        lines += _table_of_cases(run, question)
    lines += [f"**Measured.** {question.measured}", "", f"**What would make it unfair.** {question.unfair}", ""]
    if gaps := _gaps(run, question):
        lines += ["**Missing.**", "", *gaps, ""]
    return "\n".join(lines)


def _table_of_case(run: Run, question: Question, case: Case) -> list[str]:
    """One table for a case: a line a system, a column a figure."""
    headings = ["system", *(column.title for column in case.columns), "fsync of the machine", "loop", "others"]
    lines = [f"### {case.name[0].upper()}{case.name[1:]}", "", *_heading(headings)]
    durable, rest = _parts(run, question, case.name)
    lines += [_line(run, question, case, system) for system in durable]
    if rest:
        lines.append(_rule(len(headings)))
        lines += [_line(run, question, case, system) for system in rest]
    return [*lines, ""]


def _line(run: Run, question: Question, case: Case, system: str) -> str:
    units = run.of(question.name, case.name, system)
    cells = [_cell(run, question, case, system, column) for column in case.columns]
    return f"| {' | '.join([system, *cells, *_surroundings(units)])} |"


def _table_of_cases(run: Run, question: Question) -> list[str]:
    """One table for all cases: a line a system, a column a case."""
    headings = ["system", *(f"{case.name}: {case.columns[0].title}" for case in question.cases)]
    headings += ["fsync of the machine", "loop", "others"]
    lines = _heading(headings)
    durable, rest = _parts(run, question, None)
    for number, system in enumerate([*durable, *rest]):
        if number == len(durable):
            lines.append(_rule(len(headings)))
        units = [unit for case in question.cases for unit in run.of(question.name, case.name, system)]
        cells = [_cell(run, question, case, system, case.columns[0]) for case in question.cases]
        lines.append(f"| {' | '.join([system, *cells, *_surroundings(units)])} |")
    return [*lines, ""]


def _heading(names: list[str]) -> list[str]:
    return [f"| {' | '.join(names)} |", f"| --- |{' ---: |' * (len(names) - 1)}"]


def _rule(columns: int) -> str:
    return f"| **not durable** |{'  |' * (columns - 1)}"


def _parts(run: Run, question: Question, case: str | None) -> tuple[list[str], list[str]]:
    """The systems that are durable in all units of a question or case, and the others; both in the usual order."""
    units = [unit for unit in run.units if unit.question == question.name and case in (None, unit.case)]
    names = [each.name for each in run.systems if any(unit.system == each.name for unit in units)]
    weak = {unit.system for unit in units if not unit.durable}
    return [name for name in names if name not in weak], [name for name in names if name in weak]


def _cell(run: Run, question: Question, case: Case, system: str, column: Column) -> str:
    figure = run.figure(question.name, case.name, system, column.title)
    if figure is None:
        return "-"
    return column.text(figure)


def _surroundings(units: list[Unit]) -> list[str]:
    if not units:
        return ["-"] * 3
    fsyncs = [unit.fsync_ms for unit in units]
    loops = [unit.loop_rate for unit in units]
    return [
        f"{min(fsyncs):.2f} to {max(fsyncs):.2f} ms",
        f"{min(loops):.0f} to {max(loops):.0f} M/s",
        f"{max(unit.others for unit in units):.0%}",
    ]


def _gaps(run: Run, question: Question) -> list[str]:
    return [f"- {gap.system}, {gap.case}: {gap.reason}." for gap in run.gaps if gap.question == question.name]


def _machine(run: Run) -> str:
    """What the columns on the right mean, and how quiet the machine was."""
    loud = [unit for unit in run.units if unit.others > 0.08]
    again = [unit for unit in run.units if unit.attempts > 1]
    return (
        "## The machine\n\n*fsync of the machine*: the median time of an fsync after 4 KiB, just before each "
        "unit. *loop*: turns of an empty loop of Python in a second, just before. *others*: the share of the "
        "processors that other processes took meanwhile, at most. A unit is run again, up to three times, while "
        "that is more than 8 %; the quietest counts. Systems take turns, case by case; figures are medians of the "
        "turns. Those on a JVM are warmed up until their rate has stopped growing.\n\n"
        f"{len(run.units)} units were measured; {len(again)} were repeated, and {len(loud)} had more than 8 % of "
        "others to the end.\n"
    )


__all__ = ["PAGE", "write"]
