"""Cycles of dependencies (Adya): with the log as the version order no search is needed, only the graph.

* ww: neighbours in a partition, the earlier one first; not within one version, whose messages become visible together,
  so that nobody can see one transaction of it without the other (docs/decisions/0009);
* wr: from a transaction to whoever read its messages: a read, or a transaction that acknowledged them;
* rw: from a read to the first transaction that it does not show. A transaction that consumes has no such edge: its
  commit does not validate what it did not receive, which is the one kind of cycle that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise, product
from typing import Final, Literal, NamedTuple

from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding, first_of
from txnlog.testing.facts import NEVER, Facts, Unit, asked, result_of
from txnlog.testing.history import Operation

_Kind = Literal["ww", "wr", "rw"]
_LEVELS: Final[tuple[tuple[Anomaly, frozenset[_Kind]], ...]] = (
    (Anomaly.G0, frozenset[_Kind]({"ww"})),
    (Anomaly.G1C, frozenset[_Kind]({"ww", "wr"})),
    (Anomaly.G2, frozenset[_Kind]({"ww", "wr", "rw"})),
)


class _Edge(NamedTuple):
    start: int
    end: int
    kind: _Kind


_Graph = Mapping[int, list[tuple[int, _Kind]]]


class _Nodes:
    """Transactions, plain batches and reads by a number, each with its place in the order of versions."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.order: list[float] = []
        self.shows: list[tuple[Operation, ...]] = []
        self._units: dict[int, int] = {}

    def add(self, name: str, order: float, operations: tuple[Operation, ...]) -> int:
        self.names.append(name)
        self.order.append(order)
        self.shows.append(operations)
        return len(self.names) - 1

    def unit(self, unit: Unit) -> int:
        known = self._units.get(id(unit))
        if known is None:
            known = self._units[id(unit)] = self.add(unit.name, unit.version or 0, tuple(unit.attempts))
        return known


def check(facts: Facts) -> Iterator[Finding]:
    """One finding for each set of transactions and reads that depend on each other."""
    nodes = _Nodes()
    edges = [*_writes(facts, nodes), *_consumed(facts, nodes), *_reads(facts, nodes)]
    order = nodes.order
    if all(order[edge.start] <= order[edge.end] for edge in edges):
        # Where no edge goes back to an older version, a cycle stays within one version.
        edges = [edge for edge in edges if order[edge.start] == order[edge.end]]
    if not edges:
        return
    graph: dict[int, list[tuple[int, _Kind]]] = {}
    for edge in edges:
        graph.setdefault(edge.start, []).append((edge.end, edge.kind))
    found: set[int] = set()
    for anomaly, kinds in _LEVELS:
        for component in components(graph, kinds):
            if not found.isdisjoint(component):
                continue
            found.update(component)
            yield _describe(nodes, graph, set(component), anomaly, kinds)


def _writes(facts: Facts, nodes: _Nodes) -> Iterator[_Edge]:
    for runs in facts.runs.values():
        entries = [[*group] for _, group in groupby(runs, lambda run: run.rows[0].version)]
        for earlier, later in pairwise(entries):
            for first, second in product(earlier, later):
                writer, next_writer = facts.owner(first.rows[0]), facts.owner(second.rows[0])
                if writer is not None and next_writer is not None and writer is not next_writer:
                    yield _Edge(nodes.unit(writer), nodes.unit(next_writer), "ww")


def _consumed(facts: Facts, nodes: _Nodes) -> Iterator[_Edge]:
    """From the writers of messages to the transactions that took them."""
    for unit in facts.transactions.values():
        if not unit.acknowledges or facts.fate(unit) != "committed":
            continue
        for op in unit.acknowledges:
            item = asked(op, of.Acknowledge)
            if not op.succeeded:
                continue
            for found in item.ranges:
                row = facts.row((item.topic, found.partition), found.end - 1)
                writer = facts.owner(row) if row is not None else None
                if writer is not None and writer is not unit:
                    yield _Edge(nodes.unit(writer), nodes.unit(unit), "wr")


def _reads(facts: Facts, nodes: _Nodes) -> Iterator[_Edge]:
    for op in facts.reads:
        result = result_of(op, of.Shown)
        shown = {(item.topic, item.partition): item.rows for item in result.rows}
        topics = asked(op, of.Read).topics
        number = nodes.add(f"read {op.number} of version {result.version}", result.version + 0.5, (op,))
        for place, logged in facts.log.items():
            if not facts.lives(place[0]) or (topics is not None and place[0] not in topics):
                continue
            seen = shown.get(place, ())
            rows = logged
            if facts.deletions:
                first_seen = min(seen[0].offset if seen else NEVER, facts.may_be_deleted(place, op.completed))
                rows = tuple(row for row in logged if row.offset >= first_seen)
            if facts.removals:
                rows = facts.left_at(place, rows, result_of(op, of.Shown).version)
            if facts.erasures:
                erased = facts.may_be_erased(place[0], op.completed)
                there = {row.offset for row in seen}
                rows = tuple(row for row in rows if row.value not in erased or row.offset in there)
            if seen:
                writer = facts.owner(seen[-1])
                if writer is not None:
                    yield _Edge(nodes.unit(writer), number, "wr")
            if seen == rows[: len(seen)]:
                first = rows[len(seen)] if len(seen) < len(rows) else None
            else:
                offsets = {row.offset for row in seen}
                first = next((row for row in rows if row.offset not in offsets), None)
            writer = facts.owner(first) if first is not None else None
            if writer is not None:
                yield _Edge(number, nodes.unit(writer), "rw")


def components(graph: _Graph, kinds: frozenset[_Kind]) -> Iterator[list[int]]:
    """The sets of more than one node that all reach each other (Tarjan's algorithm, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in graph:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(graph[root]))]
        while work:
            node, following = work[-1]
            for other, kind in following:
                if kind not in kinds:
                    continue
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(graph.get(other, ()))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = _last(stack, node)
                    component = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        yield component


def _last(stack: list[int], node: int) -> int:
    """Where a node is on the stack: near its end, as a rule."""
    at = len(stack) - 1
    while stack[at] != node:
        at -= 1
    return at


def _describe(nodes: _Nodes, graph: _Graph, component: set[int], anomaly: Anomaly, kinds: frozenset[_Kind]) -> Finding:
    """A shortest cycle of a component; one that needs a single rw edge is G-single."""
    cycle: list[_Edge] = []
    if anomaly is Anomaly.G2:
        backwards = ((node, other) for node in sorted(component) for other, kind in graph.get(node, ()) if kind == "rw")
        for node, other in backwards:
            if other in component:
                path = _path(graph, other, node, component, kinds - {"rw"})
                if path is not None:
                    anomaly = Anomaly.G_SINGLE
                    cycle = [_Edge(node, other, "rw"), *path]
                    break
    if not cycle:
        node = min(component)
        first = next((other, kind) for other, kind in graph[node] if other in component and kind in kinds)
        cycle = [_Edge(node, *first), *(_path(graph, first[0], node, component, kinds) or ())]
    text = first_of(f"{nodes.names[edge.start]} -{edge.kind}-> {nodes.names[edge.end]}" for edge in cycle)
    shows = dict.fromkeys(op for edge in cycle for op in nodes.shows[edge.start])
    return Finding(anomaly, text, tuple(shows))


def _path(graph: _Graph, start: int, end: int, within: set[int], kinds: frozenset[_Kind]) -> list[_Edge] | None:
    """A shortest way from one node to another, or None."""
    came: dict[int, _Edge] = {}
    seen = {start}
    wave = [start]
    while wave and end not in came:
        following: list[int] = []
        for node in wave:
            for other, kind in graph.get(node, ()):
                if kind in kinds and other in within and other not in seen:
                    seen.add(other)
                    came[other] = _Edge(node, other, kind)
                    following.append(other)
        wave = following
    if end not in came:
        return None
    path: list[_Edge] = []
    at = end
    while at != start:
        path.append(came[at])
        at = came[at].start
    return path[::-1]


__all__ = ["check", "components"]
