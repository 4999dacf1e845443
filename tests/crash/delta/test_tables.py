"""The checks of a run with published topics find what they are for: good tables made bad, one thing at a time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import catalog
import txnlog
from catalog.publication import table_publisher
from tests.catalog.engines import FAST, Engines, engines_in
from tests.catalog.replaying import Facts, Published, difference, replay_segments, replay_topic
from tests.crash.delta.checks import told_in, with_offsets
from tests.crash.delta.plan import DeltaPlan, Phase, Progress
from tests.crash.delta.run import SEEN, SEEN_IN_LONG, plan_for, problems
from tests.crash.delta.tables import SEGMENTS, Tables
from tests.crash.harness.plan import NAMESPACE
from txnlog.format.keys import SEGMENT_COLUMN

SCHEMA = pa.schema([("value", pa.int64()), ("price", pa.decimal128(5, 2))])


@dataclass
class Case:
    """A topic that was published after every entry: 0 made, 1 and 2 written, 3 merged, 4 altered, 5 written."""

    root: Path
    ns: txnlog.Namespace
    tables: Tables
    facts: Facts
    published: Published

    def findings(self, **changed: Any) -> str:
        """What is found where something else is published."""
        return "\n".join(replay_topic(self.facts, replace(self.published, **changed), complete=True).findings)

    def with_commit(self, version: int, change: Callable[[list[Any]], object]) -> dict[int, bytes]:
        """The commits, one of which has other actions."""
        lines = [json.loads(line) for line in self.published.commits[version].splitlines()]
        change(lines)
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        return {**self.published.commits, version: data}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    yield from engines_in(tmp_path_factory.mktemp("engines"), spark=False)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, engines: Engines) -> Iterator[Case]:
    root = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch, txnlog.open(root, NAMESPACE, create=True) as ns:
        patch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 3)
        ns.create_topic("orders", SCHEMA, partitions=2)
        with catalog.open(root) as cat:
            cat.publish(NAMESPACE)
            for number in range(2):
                with ns.begin() as txn:  # of two files each
                    for part in range(2):
                        txn.produce("orders", [{"value": 2 * number + part, "price": None}], partition=0)
                        txn.flush()
                cat.publish(NAMESPACE)
            assert ns.optimize("orders", 4 << 20).merged_segments == 4
            cat.publish(NAMESPACE)
            ns.alter_topic("orders", [("more", pa.string())])
            cat.publish(NAMESPACE)
            ns.produce("orders", [{"value": 4, "more": "x"}], partition=1)
            cat.publish(NAMESPACE)
            plan = DeltaPlan(root=str(root), folder=str(root), seed=1, seconds=0)
            tables = Tables(plan, ns, engines)
            (record,) = tables.records()
            published = tables.published("orders", tables.commits("orders"))
            assert len(published.commits) == 6
            assert published.checkpoints
            yield Case(root, ns, tables, tables.facts(record), published)


def is_of(kind: str) -> Callable[[Any], bool]:
    return lambda line: kind in line


def without(kind: str, count: int = 1) -> Callable[[list[Any]], None]:
    """Leaves out some actions of a kind."""

    def change(lines: list[Any]) -> None:
        for line in list(filter(is_of(kind), lines))[:count]:
            lines.remove(line)

    return change


def edited(kind: str, **changed: Any) -> Callable[[list[Any]], None]:
    """Changes fields of all actions of a kind."""

    def change(lines: list[Any]) -> None:
        for line in filter(is_of(kind), lines):
            line[kind] |= changed

    return change


def test_what_is_right_is_found_right(case: Case) -> None:
    assert case.findings() == ""


BAD: dict[str, tuple[int, Callable[[list[Any]], object], str]] = {
    "half an entry": (1, without("add"), "1 too few"),
    "nothing of an entry": (1, without("add", 2), "2 too few"),
    "an action twice": (2, lambda lines: lines.append(lines[-1]), "says twice"),
    "another domain": (2, edited("domainMetadata", domain="other"), "has the actions"),
    "a remove that looks like a change": (3, edited("remove", dataChange=True), "streams stop there"),
    "a remove left out": (3, without("remove"), "1 too many"),
    "a merge without what comes out": (3, without("add"), "1 too few"),
    "a remove twice": (3, lambda lines: lines.append(next(filter(is_of("remove"), lines))), "says twice"),
    "a remove of nothing": (
        2,
        lambda lines: lines.append({"remove": {"path": "x", "dataChange": False}}),
        "is not there",
    ),
    "a merge that looks new": (3, edited("add", dataChange=True), "streams are told twice"),
    "rows that look old": (5, edited("add", dataChange=False), "streams are told never of offset 0 of 1"),
    "another file": (5, edited("add", path=f"{SEGMENT_COLUMN}=9/{'0' * 32}.parquet"), "the log does not show"),
    "another size": (5, edited("add", size=7), "it is File"),
    "another count": (5, edited("add", stats='{"numRecords":7}'), "it is File"),
    "columns left out": (4, without("metaData"), "has the columns"),
    "no name of what it shows": (2, without("domainMetadata"), "has the actions"),
    "an earlier time": (2, edited("commitInfo", inCommitTimestamp=5), "is no later"),
    "a protocol again": (2, lambda lines: lines.insert(1, {"protocol": {}}), "has the actions"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_commit_that_says_something_else_is_found(case: Case, what: str) -> None:
    version, change, told = BAD[what]
    assert told in case.findings(commits=case.with_commit(version, change))


def test_a_file_that_is_added_again_is_found(case: Case) -> None:
    first = json.loads(case.published.commits[1].splitlines()[-1])
    commits = case.with_commit(2, lambda lines: lines.append(first))
    assert "would be doubled" in case.findings(commits=commits)


def test_rows_that_streams_never_hear_of_are_found(case: Case) -> None:
    commits = case.with_commit(1, edited("add", dataChange=False))
    assert "streams are told never of offset 0 of 0" in case.findings(commits=commits)


def test_an_entry_that_is_cut_in_two_is_found(case: Case) -> None:
    """Each version is sound in itself; the first shows half of an entry."""

    def first(lines: list[Any]) -> None:
        lines.pop()

    commits = case.with_commit(1, first)
    rest = dict(sorted(commits.items())[2:])
    again = case.with_commit(1, without("add"))[1]
    shifted = {version + 1: data for version, data in rest.items()}
    found = case.findings(
        commits={0: commits[0], 1: commits[1], 2: again, **shifted}, seen={}, checkpoints={}, hint=None
    )
    assert "version 1 shows" in found
    assert "too few" in found


def test_a_mapping_that_goes_back_or_shows_what_changed_nothing_is_found(case: Case) -> None:
    def back(lines: list[Any]) -> None:
        lines[0]["commitInfo"]["txnlog"]["version"] = 0

    assert "behind" in case.findings(commits=case.with_commit(2, back))
    assert "where nothing changed" in case.findings(commits=case.with_commit(2, back))
    assert "contradicts itself" in case.findings(commits=case.with_commit(2, back))


def test_a_version_that_shows_what_the_one_before_does_is_found_unless_versions_were_lost(case: Case) -> None:
    info, domain = (json.loads(case.published.commits[5].splitlines()[number]) for number in (0, 1))
    info["commitInfo"]["inCommitTimestamp"] += 1
    info["commitInfo"]["txnlog"]["before"] = info["commitInfo"]["txnlog"]["version"]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in (info, domain))
    again = replace(case.published, commits={**case.published.commits, 6: data})
    assert "shows what the one before does" in "\n".join(replay_topic(case.facts, again, complete=True).findings)
    assert replay_topic(case.facts, again, complete=True, may_repeat=True).findings == []


def test_streams_may_stop_where_that_is_said(case: Case) -> None:
    commits = case.with_commit(3, lambda lines: [edited(kind, dataChange=True)(lines) for kind in ("add", "remove")])
    changed = replace(case.published, commits=commits, seen={})
    assert replay_topic(case.facts, changed, complete=True, may_stop=True).findings == []
    assert replay_topic(case.facts, changed, complete=True).findings


def test_the_log_of_the_table_of_segments_is_judged_as_any(case: Case) -> None:
    wanted, published = case.tables.segments(), case.tables.published(SEGMENTS, {})
    sizes = case.tables.sizes(SEGMENTS)

    def found(**changed: Any) -> str:
        told = {"wanted": wanted, "published": published, "sizes": sizes} | changed
        return "\n".join(replay_segments(**told, complete=True).findings)

    assert found() == ""
    assert published.checkpoints
    (version, files), *_ = published.checkpoints.items()
    assert "too many" in found(published=replace(published, checkpoints={version: {**files, "x": 1}}))
    assert "it has 7" in found(sizes=dict.fromkeys(sizes, 7))
    assert "where nothing changed" in found(wanted=wanted.slice(0, 0))
    commits = dict(published.commits)
    newest = max(commits)
    del commits[newest]
    assert "the newest version shows" in found(published=replace(published, commits=commits))
    other = published.commits[newest].replace(b'"table":"_delta/segments"', b'"table":"_delta/others"')
    assert "behind" in found(published=replace(published, commits={**commits, newest: other}))


def test_a_commit_that_is_cut_off_is_found(case: Case) -> None:
    data = case.published.commits[2]
    for cut in (data[:-1], data[: len(data) // 2], b"", b"[]\n"):
        assert "no whole commit" in case.findings(commits={**case.published.commits, 2: cut})


def test_a_version_that_is_missing_changed_or_behind_the_log_is_found(case: Case) -> None:
    commits = dict(case.published.commits)
    changed = case.with_commit(4, lambda _lines: None)
    assert "version 4 was changed" in case.findings(commits=changed)
    del commits[2]
    found = case.findings(commits=commits)
    assert "not dense" in found
    assert "version 2 was there, and is gone" in found
    short = {version: data for version, data in case.published.commits.items() if version < 5}
    assert "the newest version shows" in case.findings(commits=short, seen={})


def test_a_checkpoint_of_something_else_and_strangers_are_found(case: Case) -> None:
    (version, files), *_ = case.published.checkpoints.items()
    assert "too few" in case.findings(checkpoints={version: dict(sorted(files.items())[1:])})
    assert "1 too many" in case.findings(checkpoints={version: {**files, min(files): 7}})
    assert "has no version" in case.findings(checkpoints={17: files})
    assert "told of files by the checkpoints" in case.findings(loud=frozenset({version}))
    assert "_last_checkpoint names 99" in case.findings(hint=99)
    assert "strangers" in case.findings(others=("x.tmp",))


def test_rows_of_every_version_are_compared_as_deltalake_reads_them(case: Case) -> None:
    (record,) = case.tables.records()
    done = [case.tables.compare(record, version, data) for version, data in case.published.commits.items()]
    assert [item.finding for item in done] == [None] * 6
    assert [item.rows for item in done] == [0, 2, 4, 4, 4, 5]
    wanted = case.tables.segments()
    commits = case.tables.commits(SEGMENTS)
    assert [case.tables.compare_segments(version, data, wanted).finding for version, data in commits.items()] == [
        None
    ] * len(commits)
    lacking = wanted.slice(1)
    assert "too many" in case.tables.compare_segments(max(commits), commits[max(commits)], lacking).finding


def test_rows_that_are_lost_or_doubled_on_the_store_are_found(case: Case, engines: Engines, tmp_path: Path) -> None:
    """The Delta log is made bad where engines read it, and the log is asked as before."""
    folder = tmp_path / NAMESPACE
    shutil.copytree(case.root / NAMESPACE, folder)
    for path in (folder / "orders" / "_delta_log").glob("*checkpoint*"):
        path.unlink()
    tables = Tables(DeltaPlan(root=str(tmp_path), folder=str(tmp_path), seed=1, seconds=0), case.ns, engines)
    (record,) = tables.records()
    for version, change, told in (
        (1, without("add"), "1 too few"),
        (3, without("remove"), "1 too many"),
        (5, edited("add", path="nowhere.parquet"), "nowhere"),
        (4, without("metaData"), "the columns are"),
    ):
        data = case.with_commit(version, change)[version]
        path = folder / "orders" / "_delta_log" / f"{version:020d}.json"
        path.write_bytes(data)
        assert told in (tables.compare(record, version, data).finding or ""), version
        path.write_bytes(case.published.commits[version])
    half = case.published.commits[1][:-40]
    assert "no whole commit" in (tables.compare(record, 1, half).finding or "")


@pytest.mark.parametrize("engine", FAST)
def test_who_reads_what_a_vacuum_was_at_must_get_an_error_or_see_all_of_it(
    case: Case, engines: Engines, tmp_path: Path, engine: str
) -> None:
    shutil.copytree(case.root / NAMESPACE, tmp_path / NAMESPACE)
    folder = tmp_path / NAMESPACE / "orders"
    tables = Tables(DeltaPlan(root=str(tmp_path), folder=str(tmp_path), seed=1, seconds=0), case.ns, engines)
    (record,) = tables.records()
    data = case.published.commits[1]
    done = tables.compare_old(record, 1, data, engine)
    assert (done.finding, done.gone, done.rows) == (None, False, 2)
    whole = (folder / "_delta_log" / f"{1:020d}.json").read_bytes()
    (folder / "_delta_log" / f"{1:020d}.json").write_bytes(case.with_commit(1, without("add"))[1])
    assert "1 too few" in (tables.compare_old(record, 1, data, engine).finding or "")
    (folder / "_delta_log" / f"{1:020d}.json").write_bytes(whole)
    (folder / json.loads(data.splitlines()[-1])["add"]["path"]).unlink()
    done = tables.compare_old(record, 1, data, engine)
    assert (done.finding, done.gone) == (None, True)


def test_rows_are_the_same_in_any_order_and_each_difference_is_found() -> None:
    good = pa.table({"value": pa.array([0, 1]), "price": ["x", None]})
    changed = good.set_column(1, "price", pa.array(["y", None]))

    def found(table: pa.Table) -> str | None:
        return difference(table, good, ("value",))

    assert found(good.take([1, 0])) is None
    assert "1 too many" in found(pa.concat_tables([good, good.slice(1)]))
    assert "1 too few" in found(good.slice(1))
    assert "['price']" in found(changed)
    assert "columns" in found(good.drop_columns(["price"]))
    assert "types" in found(good.set_column(0, "value", pa.array(["x", "y"])))


def test_offsets_come_from_the_table_of_segments() -> None:
    found = pa.table({SEGMENT_COLUMN: [7, 7, 7], "value": [5, 6, 7]})
    parts = [(7, 0, 10, 0, 2), (7, 1, 4, 2, 1)]
    names = ("segment", "partition", "base_offset", "first_row", "rows")
    segments = pa.Table.from_pylist([dict(zip(names, item, strict=True)) for item in parts])
    assert with_offsets(found, segments) == {(0, 10): 5, (0, 11): 6, (1, 4): 7}
    with pytest.raises(ValueError, match="does not know row 2 of segment 7"):
        with_offsets(found, segments.slice(0, 1))
    with pytest.raises(ValueError, match="two rows have the offset"):
        with_offsets(
            found.set_column(0, SEGMENT_COLUMN, pa.array([7, 8, 7])),
            pa.concat_tables([segments, segments.set_column(0, "segment", pa.array([8, 8]))]),
        )


def test_what_is_only_said_in_logs_is_found() -> None:
    quiet = [
        "2026 txnlog.log.slots put of orders/_delta_log/7.json: create was lost (planted) (attempt 1)",
        "2026 txnlog.publisher the topic 'orders' was not published; the next commit tries again: get failed (planted)",
        "2026 txnlog.publisher the topic 'orders' was not published; ...: the store did not say whether 7.json exists",
        "2026 txnlog.publisher the checkpoint of the Delta table of 'orders' could not be made: put failed (planted)",
    ]
    assert list(told_in("\n".join(quiet), "w1g1")) == []
    for odd in (
        "2026 txnlog.publisher a topic was not published: a bug, which harms no commit",
        "2026 txnlog.publisher version 7 of the Delta table of 'orders' was damaged: it was written again",
        "2026 txnlog.publisher the topic 'orders' was not published; ...: version 7 was not written by txnlog",
    ):
        assert list(told_in("\n".join([*quiet, odd]), "w1g1")) == [f"w1g1 says: {odd}"]


def report(**changed: int) -> dict[str, Any]:
    """Of a run that is good enough, whatever its length."""
    counts = dict.fromkeys((*SEEN, *SEEN_IN_LONG), 1) | {"milliseconds": 1, "milliseconds of checks": 1}
    counts |= {"kills": 10_000, "versions": 10_000, "compared": 10_000, "gone before they were compared": 0}
    return {"broken": [], "counts": counts | changed, "found": {"findings": 0, "explained": [], "figures": {}}}


def test_too_little_of_anything_fails_a_run(tmp_path: Path) -> None:
    long, short = plan_for(tmp_path, 1, 600), plan_for(tmp_path, 1, 15)
    assert long.least_counts == {"kills": 200}
    assert problems(long, report()) == []
    for name in (*SEEN, *SEEN_IN_LONG):
        assert problems(long, report(**{name: 0})) == [f"seed 1: no {name}"]
        assert bool(problems(short, report(**{name: 0}))) == (name in SEEN)
    assert "kills: 199" in problems(long, report(kills=199))[0]
    assert "compared" in problems(long, report(compared=9_999))[0]
    assert (
        "gone"
        in problems(
            long,
            report(compared=5_000)
            | {"counts": report(compared=5_000, **{"gone before they were compared": 5_000})["counts"]},
        )[0]
    )
    assert problems(long, report() | {"broken": ["w1g1 broke"]}) == ["seed 1: w1g1 broke"]


def test_where_a_process_stood_is_known_of_the_one_that_died() -> None:
    progress = Progress(3)
    progress.enter(1, Phase.BEHIND_CHECKPOINT)
    assert progress.phase(1, os.getpid()) is Phase.BEHIND_CHECKPOINT
    assert progress.phase(1, os.getpid() + 1) is Phase.ELSEWHERE
    assert progress.phase(0, os.getpid()) is Phase.ELSEWHERE
    progress.count(0, "met")
    progress.count(2, "met")
    progress.count(2, "published")
    assert progress.counts() == {"met": 2, "published": 1}
    assert progress.compared == -1
    progress.note_compared(5)
    assert (progress.compared, progress.phase(1, os.getpid())) == (5, Phase.BEHIND_CHECKPOINT)
