"""Group commit between processes, in virtual time: writers over a store whose every request takes 41 ms."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec
import pyarrow as pa
import pytest
import xxhash

from tests.open_metrics import Parsed, parsed
from tests.sim.crowds import (
    SECONDS,
    TRIP_MS,
    _known_writers,
    asked_about_proposals,
    commits,
    commits_of,
    entries,
    mailbox,
    mailboxes,
    workers,
    world,
    writer_of,
)
from txnlog.api.namespace import Namespace
from txnlog.client import session_owner
from txnlog.common.format_limits import MAX_PROPOSAL_BYTES
from txnlog.errors import ProducerFenced, TxnLogError
from txnlog.fold.number_blocks import block_of
from txnlog.format import keys
from txnlog.format.actions import Abort, Reserve, Segment
from txnlog.log.proposals import collector, proposal_codec, proposer, races
from txnlog.testing.world import NAMESPACE

__all__ = ["_known_writers", "commits", "workers", "world"]


def test_who_commits_alone_asks_nothing_of_proposals(world, commits):
    commits.start(1)
    world.run(2 * SECONDS * 1e3)
    assert len(commits.values["w0"]) >= 30
    assert asked_about_proposals(world) == 0
    before = Counter(world.stores["w0"].calls)
    assert before["create entry"] <= len(commits.values["w0"]) + 2, "one entry a commit, and one for numbers"
    commits.check()


def test_who_commits_now_and_then_in_turn_with_another_one_asks_nothing_of_proposals(world, commits):
    """Each loses the race to what it has not heard of, and wins the next one: nobody else is waiting."""

    def now_and_then(first_ms: float) -> Callable[[Namespace], None]:
        def work(ns: Namespace) -> None:
            world.scheduler.sleep(first_ms)
            for _ in range(5):
                with ns.begin() as txn:
                    txn.produce("audit", [{"value": commits.value()}])
                world.scheduler.sleep(4_000)
            ns.close()

        return work

    world.start("even", now_and_then(0.0))
    world.start("odd", now_and_then(2_000.0))
    world.run(60_000)
    assert len(entries(world)) >= 10
    assert asked_about_proposals(world) == 0


def test_many_writers_share_entries(world, commits):
    commits.start(16, seconds=10)
    world.run(20_000)
    commits.check()
    late = [entry for entry in entries(world) if commits_of(entry)][-8:-4]
    assert min(map(commits_of, late)) >= 8, "they share entries"
    assert len({entry.header.writer for entry in late}) == 1, "one of them collects"
    counts = [len(values) for values in commits.values.values()]
    assert min(counts) * 2 >= max(counts), "none of them starves"
    requests = sum(store.calls.total() for store in world.stores.values())
    assert requests <= 6 * sum(counts), "openings and first races included"


@pytest.mark.clause("P-243", "P-253")
@pytest.mark.parametrize("collectors", ["new", "old"])
def test_writers_that_say_their_client_share_entries_and_lose_nothing_to_an_old_collector(
    world, commits, monkeypatch, collectors
):
    """An old one compares all of the text: it passes over what they propose, and each appends its own commits."""
    monkeypatch.setattr(session_owner, "client_text", lambda _name, *, of_process: "nightly")
    if collectors == "old":
        monkeypatch.setattr(collector, "owner_of", lambda draft, number: block_of(draft, number).writer_text)
    commits.start(8, seconds=8)
    world.run(30_000)
    commits.check()
    log = entries(world)
    texts = [action.writer for entry in log for action in entry.actions if isinstance(action, Reserve)]
    assert sum(text.endswith(" nightly") for text in texts) >= 2, "those that reserved a block by themselves"
    assert max(map(commits_of, log)) >= 6 or collectors == "old", "they share entries"
    assert min(len(values) for values in commits.values.values()) >= 3, "none of them starves"


@pytest.mark.clause("P-243")
def test_nobody_waits_for_a_collector_that_died(world, commits):
    commits.start(8, seconds=8)
    world.run(4_000)
    last = entries(world)[-1].header.writer
    (name,) = [
        name for name, store in world.stores.items() if name != "reader" and writer_of(world, name) == last
    ] or pytest.fail("nobody collects")
    world.scheduler.crash(world.actors[name])
    died_ms = world.now_ms
    commits.longest_ms = 0.0
    world.run(died_ms + 3_000)
    assert entries(world)[-1].header.writer != last
    assert commits.longest_ms < 50 * TRIP_MS, "they race after ten round trips, and one of them collects then"
    world.run(20_000)
    commits.check()


def test_a_collector_says_at_its_end_that_it_collects_no_more(world, commits):
    commits.start(4)
    world.run(60_000)
    commits.check()
    said = world.objects.get(f"{NAMESPACE}/{keys.COLLECTOR_KEY}")
    assert said == b'{"writer":""}'


def test_rows_do_not_stay_in_mailboxes_once_their_writers_are_closed(world, commits):
    commits.start(4)
    world.run(3_000)
    assert len(mailboxes(world)) >= 2
    world.run(60_000)
    assert mailboxes(world) == []


def test_who_comes_now_and_then_does_not_take_over(world, workers):
    """It does not know who collects by now. Two would collect in turns, and each change makes all others race."""
    workers.start("w0", "w1", "w2", "w3")
    world.run(4_000)
    said: set[str] = set()

    def work(ns: Namespace) -> None:
        for number in range(40):
            world.scheduler.sleep(1_500 + 37 * number % 400)
            for _ in range(20):
                with ns.begin() as txn:
                    txn.produce("audit", [{"value": -1}])
                said.add(msgspec.json.decode(world.objects.get(f"{NAMESPACE}/{keys.COLLECTOR_KEY}"))["writer"])

    world.start("p", work)
    world.run(90_000)
    assert world.stores["p"].calls["put proposal"] > 10
    assert len(said) == 1


def test_a_vacuum_deletes_the_mailboxes_and_whoever_proposes_races(world, commits):
    vacuumed: list[int] = []

    def vacuum(ns: Namespace) -> None:
        for _ in range(5):
            world.scheduler.sleep(700)
            before = len(mailboxes(world))
            ns.vacuum()
            vacuumed.append(before)

    commits.start(6, 10.0)
    world.start("admin", vacuum)
    world.run(60_000)
    commits.check()
    assert sum(vacuumed) >= 5, "there were some"
    assert commits.longest_ms < 60 * TRIP_MS
    counts = [len(values) for values in commits.values.values()]
    assert min(counts) >= 3, "a vacuum every 17 round trips keeps nobody from committing"


@pytest.mark.clause("P-243", "P-247")
@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff" * 100, id="noise"),
        pytest.param(bytes(MAX_PROPOSAL_BYTES + 1), id="too big"),
        pytest.param(b"\x85" + bytes(50), id="a map that is cut"),
    ],
)
def test_hostile_mailboxes_stop_nobody(world, commits, caplog, hostile):
    for number in range(300):
        world.objects.put(mailbox(world, f"{number:032x}"), hostile)
    commits.start(6)
    with caplog.at_level(logging.WARNING, logger="txnlog.proposals"):
        world.run(2 * SECONDS * 1e3)
    commits.check()
    assert max(map(commits_of, entries(world))) >= 3
    assert commits.longest_ms < 40 * TRIP_MS, "nobody waits for ever for one who does not find the mailbox"
    passed_over = [record for record in caplog.records if "passed over" in record.getMessage()]
    assert 1 <= len(passed_over) <= len(commits.values), "each collector says it once"


@pytest.mark.clause("P-247")
def test_numbers_of_somebody_else_are_not_used(world, commits):
    """A mailbox names a transaction of another writer, which is open: nothing happens to it."""
    open_ids: list[str] = []

    def victim(ns: Namespace) -> None:
        txn = ns.begin(timeout_ms=60_000)
        txn.produce("audit", [{"value": 77}])
        txn.flush()
        open_ids.append(str(txn.id))
        world.scheduler.sleep(SECONDS * 1e3)
        txn.commit()

    world.start("victim", victim)
    commits.start(6)
    world.run(3_000)
    assert open_ids
    number = int(open_ids[0], 16) % 2**63
    thief = writer_of(world, "w0") or ""
    actions = [action for entry in entries(world) for action in entry.actions]
    own = next(item for item in actions if isinstance(item, Reserve) and item.writer == thief)
    command = proposal_codec.ProposedCommit(number, "0" * 32)
    forged = proposal_codec.Mailbox(1, thief, own.first + own.count - 1, 10, 1_767_225_603_000, (command,))
    content = msgspec.msgpack.encode(forged)
    world.objects.put(mailbox(world, thief), xxhash.xxh3_128_digest(content) + content)
    world.run(60_000)
    assert 77 in commits.check(), "nobody but its owner ended it"


@pytest.mark.clause("P-244", "P-249")
def test_all_numbers_are_of_blocks_of_whoever_uses_them(world, commits):
    seen: dict[int, str] = {}

    def look() -> None:
        for key in mailboxes(world):
            parsed = keys.parse_key(key.removeprefix(f"{NAMESPACE}/"))
            assert isinstance(parsed, keys.MailboxKey)
            found = proposal_codec.decode(world.objects.get(key), parsed.writer or "")
            for command in found.commands:
                if isinstance(command, proposal_codec.ProposedCommit):
                    seen[command.txn] = found.writer
            if found.number is not None:
                numbers[found.number] = found.writer
        if world.now_ms < SECONDS * 1e3:
            world.scheduler.after(50.0, look)

    numbers: dict[int, str] = {}
    world.scheduler.after(500, look)
    commits.start(6)
    world.run(60_000)
    log = entries(world)
    blocks = [action for entry in log for action in entry.actions if isinstance(action, Reserve)]

    def owner(number: int) -> str:
        (block,) = [item for item in blocks if item.first <= number < item.first + item.count]
        return block.writer

    assert len(numbers) > 20
    assert {number: owner(number) for number in numbers} == numbers, "of proposals"
    assert {number: owner(number) for number in seen} == seen, "of transactions"
    used = [action for entry in log for action in entry.actions if getattr(action, "txn", None) in numbers]
    assert all(isinstance(action, Abort) for action in used), "the number of a proposal is used to make it void"
    segments = [(entry, action) for entry in log for action in entry.actions if isinstance(action, Segment)]
    assert len(segments) > 10
    assert all(owner(action.segment) == entry.header.writer for entry, action in segments)


def test_old_writers_go_on_next_to_the_others(world, commits, monkeypatch):
    old = {"w1", "w3"}
    wants = proposer.Proposer.wants
    monkeypatch.setattr(
        proposer.Proposer,
        "wants",
        lambda self, attempt: self._writer not in {writer_of(world, name) for name in old} and wants(self, attempt),
    )
    note_appended = collector.Collector.note_appended
    monkeypatch.setattr(
        collector.Collector,
        "note_appended",
        lambda self: None if self._writer in {writer_of(world, name) for name in old} else note_appended(self),
    )
    commits.start(6)
    world.run(2 * SECONDS * 1e3)
    commits.check()
    assert all(commits.values[name] for name in old), "they win races"


@pytest.mark.clause("P-245", "P-246")
def test_what_is_refused_is_refused_to_its_owner_and_nothing_of_it_lands(world, commits):
    """A zombie proposes under a name that another one took over."""
    refused: list[BaseException] = []

    def zombie(ns: Namespace) -> None:
        producer = ns.producer("loader")
        while world.now_ms < SECONDS * 1e3:
            with_error = commits.value()
            try:
                producer.produce("audit", [{"value": with_error}])
            except TxnLogError as error:
                refused.append(error)
                banned.add(with_error)
                if isinstance(error, ProducerFenced):
                    return

    def heir(ns: Namespace) -> None:
        world.scheduler.sleep(2_000)
        ns.producer("loader")

    banned: set[int] = set()
    world.start("zombie", zombie)
    world.start("heir", heir)
    commits.start(6)
    world.run(60_000)
    assert [type(error) for error in refused] == [ProducerFenced]
    assert not banned & commits.check().keys()


def test_who_has_no_right_to_propose_races(world, commits):
    commits.start(6)
    for name in ("w0", "w1"):
        world.stores[name].denied = "proposal"
    world.run(60_000)
    commits.check()
    assert all(commits.values.values()), "everybody commits"
    for name in ("w0", "w1"):
        assert world.stores[name].calls["put proposal"] <= 2, "a right that is missing is not asked for again"


@pytest.mark.clause("P-249")
def test_a_collector_without_the_right_to_the_rows_of_others_leaves_them(world, commits, monkeypatch):
    """It has no right to write segments, and commits none: what others propose is no failure of its own commands."""
    gave_up: list[bool] = []
    leave_off = collector.Collector.leave_off

    async def noted(self, error):
        await leave_off(self, error)
        self._races.note_rivals()
        self.note_appended()
        gave_up.append(not self.collects)

    monkeypatch.setattr(collector.Collector, "leave_off", noted)
    done: list[int] = []

    def seek(number: int, ns: Namespace) -> None:
        consumer = ns.consumer("audit", f"seeker-{number}")
        while world.now_ms < 3 * SECONDS * 1e3:
            consumer.seek({0: len(done) % 2})
            done.append(1)
        ns.close()

    for number in range(10):
        world.start(f"seeker{number}", partial(seek, number))
        world.stores[f"seeker{number}"].denied = "segment"
    commits.start(4, seconds=3 * SECONDS)
    world.run(60_000)
    commits.check()
    assert gave_up, "one of them collected"
    assert all(gave_up), "it does not again"
    assert all(commits.values.values()), "others commit all the same"


@pytest.mark.clause("P-243")
def test_two_collectors_end_as_one(world, commits):
    commits.start(8, seconds=10)
    world.run(2_500)
    for name in ("w1", "w2", "w3"):
        client = writer_of(world, name)
        world.objects.put(f"{NAMESPACE}/{keys.COLLECTOR_KEY}", b'{"writer":"%s"}' % (client or "").encode())
    world.run(60_000)
    commits.check()
    last = [entry for entry in entries(world) if commits_of(entry)][-12:-6]
    assert len({entry.header.writer for entry in last}) == 1


@pytest.mark.clause("P-247")
def test_who_waits_for_one_who_does_not_collect_races(world, commits, monkeypatch):
    """Another one does, whose entries come all the time, and who does not know the mailbox."""
    known = vars(races.Races)["collector"].fget

    def collector_of(self: races.Races) -> str | None:
        return "f" * 32 if self._writer == writer_of(world, "w0") else known(self)

    wanted = collector.Collector._wanted

    def others(self: collector.Collector) -> list[str]:
        return [writer for writer in wanted(self) if writer != writer_of(world, "w0")]

    monkeypatch.setattr(races.Races, "collector", property(collector_of))
    monkeypatch.setattr(collector.Collector, "_wanted", others)
    commits.start(6, seconds=8)
    world.run(60_000)
    commits.check()
    assert len(commits.values["w0"]) >= 4


@pytest.mark.clause("P-245")
def test_who_waited_in_vain_proposes_the_same_to_the_next_one(world, commits, monkeypatch):
    """Nobody collects. Were a race to be won before each proposal, a crowd would race for seconds after an end."""
    asked: list[tuple[str, int, str]] = []
    encode = proposal_codec.encode

    def named(self: races.Races) -> str:
        return f"{int(world.now_ms) // 500:032x}"

    def noted(writer: str, number: int | None, *rest):
        if number is not None:
            asked.append((writer, number, f"{int(world.now_ms) // 500:032x}"))
        return encode(writer, number, *rest)

    monkeypatch.setattr(collector.Collector, "note_appended", lambda _self: None)
    monkeypatch.setattr(races.Races, "collector", property(named))
    monkeypatch.setattr(proposal_codec, "encode", noted)
    commits.start(4, seconds=8)
    world.run(60_000)
    commits.check()
    times = Counter((writer, number) for writer, number, _ in asked)
    assert max(times.values()) >= 2
    assert len(set(asked)) == len(asked), "the same one is asked twice"


def test_random_bytes_in_place_of_real_proposals(world, commits):
    """Somebody writes over the mailboxes, again and again."""
    chance = random.Random(5)

    def disturb() -> None:
        for info in list(world.objects.list(f"{NAMESPACE}/{keys.PROPOSAL_FOLDER}")):
            data = bytearray(world.objects.get(info.key))
            if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                world.objects.put(info.key, bytes(data))
        if world.now_ms < SECONDS * 1e3:
            world.scheduler.after(97.0, disturb)

    world.scheduler.after(1_000, disturb)
    commits.start(6)
    world.run(60_000)
    found = commits.check()
    values = {value for mine in commits.values.values() for value in mine}
    assert not found.keys() - values - set(range(1_000)), "what was changed on its way is nobody's"


@pytest.mark.parametrize("what", ["null", "not null"])
def test_rows_of_every_type_are_brought_along(world, what):
    """STALL: commits to a topic with a certain column are proposed in vain, each time, and their writers race.

    A map of structs, with a field that is never null, and one value of the map is null. ``wire_rows`` brings the rows
    back as they were, and ``conform`` raises Arrow's error for them: the mailbox passes for malformed.
    """
    attributes = pa.map_(pa.string(), pa.struct([pa.field("amount", pa.int32(), nullable=False)]))
    schema = pa.schema([pa.field("attributes", attributes)])
    value = None if what == "null" else {"amount": 1}
    rows = pa.table({"attributes": pa.array([[("x", value)]], attributes)}, schema)
    done: list[float] = []
    malformed: list[int] = []

    def found(ns):
        ns.create_topic("carts", schema, delta="off")
        ns.close()

    def work(ns):
        while world.now_ms < 10_000:
            with ns.begin() as txn:
                txn.produce("carts", rows)
            done.append(world.now_ms)
        malformed.append(ns._connection.appender.counts.malformed)
        ns.close()

    world.start("founder", found)
    world.run(2_000)
    for number in range(8):
        world.start(f"w{number}", work)
    world.run(20_000)
    assert sum(malformed) == 0, f"of {len(done)} commits"


def test_metrics_count_who_brought_whose_commits(world, commits):
    done = Counter[str]()
    found: dict[str, dict[str, Parsed]] = {}

    def work(name: str, ns: Namespace) -> None:
        ns.metrics()
        while world.now_ms < 6_000:
            with ns.begin() as txn:
                txn.produce("audit", [{"value": -1}])
            done[name] += 1
        found[name] = parsed(ns.metrics())
        ns.close()

    names = [f"w{number}" for number in range(8)]
    for name in names:
        world.start(name, partial(work, name))
    world.run(20_000)
    assert sorted(found) == names

    def total(family: str, **labels: str) -> dict[str, float]:
        return {name: found[name][f"txnlog_handle_{family}"].total(**labels) for name in names}

    brought, collected = total("proposals", result="brought"), total("collected_proposals", result="decoded")
    assert sum(value > 0 for value in brought.values()) >= 6, "most commits are brought by one of them"
    assert sum(value > 0 for value in collected.values()) <= 2
    assert sum(collected.values()) >= sum(brought.values()) > 10
    assert set(total("collected_proposals", result="malformed").values()) == {0}
    assert all(total("lost_races").values())
    for name in names:
        assert found[name]["txnlog_handle_commit_duration_seconds"].value("_count") == done[name]
