"""Pictures of a run: bars, curves of latency, progress of readers. As SVG, the same bytes for the same run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from benchmarks.peers.question import Column, Question
from benchmarks.peers.results import QUANTILES, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# By the first word of a system's name; colours that all kinds of sight tell apart.
_COLOURS: Final = {"txnlog": "#0072B2", "Kafka,": "#4D4D4D", "Pulsar": "#D55E00", "DuckLake,": "#009E73"}
_OTHER: Final = "#CC79A7"
_TEXT: Final = "#222222"
_HATCH: Final = "////"
"""Not durable."""

_DASHES: Final = ("-", "--", ":", "-.")
"""Of systems that share a colour."""


def draw(run: Run, question: Question, target: Path) -> None:
    """Write the picture of a question."""
    names = [each.name for each in run.systems if any(_is_of(unit, question, each.name) for unit in run.units)]
    settings: Any = {"svg.hashsalt": "txnlog", "hatch.linewidth": 0.7, "font.size": 9.0, "text.color": _TEXT}
    with mpl.rc_context(settings):
        figure = _DRAWN[question.picture.kind](run, question, names)
        figure.suptitle(question.picture.title, x=0.01, ha="left", fontweight="bold", fontsize=11)
        figure.savefig(target, format="svg", metadata={"Date": None, "Title": question.picture.title})


def _is_of(unit: object, question: Question, system: str) -> bool:
    return (getattr(unit, "question", ""), getattr(unit, "system", "")) == (question.name, system)


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def _colour(system: str) -> str:
    return _COLOURS.get(system.partition(" ")[0], _OTHER)


def _styles(names: list[str]) -> dict[str, str]:
    """A dash for each system, another one for each of those that share a colour."""
    used: dict[str, int] = {}
    found = {}
    for name in names:
        number = used.get(_colour(name), 0)
        found[name] = _DASHES[number % len(_DASHES)]
        used[_colour(name)] = number + 1
    return found


def _frame(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(visible=True, axis="both", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _column(question: Question, case_name: str) -> Column:
    case = next(case for case in question.cases if case.name == case_name)
    return next(column for column in case.columns if column.title == question.picture.column)


def _bars(run: Run, question: Question, names: list[str]) -> Figure:
    """A panel for each case, a bar for each system: durable ones filled and above, others hatched and below."""
    cases = [case.name for case in question.cases]
    weak = {unit.system for unit in run.units if unit.question == question.name and not unit.durable}
    ordered = [name for name in names if name not in weak] + [name for name in names if name in weak]
    figure = _figure(3.0 + 2.7 * len(cases), 1.3 + 0.3 * len(ordered))
    panels = figure.subplots(1, len(cases), sharey=True, sharex=True, squeeze=False)[0]
    values: list[float] = []
    for axes, case in zip(panels, cases, strict=True):
        _frame(axes)
        axes.grid(visible=False, axis="y")
        axes.set_title(case, fontsize=9, loc="left")
        column = _column(question, case)
        for place, name in enumerate(ordered):
            value = run.figure(question.name, case, name, column.title)
            y = len(ordered) - 1 - place
            if value is None:
                axes.annotate(
                    "no figure",
                    (0, y),
                    xycoords=("axes fraction", "data"),
                    xytext=(4, 0),
                    va="center",
                    textcoords="offset points",
                    color="#888888",
                    fontsize=7.5,
                )
                continue
            values.append(value)
            hatched = name in weak
            axes.barh(
                y,
                value,
                height=0.68,
                facecolor="white" if hatched else _colour(name),
                edgecolor=_colour(name),
                hatch=_HATCH if hatched else None,
                linewidth=0.8,
            )
            axes.annotate(
                column.text(value),
                (value, y),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
            )
        axes.set_xlabel(question.picture.unit)
        axes.set_yticks(range(len(ordered)), labels=ordered[::-1])
        axes.tick_params(axis="y", length=0)
    _scale(panels, values, logarithmic=question.picture.logarithmic)
    if weak:
        shown = [
            Patch(facecolor="#777777", edgecolor="#777777", label="durable when a commit returns"),
            Patch(facecolor="white", edgecolor="#777777", hatch=_HATCH, label="not durable"),
        ]
        figure.legend(handles=shown, loc="outside lower left", ncols=2, frameon=False, fontsize=8)
    return figure


def _scale(panels: Sequence[Axes], values: Sequence[float], *, logarithmic: bool) -> None:
    """One scale for all panels, with room for the number behind the longest bar."""
    if not values:
        return
    for axes in panels:
        if logarithmic:
            # Bars of a logarithmic scale have no natural beginning: theirs is the power of ten below the least.
            axes.set_xscale("log")
            axes.set_xlim(10 ** math.floor(math.log10(min(values) * 0.99)), max(values) * 8)
            axes.xaxis.set_major_formatter("{x:,.9g}")
            axes.tick_params(axis="x", labelsize=7)
        else:
            axes.set_xlim(0, max(values) * 1.35)
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.tick_params(axis="x", labelsize=7)


def _curves(run: Run, question: Question, names: list[str]) -> Figure:
    """For each system the share of messages that had arrived after so many milliseconds."""
    case = question.cases[0].name
    styles = _styles(names)
    figure = _figure(8.2, 4.2)
    axes = figure.subplots()
    _frame(axes)
    for name in names:
        units = [unit for unit in run.of(question.name, case, name) if unit.quantiles_ms]
        if units:
            columns = zip(*(unit.quantiles_ms for unit in units), strict=True)
            times = [sum(values) / len(values) for values in columns]
            axes.plot(times, [share * 100 for share in QUANTILES], styles[name], color=_colour(name), label=name)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.9g}")
    axes.set_xlabel("milliseconds")
    axes.set_ylabel("% of messages that have arrived")
    axes.set_ylim(0, 100)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def _steps(run: Run, question: Question, names: list[str]) -> Figure:
    """A line for each system over the sizes of the cases."""
    styles = _styles(names)
    figure = _figure(8.2, 4.2)
    axes = figure.subplots()
    _frame(axes)
    for name, marker in zip(names, itertools.cycle("os^Dv"), strict=False):
        points = [
            (float(case.name.replace(",", "")), value)
            for case in question.cases
            if (value := run.figure(question.name, case.name, name, question.picture.column)) is not None
        ]
        if points:
            sizes, values = zip(*points, strict=True)
            axes.plot(sizes, values, styles[name], marker=marker, color=_colour(name), label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.9g}")
    axes.set_xlabel("partitions in a transaction")
    axes.set_ylabel(f"{question.picture.column} of a commit, {question.picture.unit}")
    figure.legend(loc="outside right center", frameon=False)
    return figure


def _progress(run: Run, question: Question, names: list[str]) -> Figure:
    """A panel for each system: what was committed, and what its reader had, over time."""
    case = question.cases[0]
    figure = _figure(2.3 * len(names) + 0.8, 3.0)
    panels = figure.subplots(1, len(names), sharey=True, sharex=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        _frame(axes)
        axes.set_title(name, fontsize=9, loc="left")
        axes.axvspan(0, case.load.seconds * 2 / 3, color="#f0e6c8", zorder=0)
        for unit in run.of(question.name, case.name, name):
            if unit.progress:
                seconds, committed, read = zip(*unit.progress, strict=True)
                axes.plot(seconds, committed, "--", color="#999999", linewidth=1.2, label="committed")
                axes.plot(seconds, read, color=_colour(name), linewidth=2.0, label="read")
        axes.set_xlabel("seconds")
    panels[0].set_ylabel(question.picture.unit)
    shown = [
        Patch(facecolor="#f0e6c8", label="one transaction is open"),
        *(line for line in panels[0].get_lines()[:2]),
    ]
    figure.legend(handles=shown, loc="outside lower left", ncols=3, frameon=False, fontsize=8)
    return figure


_DRAWN: Final = {"bars": _bars, "curves": _curves, "steps": _steps, "progress": _progress}

__all__ = ["draw"]
