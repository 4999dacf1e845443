"""Metrics as OpenMetrics text, version 1.0.0: the form that Prometheus and others read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

_UNITS: Final = frozenset({"seconds", "bytes"})
_NAME: Final = re.compile("[a-z][a-z0-9_]*", re.ASCII)
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SAMPLE: Final = re.compile(r"([a-z][a-z0-9_]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'([a-z][a-z0-9_]*)="((?:[^"\\]|\\.)*)"')

Number = int | float


class Labels:
    """Names and values that distinguish the metrics of one name. Written once for all names that have them."""

    __slots__ = ("_pairs", "text")

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = dict(pairs)
        shown = [f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs.items()]
        self.text = f"{{{','.join(shown)}}}" if shown else ""

    def and_(self, **more: str) -> Labels:
        """These and others."""
        return Labels({**self._pairs, **more})


@dataclass(slots=True)
class Family:
    """Metrics of one name: a counter's is written without ``_total``, which its samples get.

    Attributes:
        name: as in the text, with the unit at its end.
        kind: what its values are.
        help: what a value means, as a sentence.
        created_ms: of counters that do not begin with the namespace: since when they count, in epoch milliseconds.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    created_ms: int | None = None
    _lines: list[str] = field(default_factory=list)

    def add(self, value: Number, labels: Labels) -> None:
        """Add a value of a gauge or a counter."""
        self._lines.append(f"{self.name}{'_total' if self.kind == 'counter' else ''}{labels.text} {_number(value)}")
        self._add_created(labels)

    def add_histogram(self, bounds: Iterable[float], counts: Iterable[int], total: float, labels: Labels) -> None:
        """Add a histogram: by upper bound how many values are above the bound before; one count more for the rest."""
        so_far = 0
        for bound, count in zip((*(_number(float(bound)) for bound in bounds), "+Inf"), counts, strict=True):
            so_far += count
            self._lines.append(f"{self.name}_bucket{labels.and_(le=bound).text} {so_far}")
        self._lines.append(f"{self.name}_count{labels.text} {so_far}")
        self._lines.append(f"{self.name}_sum{labels.text} {_number(total)}")
        self._add_created(labels)

    def _add_created(self, labels: Labels) -> None:
        if self.created_ms is not None:
            self._lines.append(f"{self.name}_created{labels.text} {_number(self.created_ms / 1000)}")

    def lines(self) -> list[str]:
        """What is written of it."""
        assert _NAME.fullmatch(self.name), self.name
        unit = self.name.rpartition("_")[2]
        head = [f"# TYPE {self.name} {self.kind}"]
        if unit in _UNITS:
            head.append(f"# UNIT {self.name} {unit}")
        return [*head, f"# HELP {self.name} {self.help.translate(_ESCAPED)}", *self._lines]


def encoded(families: Iterable[Family]) -> str:
    """The text of metrics, each name once."""
    lines = [line for family in families for line in family.lines()]
    return "\n".join([*lines, "# EOF", ""])


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a text of metrics, under the name that its line has."""

    name: str
    labels: Mapping[str, str]
    value: Number


def samples(text: str) -> Iterator[Sample]:
    """The values of a text that ``encoded`` made, in their order."""
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            found = _SAMPLE.fullmatch(line)
            assert found is not None, line
            labels = {name: re.sub(r"\\(.)", _unescaped, value) for name, value in _LABEL.findall(found[2] or "")}
            yield Sample(found[1], labels, int(found[3]) if found[3].isdecimal() else float(found[3]))


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def _number(value: Number) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


__all__ = ["Family", "Labels", "Number", "Sample", "encoded", "samples"]
