"""Which process of a parallel run takes which file of tests: Spark's in one of them, and long ones first.

A session of Spark takes seconds to start and longer until it is quick, so the files that share one stay together.
Files of few tests may take minutes: begun at the end, they would let the other process wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from xdist.scheduler.loadfile import LoadFileScheduling  # type: ignore[import-untyped]  # it has no types

SPARK: Final = "tests/spark/"
"""Below it files share a session."""

LONGEST: Final = (
    "tests/places/test_cluster.py",
    "tests/catalog/test_engines_read_spark.py",
    "tests/catalog/test_delta_page.py",  # has the same Spark with Delta
    "tests/places/test_local.py",
    "tests/places/test_connect.py",
    "tests/crash/spark/test_crash_spark.py",
    "tests/sim/test_simulation.py",
    "tests/stores/test_conformance.py",
    "tests/stores/test_probe.py",
    "tests/conformance/test_conformance.py",
    "tests/crash/core/test_crash.py",
    "tests/client/transactions/test_interrupts.py",
    "tests/postgres/test_exactly_once.py",
    "tests/catalog/test_publishing_amid_damage.py",
    "tests/crash/delta/test_crash_delta.py",
    "tests/stores/test_fsspec_store.py",
    "tests/client/namespaces/test_closing.py",
    "tests/catalog/test_publication_faults.py",
    "tests/client/transactions/test_two_phase_commit.py",
    "tests/packaging/test_wheel.py",
    "tests/conformance/test_example.py",
    "tests/damage/test_damage_matrix.py",
    "tests/spark/streaming/test_write_stream.py",
    "tests/spark/streaming/test_format_stream_write.py",
    "tests/spark/read/test_damage.py",
    "tests/spark/session/test_docs.py",
    "tests/spark/read/test_format_read.py",
    "tests/spark/session/test_registration.py",
    "tests/spark/streaming/test_stateful_streams.py",
    "tests/spark/read/test_predicates.py",
)


def next_file(waiting: Iterable[str], *, spark: bool) -> str:
    """The file that a process begins with next, of those that wait; ``spark`` is the one that has the session."""
    order = {name: place for place, name in enumerate(LONGEST)}
    by_length = sorted(waiting, key=lambda name: order.get(name, len(order)))
    together = [name for name in by_length if name.startswith(SPARK)]
    others = [name for name in by_length if not name.startswith(SPARK)]
    if spark:
        return (together or others)[0]
    # With nothing else left it helps out, with what is over soonest.
    return (others or together[::-1])[0]


class Distribution(LoadFileScheduling):  # type: ignore[misc]
    """File by file, as ``--dist loadfile``; which of them comes next is ``next_file``'s."""

    def _assign_work_unit(self, node: Any) -> None:
        first = next(iter(self.assigned_work))
        self.workqueue.move_to_end(next_file(self.workqueue, spark=node is first), last=False)
        super()._assign_work_unit(node)
