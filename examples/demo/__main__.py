"""``make demo``: two pipelines, the same kills, one truth.

All flights out of New York in 2013 go through a streaming pipeline that writes two topics, and dies by SIGKILL at three
places. Then the same pipeline does the same in the ordinary way, with the same deaths. Exit code 0 means: ours is
exactly right, and the control is not (a control without damage would prove nothing).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import txnlog
from examples.demo import control, data, names
from examples.demo.compare import Verdict, differing_rows, judge
from examples.demo.history import CURSOR_LANE, History, read_history
from examples.demo.kills import Kill, Place, batches_for, kill_plan
from examples.demo.runs import Death, DemoFailed, Event, run_with_kills
from examples.demo.show import Show, verdict_rows
from examples.demo.truth import Truth, read_truth

SHOWN_TRANSACTIONS: Final = 8


@dataclass(frozen=True)
class Outcome:
    """What became of one pipeline."""

    delays: pa.Table
    carrier_totals: pa.Table
    deaths: Sequence[Death]
    verdict: Verdict


@dataclass(frozen=True)
class Demo:
    """One run of the demo: where it works, what it is to do, and how it tells."""

    folder: Path
    out: Path
    rows: int | None
    kills: Sequence[Kill]
    batches: int
    show: Show

    def run(self, *, undisturbed: bool) -> bool:
        """All of it; whether everything came out as it must."""
        with self.show.step("reading the CSV, and the truth from it alone"):
            truth = read_truth(data.csv_archive(), self.rows)
        loaded = self.load()
        ours = self.ours(truth, "lake", self.kills)
        ordinary = self.control(truth)
        with txnlog.open(self.folder / "lake", names.NAMESPACE, mode="r") as ns:
            history = read_history(ns, names.FLIGHTS, names.SUBSCRIPTION, [names.DELAYS, names.CARRIER_TOTALS])
            transactions = ns.transactions()
        self.tell_aborted(loaded)
        self.tell_transactions(transactions, history)
        self.tell_kills(ours, ordinary)
        self.tell_verdicts(truth, ours, ordinary)
        self.draw(history, ours.deaths)
        problems = self.problems(loaded, truth, ours, ordinary)
        if undisturbed:
            problems += self.against_undisturbed(truth, ours)
        for problem in problems:
            self.show.line(f"[bold red]{problem}[/]")
        return not problems

    # --- what is done -----------------------------------------------------------------------------------------------

    def load(self, root: str = "lake") -> Event:
        """Topics, all flights in one transaction, an aborted batch."""
        events: list[Event] = []
        arguments = [str(self.folder), root, *([f"--rows={self.rows}"] if self.rows else [])]
        with self.show.step("Spark loads all flights in one transaction, and a batch that it aborts"):
            run_with_kills("examples.demo.load", arguments, [], self.out / "load.log", events.append)
        return next(event for event in events if event["event"] == "loaded")

    def ours(self, truth: Truth, root: str, kills: Sequence[Kill]) -> Outcome:
        """The pipeline on txnlog, killed and restarted until it is done."""
        per_batch = -(-truth.total // self.batches)
        arguments = [str(self.folder), root, f"--per-batch={per_batch}"]
        with self.progress("pipeline on txnlog") as on_event:
            deaths = run_with_kills("examples.demo.pipeline", arguments, kills, self.out / "pipeline.log", on_event)
        with txnlog.open(self.folder / root, names.NAMESPACE, mode="r") as ns:
            snapshot = ns.snapshot()
            tables = snapshot.read(names.DELAYS), snapshot.read(names.CARRIER_TOTALS)
        return Outcome(*tables, deaths, judge(truth, *tables))

    def control(self, truth: Truth) -> Outcome:
        """The ordinary pipeline, with the same kills."""
        folder = self.folder / "control"
        control.write_source(data.read_flights(rows=self.rows), folder / names.FLIGHTS, self.batches)
        with self.progress("control: two Parquet appends") as on_event:
            deaths = run_with_kills(
                "examples.demo.control", [str(folder)], self.kills, self.out / "control.log", on_event
            )
        tables = pq.read_table(folder / names.DELAYS), pq.read_table(folder / names.CARRIER_TOTALS)
        return Outcome(*tables, deaths, judge(truth, *tables))

    @contextlib.contextmanager
    def progress(self, title: str) -> Iterator[Callable[[Event], None]]:
        """A bar over the batches of a pipeline, which its events move."""
        batches: set[int] = set()
        deaths = 0
        with self.show.bar(title, self.batches, "batches") as advance:

            def on_event(event: Event) -> None:
                nonlocal deaths
                note = ""
                if event["event"] == "batch":
                    batches.add(event["batch"])
                elif event["event"] == "kill":
                    deaths += 1
                    note = f"SIGKILL {deaths} {Place(event['place']).title}, batch {event['batch']}"
                advance(len(batches), note)

            yield on_event

    # --- what is told -----------------------------------------------------------------------------------------------

    def tell_aborted(self, loaded: Event) -> None:
        """What readers see of the aborted batch."""
        self.show.table(
            "The aborted batch in flights: on the store, in no result unless asked for",
            ["isolation level", "committed rows", "aborted rows"],
            [[level, *(f"{count:,}" for count in counts)] for level, counts in loaded["visible"].items()],
        )

    def tell_transactions(self, transactions: Sequence[Any], history: History) -> None:
        """The last transactions, each with what it did in its one entry."""
        did: dict[int, list[str]] = {}
        for work in history.work:
            if work.last is not None:
                text = f"{work.messages:,} taken" if work.lane == CURSOR_LANE else f"{work.messages:,} to {work.lane}"
                did.setdefault(work.last, []).append(text)
        chosen = [*transactions[:SHOWN_TRANSACTIONS], *(item for item in transactions if item.state == "ABORTED")]
        self.show.table(
            f"The last {SHOWN_TRANSACTIONS} transactions, and the aborted one",
            ["TxnID", "entry", "outcome", "messages"],
            [
                [f"..{str(item.txn_id)[-14:]}", str(item.version), _outcome(item), ", ".join(did.get(item.version, []))]
                for item in dict.fromkeys(chosen)
            ],
            numbers_from=4,
        )

    def tell_kills(self, *outcomes: Outcome) -> None:
        """How often each pipeline died where."""
        counts = [_per_place(outcome) for outcome in outcomes]
        self.show.table(
            "SIGKILLs, each in a batch of its own",
            ["place", "txnlog", "control"],
            [[place.title, *(str(count[place]) for count in counts)] for place in Place],
        )

    def tell_verdicts(self, truth: Truth, *outcomes: Outcome) -> None:
        """What is wrong with the outputs of both."""
        rows = verdict_rows(len(truth.late), truth.total, [outcome.verdict for outcome in outcomes])
        self.show.table("Against the truth from the CSV", ["", "expected", "txnlog", "control"], rows)

    def draw(self, history: History, deaths: Sequence[Death]) -> None:
        """The picture."""
        # Matplotlib keeps a cache of fonts; a home folder is no place for it, and may not be there.
        os.environ.setdefault("MPLCONFIGDIR", str(self.folder / "matplotlib"))
        from examples.demo import timeline  # noqa: PLC0415 - reads that setting when it is imported

        target = self.out / "timeline.svg"
        timeline.draw(history, deaths, target)
        self.show.line(f"\nThe timeline, drawn from the log: {_shown(target)}")

    # --- whether it is right ----------------------------------------------------------------------------------------

    def problems(self, loaded: Event, truth: Truth, ours: Outcome, ordinary: Outcome) -> list[str]:
        """Everything that did not come out as it must."""
        found = []
        visible, aborted = loaded["visible"]["read_committed"]
        if (visible, aborted) != (truth.total, 0):
            found.append(f"read_committed shows {visible:,} flights and {aborted:,} aborted rows")
        if loaded["visible"]["read_uncommitted"] != [truth.total, loaded["aborted"]]:
            found.append("read_uncommitted does not show the aborted batch")
        for name, outcome in (("the pipeline", ours), ("the control", ordinary)):
            if [death.kill for death in outcome.deaths] != list(self.kills) or not all(_per_place(outcome).values()):
                found.append(f"{name} was not killed at every place")
        if not ours.verdict.clean:
            found.append("the pipeline on txnlog is not exactly right")
        if ordinary.verdict.clean:
            found.append("the control shows no damage: these kills prove nothing")
        return found

    def against_undisturbed(self, truth: Truth, ours: Outcome) -> list[str]:
        """Run the pipeline once more, in peace, and compare row by row."""
        self.load("undisturbed")
        calm = self.ours(truth, "undisturbed", [])
        pairs = {
            names.DELAYS: (ours.delays, calm.delays),
            names.CARRIER_TOTALS: (ours.carrier_totals, calm.carrier_totals),
        }
        different = {name: differing_rows(*tables) for name, tables in pairs.items()}
        self.show.table(
            "Row by row against an undisturbed run",
            ["topic", "rows", "that differ"],
            [[name, f"{pairs[name][0].num_rows:,}", str(count)] for name, count in different.items()],
        )
        return [f"{count} rows of {name} differ from an undisturbed run" for name, count in different.items() if count]


def _per_place(outcome: Outcome) -> Counter[Place]:
    counts = Counter(death.kill.place for death in outcome.deaths)
    return Counter({place: counts[place] for place in Place})


def _outcome(item: Any) -> str:
    colour = {"COMMITTED": "green", "ABORTED": "red"}.get(item.state, "yellow")
    return f"[{colour}]{item.state}[/]{f' ({item.reason})' if item.reason else ''}"


def _shown(path: Path) -> str:
    """A path as a user would type it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


@contextlib.contextmanager
def working_folder(given: Path | None) -> Iterator[Path]:
    """The folder that was asked for, or one that goes away."""
    if given is not None:
        given.mkdir(parents=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="txnlog-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--kills", type=int, default=1, metavar="N", help="SIGKILLs at each of the three places")
    parser.add_argument("--rows", type=int, metavar="N", help="take only the first flights of the CSV")
    parser.add_argument("--undisturbed", action="store_true", help="compare row by row with a run without kills, too")
    parser.add_argument("--work", type=Path, help="work in this new folder and keep it, instead of a temporary one")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="for the picture and the logs")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for log in options.out.glob("*.log"):
        log.unlink()
    show = Show()
    batches = batches_for(options.kills)
    with working_folder(options.work) as folder:
        demo = Demo(folder, options.out.resolve(), options.rows, kill_plan(options.kills, batches), batches, show)
        try:
            good = demo.run(undisturbed=options.undisturbed)
        except DemoFailed as failure:
            show.line(f"[bold red]{failure}[/]")
            good = False
    show.line("[bold green]Exactly right, and the control is not.[/]" if good else "[bold red]The demo failed.[/]")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
