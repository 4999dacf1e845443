"""The picture of a run, drawn from the log: who wrote what, which entry made it count, and where the pipeline died."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.path import Path as Outline

from examples.demo.history import CURSOR_LANE, History, Work
from examples.demo.kills import Place
from examples.demo.runs import Death

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Darker shades of colours that all kinds of sight tell apart; what matters, the state, is told by the filling.
_COLOURS: Final = ("#0063A0", "#4D4D4D", "#00745A", "#8F3F71")
_KILL: Final = "#D55E00"
_ENTRY: Final = "#9a9a9a"
_TEXT: Final = "#222222"

_BOLT: Final = Outline(
    [(0.3, 1), (-0.45, -0.1), (0.0, -0.1), (-0.3, -1), (0.45, 0.2), (0.0, 0.2), (0.3, 1)], closed=True
)

_WIDTH: Final = 0.84
"""Of a block, in slots; it ends at the line of its entry."""
_NARROW: Final = 0.42
"""Of an entry or kill with nothing drawn before it."""
_HEIGHT: Final = 0.56
_NAMED: Final = 4.0
"""Width of a process, from which on it is named."""

_LINES: Final = {True: 1.5, False: 0.6}
"""How thick an entry is drawn: with work of a transaction, and without."""

_KILL_LABELS: Final = {
    Place.BEFORE_DATA: "before\nthe data",
    Place.BEFORE_ENTRY: "between data\nand entry",
    Place.BEFORE_SPARK: "after the\nentry",
}


def draw(history: History, deaths: Sequence[Death], target: Path) -> None:
    """Write the picture as SVG. The same history gives the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "txnlog", "hatch.linewidth": 0.9, "font.size": 8.5}):
        figure = figure_of(history, deaths)
        figure.savefig(target, format="svg", metadata={"Date": None, "Title": "Transactions of the demo, from the log"})


def figure_of(history: History, deaths: Sequence[Death]) -> Figure:
    """The picture. Entries and kills follow each other in order, not to scale: batches would vanish between starts."""
    slots = _Slots(history, deaths)
    lanes = len(history.lanes)
    figure = Figure(figsize=(max(11.0, 1.9 + 0.46 * slots.end), 1.7 + 0.72 * lanes), layout="constrained")
    FigureCanvasSVG(figure)
    axes: Axes = figure.add_subplot()
    heights = {lane: lanes - 1 - index for index, lane in enumerate(history.lanes)}
    colours = dict(zip(history.lanes, _COLOURS, strict=False))
    _frame(axes, history, slots, heights, colours)
    _processes(axes, slots, deaths, lanes)
    for entry in history.entries:
        x = slots.of_version(entry.version)
        width = _LINES[entry.version in slots.with_work]
        axes.plot([x, x], [-0.5, lanes - 0.5], color=_ENTRY, linewidth=width, zorder=1)
    for work in history.work:
        _draw_work(axes, work, slots, heights[work.lane], colours[work.lane])
    for leftover in history.leftovers:
        x = slots.of_time(leftover.at_ms)
        _block(axes, x - _WIDTH, x, heights[leftover.lane], colours[leftover.lane], "OPEN")
    for death in deaths:
        _draw_kill(axes, slots.of_death(death), lanes, _KILL_LABELS[death.kill.place])
    _legend(figure)
    return figure


class _Slots:
    """Places on the axis: entries and kills in the order of time, each as wide as what is drawn before it."""

    def __init__(self, history: History, deaths: Sequence[Death]) -> None:
        # Of the same millisecond the entry comes first: a kill behind an entry is what the entry caused.
        events = [(entry.at_ms, 0, entry.version) for entry in history.entries]
        events += [(death.at_ms, 1, index) for index, death in enumerate(deaths)]
        events.sort()
        self._times = [at_ms for at_ms, _, _ in events]
        self.with_work = {version for work in history.work for version in (work.first, work.last)}
        left = {self._behind(leftover.at_ms) for leftover in history.leftovers}
        self._places: list[float] = []
        x = 0.0
        for index, (_, kind, number) in enumerate(events):
            x += 1.0 if index in left or (kind == 0 and number in self.with_work) else _NARROW
            self._places.append(x)
        self._versions = {number: index for index, (_, kind, number) in enumerate(events) if kind == 0}
        self._deaths = {deaths[number]: index for index, (_, kind, number) in enumerate(events) if kind == 1}
        self.end = x + 0.4

    def of_version(self, version: int) -> float:
        return self._places[self._versions[version]]

    def of_death(self, death: Death) -> float:
        return self._places[self._deaths[death]]

    def of_time(self, at_ms: int) -> float:
        """The first event at or after a time."""
        return self._places[self._behind(at_ms)]

    def _behind(self, at_ms: int) -> int:
        return min(bisect.bisect_left(self._times, at_ms), len(self._times) - 1)


def _frame(axes: Axes, history: History, slots: _Slots, heights: dict[str, int], colours: dict[str, str]) -> None:
    axes.set_xlim(0, slots.end)
    axes.set_ylim(-0.62, len(heights) + 0.62)
    axes.set_yticks(list(heights.values()), [lane.replace(" ", "\n") for lane in heights], fontsize=9.5)
    for label, lane in zip(axes.get_yticklabels(), heights, strict=True):
        label.set_color(colours[lane])
        label.set_fontweight("bold")
        label.set_fontfamily("DejaVu Sans" if lane == CURSOR_LANE else "DejaVu Sans Mono")
    axes.set_xticks(
        [slots.of_version(entry.version) for entry in history.entries if entry.version in slots.with_work],
        [str(entry.version) for entry in history.entries if entry.version in slots.with_work],
        fontsize=7.5,
        color=_TEXT,
    )
    axes.set_xlabel("entries of the log by version, in the order of time (not to scale)", fontsize=9, color=_TEXT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for height in heights.values():
        axes.axhline(height - _HEIGHT / 2, color="#dddddd", linewidth=0.8, zorder=0)


def _processes(axes: Axes, slots: _Slots, deaths: Sequence[Death], lanes: int) -> None:
    """Each life of the pipeline as a shaded stretch."""
    borders = [*(slots.of_death(death) for death in deaths), slots.end]
    start = 0.0
    for number, end in enumerate(borders):
        shade = "#f4f4f4" if number % 2 == 0 else "#ffffff"
        axes.axvspan(start, end, color=shade, linewidth=0, zorder=-1)
        if deaths:
            name = "load, then process 1" if number == 0 else f"process {number + 1}"
            if end - start < _NAMED:  # many kills: numbers alone have room
                name = str(number + 1)
            axes.text((start + end) / 2, lanes + 0.45, name, ha="center", va="center", fontsize=8.5, color=_TEXT)
        start = end


def _draw_work(axes: Axes, work: Work, slots: _Slots, y: int, colour: str) -> None:
    first = slots.of_version(work.first)
    last = slots.end - 0.1 if work.last is None else slots.of_version(work.last)
    if work.first != work.last:
        _block(axes, first - _WIDTH, last - _WIDTH, y, colour, "OPEN")
    if work.last is not None:
        _block(axes, last - _WIDTH, last, y, colour, work.state, _short(work.messages))


def _block(axes: Axes, start: float, end: float, y: int, colour: str, state: str, text: str = "") -> None:
    styles: dict[str, dict[str, Any]] = {
        "OPEN": {"facecolor": "#ffffff", "linestyle": (0, (3, 1.5))},
        "COMMITTED": {"facecolor": colour},
        "ABORTED": {"facecolor": "#ffffff", "hatch": "//////"},
    }
    box = Rectangle(
        (start, y - _HEIGHT / 2), end - start, _HEIGHT, edgecolor=colour, linewidth=1.2, zorder=2, **styles[state]
    )
    axes.add_patch(box)
    if not text:
        return
    if state == "COMMITTED":
        axes.text((start + end) / 2, y, text, ha="center", va="center", fontsize=6.8, color="#ffffff", zorder=4)
    else:
        below = y - _HEIGHT / 2 - 0.12
        axes.text((start + end) / 2, below, text, ha="center", va="center", fontsize=6.8, color=colour, zorder=4)


def _draw_kill(axes: Axes, x: float, lanes: int, label: str) -> None:
    axes.plot([x, x], [-0.5, lanes - 0.4], color=_KILL, linewidth=1.2, linestyle=(0, (4, 2)), zorder=3)
    axes.scatter([x], [lanes - 0.18], marker=_BOLT, s=260, color=_KILL, linewidths=0, zorder=5)
    axes.text(x + 0.3, lanes - 0.14, label, ha="left", va="center", fontsize=7.2, color=_KILL, linespacing=1.1)


def _short(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:,.0f}k"


def _legend(figure: Figure) -> None:
    grey = "#4d4d4d"
    handles = [
        Patch(facecolor="#ffffff", edgecolor=grey, linestyle=(0, (3, 1.5))),
        Patch(facecolor=grey, edgecolor=grey),
        Patch(facecolor="#ffffff", edgecolor=grey, hatch="//////"),
        Line2D([], [], color=_KILL, marker=_BOLT, markersize=13, linestyle="none"),
        *(
            Line2D([], [], color=_ENTRY, marker="|", markersize=14, markeredgewidth=width, ls="")
            for width in _LINES.values()
        ),
    ]
    names = [
        "open: written, nobody sees it",
        "committed (messages)",
        "aborted",
        "SIGKILL",
        "entry with messages",
        "other entry",
    ]
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=len(names),
        frameon=False,
        fontsize=8.8,
    )


__all__ = ["draw", "figure_of"]
