"""The simulated store: each fate of a request does what its name says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from txnlog.errors import Durable, StoreError
from txnlog.format.keys import entry_key, part_key
from txnlog.store import Created, ObjectNotFound
from txnlog.testing.faults import ALL_FAULTS, FaultDice, Faults
from txnlog.testing.scheduler import Actor, Scheduler
from txnlog.testing.simulated_store import ActorStore, SimulatedStore

KEY = f"sim/{entry_key(3)}"
PART = f"sim/{part_key('0' * 32)}"


class World:
    """A store with one fault that meets every request (or the one given for it)."""

    def __init__(self, fault: str = "", seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.shared = SimulatedStore(self.scheduler)
        self.fault = fault
        self.shared._dice.for_request = self.draw  # type: ignore[method-assign]
        self.actor = Actor(self.scheduler, "a")
        self.store = ActorStore(self.shared, self.actor)

    def draw(self, *, writes: bool) -> str:
        return self.fault

    def run(self, work: Callable[[], Any]) -> Any:
        """The result of a call made by the actor, or what it raised."""
        result: list[Any] = []

        def task() -> None:
            try:
                result.append(work())
            except (StoreError, ObjectNotFound) as error:
                result.append(error)

        self.actor.start(task, "main")
        self.scheduler.run(lambda: bool(result))
        return result[0] if result else None

    def create(self, key: str = KEY, data: bytes = b"one") -> Any:
        """What a create answers."""
        return self.run(lambda: self.store.create(key, data))

    def listed(self) -> Any:
        """The keys that a listing shows."""
        return self.run(lambda: [item.key for item in self.store.list("sim/")])

    def crash_in_flight(self) -> None:
        """End the actor while a create of its is under way."""

        def create() -> None:
            self.store.create(KEY, b"one")

        self.actor.start(create, "main")
        self.scheduler.run(lambda: bool(self.shared.in_flight))
        self.shared.crash(self.actor)

    def bytes_at(self, key: str) -> bytes | None:
        found = self.shared.objects.get(key)
        return None if found is None else found[0]

    def settle(self) -> None:
        """Let all that is late arrive."""
        self.scheduler.run()


def doubtful(answer: object) -> bool:
    """Neither success nor failure."""
    return answer is Created.UNKNOWN or (isinstance(answer, StoreError) and answer.durable is Durable.MAYBE)


def test_without_faults_it_is_a_store_with_create_if_absent():
    world = World()
    assert world.run(lambda: world.store.create(KEY, b"one")) is Created.CREATED
    assert world.run(lambda: world.store.create(KEY, b"two")) is Created.UNKNOWN
    assert world.run(lambda: world.store.get(KEY)) == b"one"
    assert world.run(lambda: world.store.get_range(KEY, 1, 9)) == b"ne"
    assert world.run(lambda: world.store.info(KEY)).size_bytes == 3
    assert world.run(lambda: [item.key for item in world.store.list("sim/")]) == [KEY]
    world.run(lambda: world.store.delete(KEY))
    assert isinstance(world.run(lambda: world.store.get(KEY)), ObjectNotFound)
    world.run(lambda: world.store.put(PART, b"part"))
    assert world.bytes_at(PART) == b"part"
    assert world.shared.requests == 9


@pytest.mark.parametrize("fault", ["lost", "dropped", "delayed"])
@pytest.mark.parametrize("seed", range(4))
def test_after_a_timeout_nothing_is_known(fault: str, seed: int):
    world = World(fault, seed)
    assert doubtful(world.run(lambda: world.store.create(KEY, b"one")))
    if fault != "delayed":  # by a moment it may have been late only
        assert (world.bytes_at(KEY) == b"one") == (fault == "lost")
    world.settle()
    assert (world.bytes_at(KEY) == b"one") == (fault != "dropped")


def test_a_delayed_create_finds_the_slot_taken_by_what_came_in_between():
    world = World("delayed")
    world.run(lambda: world.store.create(KEY, b"late"))
    world.fault = ""
    assert world.run(lambda: world.store.create(KEY, b"next")) is Created.CREATED
    world.settle()
    assert world.bytes_at(KEY) == b"next"
    assert world.scheduler.labels["late entry found the slot occupied by another"] == 1


def test_a_delayed_request_arrives_after_its_sender_died():
    world = World("delayed")
    world.run(lambda: world.store.create(KEY, b"late"))
    world.shared.crash(world.actor)
    world.settle()
    assert world.bytes_at(KEY) == b"late"
    assert world.scheduler.labels["late entry landed after its sender's death"] == 1


def test_a_duplicated_put_comes_back_after_the_object_was_deleted():
    world = World("duplicated")
    world.run(lambda: world.store.put(PART, b"part"))
    assert world.bytes_at(PART) == b"part"
    world.fault = ""
    world.run(lambda: world.store.delete(PART))
    world.settle()
    assert world.bytes_at(PART) == b"part"


@pytest.mark.parametrize("seed", range(6))
def test_a_torn_upload_is_never_there_in_part(seed: int):
    world = World("torn", seed)
    answer = world.run(lambda: world.store.put(PART, b"part"))
    assert doubtful(answer)
    assert world.bytes_at(PART) is None
    world.settle()
    late = world.scheduler.labels["torn upload arrives late"] == 1
    assert world.bytes_at(PART) == (b"part" if late else None)


@pytest.mark.parametrize(
    ("status", "stored"), [("429", {False}), ("503", {False}), ("409", {False}), ("500", {True, False})]
)
def test_a_status_leaves_an_outcome_unknown_and_stores_what_it_may(status: str, stored: set[bool]):
    seen = set()
    for seed in range(20):
        world = World(status, seed)
        assert doubtful(world.create())
        seen.add(world.bytes_at(KEY) is not None)
    assert seen == stored


def test_expired_credentials_certainly_store_nothing():
    world = World("expired")
    answer = world.run(lambda: world.store.create(KEY, b"one"))
    assert isinstance(answer, StoreError)
    assert answer.durable is Durable.NOTHING
    assert world.bytes_at(KEY) is None


def test_a_storm_lasts_for_some_requests_and_ends():
    world = World("storm")
    failed = 0
    world.run(lambda: world.store.get(KEY))
    world.fault = ""
    while not isinstance(world.run(lambda: world.store.get(KEY)), ObjectNotFound) and failed < 20:
        failed += 1
    assert failed < 20


def test_a_failed_read_says_that_nothing_was_written():
    world = World("dropped")
    answer = world.run(lambda: world.store.get(KEY))
    assert isinstance(answer, StoreError)
    assert answer.durable is Durable.NOTHING


def test_a_stale_listing_omits_keys_and_invents_none():
    lengths = set()
    for seed in range(20):
        world = World("", seed)
        for number in range(4):
            world.create(f"sim/{entry_key(number)}", b"")
        world.fault = "stale_list"
        found = world.listed()
        assert set(found) <= set(world.shared.objects)
        lengths.add(len(found))
    assert 0 in lengths
    assert 3 in lengths
    assert len(lengths) > 2


def test_a_crash_with_a_request_in_flight_drops_applies_or_delays_it():
    ends = set()
    for seed in range(30):
        world = World("", seed)
        world.crash_in_flight()
        now = world.bytes_at(KEY) is not None
        world.settle()
        ends.add((now, world.bytes_at(KEY) is not None))
    assert ends == {(False, False), (True, True), (False, True)}


def test_damage_hits_what_is_vouched_for_and_can_be_repaired():
    kinds = set()
    for seed in range(60):
        world = World("", seed)
        written = {PART: b"part" * 9, f"sim/{entry_key(0)}": b"entry zero", f"sim/{entry_key(1)}": b"entry one"}
        for key, data in written.items():
            world.create(key, data)
        world.shared.damage()
        for key, damage in world.shared.damaged.items():
            assert key != f"sim/{entry_key(1)}", "nothing vouches for the newest entry yet"
            assert world.bytes_at(key) != written[key]
            assert damage.kind != "deletion" or key == PART
            kinds.add(damage.kind)
        world.shared.repair()
        assert {key: found for key, (found, _) in world.shared.objects.items()} == written
    assert kinds == {"flip", "cut", "swap", "deletion"}


def test_faults_are_on_in_about_half_of_the_runs_at_rates_up_to_sixty_percent():
    scheduler = Scheduler(1)
    drawn = [Faults.draw(scheduler.chance) for _ in range(400)]
    for kind in ALL_FAULTS:
        rates = [faults.rates[kind] for faults in drawn if kind in faults.rates]
        assert 0.45 < len(rates) / 400 < 0.65
        assert 0 <= min(rates) < 0.05
        assert 0.55 < max(rates) <= 0.6


def test_the_share_of_faulty_writes_is_the_mean_of_the_rates():
    scheduler = Scheduler(1)
    dice = FaultDice(Faults({"lost": 0.5, "delayed": 0.1}), scheduler.chance)
    hits = [dice.for_request(writes=True) for _ in range(4_000)]
    assert 0.27 < sum(map(bool, hits)) / 4_000 < 0.33
    assert 0.1 < sum(hit == "lost" for hit in hits) / sum(map(bool, hits)) < 0.9
