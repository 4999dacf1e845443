"""Publishers that meet every fault at every store call, and publishers that meet each other at every one."""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from catalog.publication import table_publisher, topic_versions
from catalog.publication.publications import Publications
from tests.catalog.judging import check_table, commits_of
from tests.catalog.publishers import PREPARED, TOPIC, client, prepared, publications, publish
from tests.client.support import raises
from tests.effort import every, tries
from tests.faults import Once
from tests.sim.fates import Fate, FateStore, fates_of
from tests.sim.interleaving import Duel, RandomScheduler, ScriptedScheduler, SteppedScheduler, in_schedules
from tests.sim.scopes import copied, rows
from txnlog.errors import Durable, InvalidInputError, TxnLogError
from txnlog.format import keys
from txnlog.store.wrappers import StoreCall


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(topic_versions, "MOST_FILES", 2)
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 2)
    caplog.set_level(logging.CRITICAL, logger="txnlog")
    prepared.cache_clear()


def calls_of(name: str) -> list[tuple[str, str]]:
    store = FateStore(copied(prepared(name)))
    ns = client(store, "counted")
    topic = ns._connection.topic_record(TOPIC).id
    store.counting = True
    publications(ns).publish(topic)
    return store.calls


@pytest.mark.parametrize("name", PREPARED)
def test_every_store_call_of_a_publication_with_every_fate(name: str) -> None:
    runs = 0
    first, step = every(8)
    for at, (call, key) in list(enumerate(calls_of(name)))[first::step]:
        for fate in fates_of(call):
            try:
                _run(name, at, fate)
            except Exception as error:
                error.add_note(f"{name}: {fate.name} at call {at}, the {call} of {key}")
                raise
            runs += 1
    assert runs > 40 // step


def _run(name: str, at: int, fate: Fate) -> None:
    inner = copied(prepared(name))
    store = FateStore(inner, at, fate)
    ns = client(store, "publisher")
    store.counting = True
    own = publications(ns)
    topic = ns._connection.topic_record(TOPIC).id
    for _ in range(3):
        try:
            own.publish(topic)
            break
        except TxnLogError:
            if fate.dies:
                break
            store.down = False
    store.down = False
    store.land("end")
    other = client(inner, "other")
    publish(other)
    shown = check_table(other, TOPIC)
    store.land("asked")
    other.produce(TOPIC, rows(50))
    publish(other)
    assert check_table(other, TOPIC)[: len(shown)] == shown
    if not fate.dies:  # who met the fault goes on
        store.counting = False
        ns._connection.follower.refresh()
        assert own.publish(topic).version == publish(other).version
        check_table(other, TOPIC)


def _duels(name: str, *, grow: bool, most: int, known: bool = False) -> int:
    """Two publishers in so many interleavings; the second may know an entry more. Returns how many there were.

    With ``known`` both know the table as it was, and what follows is new to it: then there are few.
    """

    def play(scheduler: ScriptedScheduler) -> None:
        duel = Duel(copied(prepared(name)))
        one, two = duel.client("a"), duel.client("b")
        one._connection.follower.refresh()
        two._connection.follower.refresh()
        of = one._connection.topic_record(TOPIC).id
        mine, yours = publications(one), publications(two)
        if known:
            mine.publish(of)
            yours.publish(of)
            two.produce(TOPIC, rows(60))
            two.produce(TOPIC, rows(61))
            one._connection.follower.refresh()
        if grow:  # what the one knows the other does not
            two.produce(TOPIC, rows(70))
        duel.meet(partial(mine.publish, of), partial(yours.publish, of))
        duel.run(scheduler)
        for answer in duel.answers:
            assert not isinstance(answer, TxnLogError), answer
        fresh = client(duel.store, "fresh")
        check_table(fresh, TOPIC)
        for ns, own in ((one, mine), (two, yours)):
            fresh.produce(TOPIC, rows(80))
            ns._connection.follower.refresh()
            done = own.publish(of)
            assert done.version == fresh.snapshot().version
            assert done.repaired == (), "nobody was wrong about what is there"
        check_table(fresh, TOPIC)

    return len(in_schedules(play, most=most))


@pytest.mark.some(1)
@pytest.mark.parametrize("name", PREPARED)
@pytest.mark.parametrize("grow", [False, True])
def test_two_publishers_in_many_interleavings(name: str, grow: bool) -> None:
    assert _duels(name, grow=grow, most=tries(100, 20)) > 10


@pytest.mark.some(1)
@pytest.mark.parametrize("grow", [False, True])
@pytest.mark.parametrize("files", [1, 2, 100])
def test_two_publishers_who_know_the_table_in_every_interleaving(
    grow: bool, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many files a version they want to show different ends in the same one."""
    monkeypatch.setattr(topic_versions, "MOST_FILES", files)
    assert 1 < _duels("history", grow=grow, most=2_000, known=True) < 2_000


def test_a_version_that_came_while_those_behind_it_were_read_is_not_taken_for_lost() -> None:
    """Else its checkpoint would be written anew, with what was shown before it, until it is found in its place."""
    inner = copied(prepared("partly_published"))
    one, two = client(inner, "a"), client(inner, "b")
    folder = one._connection.topic_record(TOPIC).folder
    missed = keys.delta_commit_key(folder, max(commits_of(one._connection.store, folder)) + 1)
    written: list[str] = []

    def before(call: StoreCall, key: str) -> None:
        if call in {StoreCall.CREATE, StoreCall.PUT}:
            written.append(key)

    def after(call: StoreCall, key: str, _result: object) -> None:
        nonlocal missed
        if key == missed:
            missed = ""
            for number in range(60, 63):
                one.produce(TOPIC, rows(number))
                publish(one)

    done = publications(two, before, after).publish(two._connection.topic_record(TOPIC).id)
    assert (done.repaired, written) == ((), [])
    assert done.version == one.snapshot().version
    check_table(one, TOPIC)


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize("how", ["publish", "look"])
def test_who_knew_a_version_that_others_made_again_goes_on_from_what_is_there(
    how: str, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else he would write the next one behind what he knew: the rows in between would be in none, or in two."""
    monkeypatch.setattr(topic_versions, "MOST_FILES", 2 if followed else 100)
    inner = copied(prepared("history"))
    one, other = client(inner, "a"), client(inner, "b")
    of = one._connection.topic_record(TOPIC)
    own = publications(one)
    own.publish(of.id)
    for number in (60, 61):
        other.produce(TOPIC, rows(number))
    one._connection.follower.refresh()
    known = own.publish(of.id)
    other._connection.store.put(keys.delta_commit_key(of.folder, known.delta_version), b"garbage")
    if followed:
        assert publish(other).repaired == (known.delta_version,)
        other.produce(TOPIC, rows(62))
    else:
        other._connection.store.delete(keys.delta_commit_key(of.folder, known.delta_version))
        other.produce(TOPIC, rows(62))
    publish(other)
    before = check_table(other, TOPIC)
    if followed:
        assert before[known.delta_version] < known.version, "it shows less than it did"
    else:
        assert before[known.delta_version] > known.version, "it shows more than it did"
    other.produce(TOPIC, rows(63))
    one._connection.follower.refresh()
    if how == "look":
        assert len(own.versions(of.id, 100)) == len(before)
    else:
        assert own.publish(of.id).repaired == ()
    assert check_table(other, TOPIC, complete=how == "publish")[: len(before)] == before


def test_a_newest_version_that_was_removed_comes_back_before_the_next_one() -> None:
    """Else a gap would be left, and nobody could open the table."""
    inner = copied(prepared("history"))
    one = client(inner, "a")
    of = one._connection.topic_record(TOPIC)
    own = publications(one)
    newest = own.publish(of.id).delta_version
    shown = check_table(one, TOPIC)
    one._connection.store.delete(keys.delta_commit_key(of.folder, newest))
    one.produce(TOPIC, rows(60))
    done = own.publish(of.id)
    assert (done.delta_version, done.repaired) == (newest + 1, (newest,))
    assert check_table(one, TOPIC)[:-1] == shown


def test_a_version_that_was_removed_but_not_its_checkpoint_comes_back_with_one_that_shows_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers begin at the checkpoint: what the version adds beyond it they would never see."""
    inner = copied(prepared("history"))
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 1)
    late, other = client(inner, "a"), client(inner, "b")
    of = late._connection.topic_record(TOPIC)
    own = publications(late)
    own.publish(of.id)
    other.produce(TOPIC, rows(60))
    removed = publish(other).delta_version
    assert other._connection.store.info(keys.delta_checkpoint_key(of.folder, removed))
    other._connection.store.delete(keys.delta_commit_key(of.folder, removed))
    other.produce(TOPIC, rows(61))
    late._connection.follower.refresh()
    assert own.publish(of.id).version == other.snapshot().version
    check_table(other, TOPIC)


def test_two_who_repair_a_version_write_the_same_though_one_knows_less() -> None:
    """Else what he writes late would take the place of what others have gone on behind, and show less than that."""
    inner = copied(prepared("history"))
    late, other = client(inner, "a"), client(inner, "b")
    publish(other)
    late._connection.follower.refresh()
    other.produce(TOPIC, rows(60))
    newest = publish(other).delta_version
    key = keys.delta_commit_key(late._connection.topic_record(TOPIC).folder, newest)
    other._connection.store.put(key, b"garbage")
    other.produce(TOPIC, rows(61))
    gone_on: list[Any] = []
    first = Once(
        lambda call, written: call is StoreCall.PUT and written == key,
        lambda: gone_on.append(publish(client(inner, "c"))),
    )
    publications(late, first).publish(late._connection.topic_record(TOPIC).id)
    assert [done.delta_version for done in gone_on] == [newest + 1]
    check_table(other, TOPIC)


def test_a_checkpoint_shows_what_its_version_does_though_one_who_repairs_it_knew_more_of_it() -> None:
    """Who wrote the version knows what it showed, others show the nearest: readers begin at the one or at the other."""
    inner = copied(prepared("history"))
    one, other = client(inner, "a"), client(inner, "b")
    topic = one._connection.topic_record(TOPIC)
    own = publications(one)
    own.publish(topic.id)
    for number in (60, 61):
        other.produce(TOPIC, rows(number))
    one._connection.follower.refresh()
    key = keys.delta_commit_key(topic.folder, own.publish(topic.id).delta_version)
    other._connection.store.put(key, b"garbage")
    made: list[Any] = []
    first = Once(
        lambda call, written: call is StoreCall.PUT and written == key,
        lambda: made.append(own.publish(topic.id)),
    )
    publications(other, first).publish(topic.id)
    assert [bool(done.repaired) for done in made] == [True], "and it has a checkpoint then"
    check_table(other, TOPIC)


@pytest.mark.parametrize("checkpoints", [1, 1_000], ids=["of each version", "of repairs alone"])
def test_two_who_repair_a_version_of_which_one_knew_more_in_many_interleavings(
    checkpoints: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may write over the other's: the versions follow each other in the end, and checkpoints show what they do."""
    before = prepared("history")
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", checkpoints)

    def play(scheduler: ScriptedScheduler) -> None:
        duel = Duel(copied(before))
        one, two, other = duel.client("a"), duel.client("b"), client(duel.store, "c")
        topic = one._connection.topic_record(TOPIC)
        mine, yours = publications(one), publications(two)
        for number in (60, 61):
            other.produce(TOPIC, rows(number))
        one._connection.follower.refresh()
        two._connection.follower.refresh()
        newest = yours.publish(topic.id).delta_version
        other._connection.store.put(keys.delta_commit_key(topic.folder, newest), b"garbage")
        other.produce(TOPIC, rows(70))
        two._connection.follower.refresh()
        duel.meet(partial(mine.publish, topic.id), partial(yours.publish, topic.id))
        duel.run(scheduler)
        check_table(client(duel.store, "fresh"), TOPIC, complete=False)

    both_had_read_it = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]  # before either wrote
    assert len(in_schedules(play, most=tries(60, 3), first=both_had_read_it)) >= 3
    chance = random.Random()
    for _ in range(tries(500, 5)):
        play(RandomScheduler(chance, stays=chance.choice((0.3, 0.7, 0.9, 0.97))))


def _damaged_version(duel: Duel) -> tuple[Publications, int, str, str]:
    """A newest version of two entries, whose commit is garbage, and who knows what it showed.

    Others show only the first of the entries in its place. Returns with that publisher the topic, and the keys of the
    version's commit and checkpoint.
    """
    one, other = duel.client("a"), client(duel.store, "writer")
    topic = one._connection.topic_record(TOPIC)
    own = publications(one)
    own.publish(topic.id)
    for number in (60, 61):
        other.produce(TOPIC, rows(number))
    one._connection.follower.refresh()
    newest = own.publish(topic.id).delta_version
    commit = keys.delta_commit_key(topic.folder, newest)
    other._connection.store.put(commit, b"garbage")
    return own, topic.id, commit, keys.delta_checkpoint_key(topic.folder, newest)


def test_a_checkpoint_shows_what_its_version_does_though_two_repaired_them_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who wrote the commit first wrote the checkpoint last."""
    duel = Duel(copied(prepared("history")))
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 1)
    own, topic, commit, checkpoint = _damaged_version(duel)
    duel.meet(partial(own.publish, topic), partial(publications(duel.client("b")).publish, topic))
    duel.run(
        SteppedScheduler(
            (1, (StoreCall.PUT, checkpoint)),  # has read the garbage, and does not know what was there
            (0, (StoreCall.PUT, commit)),
            (0, (StoreCall.PUT, checkpoint)),  # has written what it knew, and is about to confirm it
            (1, None),
            (0, None),
        )
    )
    check_table(client(duel.store, "fresh"), TOPIC, complete=False)
    assert [answer.repaired for answer in duel.answers] == [(4,), (4,)], "and not what the other continued with"


def test_a_new_checkpoint_shows_what_its_version_does_though_another_repaired_that_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who repaired the version last found no checkpoint of it, and who made the checkpoint repaired nothing."""
    duel = Duel(copied(prepared("history")))
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 1_000)
    own, topic, commit, checkpoint = _damaged_version(duel)
    maker = duel.client("c")
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 1)  # of those who come new
    duel.calls = [
        partial(own.versions, topic, 1),
        partial(publications(duel.client("b")).publish, topic),
        partial(publications(maker).publish, topic),
    ]
    duel.run(
        SteppedScheduler(
            (1, (StoreCall.PUT, commit)),  # has read the garbage, and does not know what was there
            (0, None),  # has written what it knew
            (2, (StoreCall.CREATE, checkpoint)),  # has read that
            (1, None),
            (2, None),
        )
    )
    assert duel.answers[1].repaired == (4,)
    assert duel.answers[2].repaired == ()
    check_table(client(duel.store, "fresh"), TOPIC, complete=False)


def test_a_topic_that_is_turned_off_while_it_is_published_gets_no_column_that_delta_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nobody could read its table any more, which is left where it is."""
    monkeypatch.setattr(topic_versions, "MOST_FILES", 100)
    inner = copied(prepared("history"))
    one, other = client(inner, "a"), client(inner, "b")

    def turned_off() -> None:
        other.produce(TOPIC, rows(60))
        publish(other)
        other.alter_topic(TOPIC, [("at", pa.timestamp("us"))], delta="off")

    first = Once(lambda call, key: call is StoreCall.CREATE and key.startswith(keys.delta_prefix(TOPIC)), turned_off)
    with raises(InvalidInputError, match="it is never published", durable=Durable.MAYBE):
        publications(one, first).publish(one._connection.topic_record(TOPIC).id)
    assert first.came
    shown = check_table(other, TOPIC, complete=False)
    assert shown[-1] == other.snapshot().version - 1


@pytest.mark.parametrize("files", [2, 100])
def test_three_publishers_in_many_interleavings(files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them knows an entry more than the one before."""
    monkeypatch.setattr(topic_versions, "MOST_FILES", files)

    def play(scheduler: ScriptedScheduler) -> tuple[int, ...]:
        duel = Duel(copied(prepared("history")))
        clients = [duel.client(name) for name in "abc"]
        topic = clients[0]._connection.topic_record(TOPIC).id
        own = [publications(ns) for ns in clients]
        for number, ns in enumerate(clients):
            ns._connection.follower.refresh()
            own[number].publish(topic)
        for number, ns in enumerate(clients):
            clients[-1].produce(TOPIC, rows(60 + number))
            ns._connection.follower.refresh()
        duel.calls = [partial(one.publish, topic) for one in own]
        duel.run(scheduler)
        assert not [answer for answer in duel.answers if isinstance(answer, TxnLogError)]
        assert all(answer.repaired == () for answer in duel.answers)
        return tuple(check_table(client(duel.store, "fresh"), TOPIC))

    ends = in_schedules(play, most=tries(150, 30))
    assert len(ends) > 10
    assert len(set(ends)) > 1 or files == 2, "who came first decided where versions end"
