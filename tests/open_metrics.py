"""A strict parser of OpenMetrics text 1.0.0, as far as txnlog writes it: what the specification forbids is an error."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
LABEL = re.compile(rf'({NAME})="((?:[^"\\\n]|\\[\\"n])*)"')
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL.pattern}(?:,{LABEL.pattern})*)\}})? (\S+)")
COMMENT = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)")
SUFFIXES = {"gauge": {""}, "counter": {"_total", "_created"}, "histogram": {"_bucket", "_count", "_sum", "_created"}}
RESERVED = ("_total", "_created", "_bucket", "_count", "_sum", "_info")
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Labels = tuple[tuple[str, str], ...]


@dataclass
class Parsed:
    """One family: what the comments say, and by suffix and labels the values."""

    kind: str = ""
    unit: str = ""
    help: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, suffix: str = "", /, **labels: str) -> float:
        """The one value with these labels and perhaps others."""
        wanted = set(labels.items())
        (found,) = [value for (of, names), value in self.samples.items() if of == suffix and wanted <= set(names)]
        return found

    def total(self, **labels: str) -> float:
        """The value of a counter."""
        return self.value("_total", **labels)

    def labels(self, name: str) -> set[str]:
        """The values of a label."""
        return {value for _, pairs in self.samples for known, value in pairs if known == name}


def parsed(text: str) -> dict[str, Parsed]:
    """The families by name. Raises AssertionError with the line that is wrong."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], f"the end is {lines[-2:]}"
    families: dict[str, Parsed] = {}
    current = ""
    for line in lines[:-2]:
        if line.startswith("#"):
            match = COMMENT.fullmatch(line)
            assert match, line
            what, name, rest = match.groups()
            if name != current:
                assert name not in families, f"{line}: a family is in one place"
                assert not name.endswith(RESERVED), line
                families[name], current = Parsed(), name
            known = families[name]
            assert not known.samples, f"{line}: before all samples"
            attribute = {"TYPE": "kind", "UNIT": "unit", "HELP": "help"}[what]
            assert not getattr(known, attribute), line
            assert not re.search(r'(?<!\\)(?:\\\\)*(?:"|\\[^\\"n])', rest), line
            setattr(known, attribute, rest)
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        name, pairs, value = match[1], match[2], match[match.re.groups]
        assert current, line
        assert name.startswith(current), line
        _add(families[current], name.removeprefix(current), pairs or "", value, line)
    for name, family in families.items():
        _check(name, family)
    return families


def _add(family: Parsed, suffix: str, pairs: str, value: str, line: str) -> None:
    assert suffix in SUFFIXES[family.kind], line
    labels = tuple(
        (name, re.sub(r"\\.", lambda found: UNESCAPED[found[0]], text)) for name, text in LABEL.findall(pairs)
    )
    assert len(dict(labels)) == len(labels), f"{line}: a label twice"
    assert (suffix, labels) not in family.samples, f"{line}: twice"
    assert re.fullmatch(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)", value), f"{line}: no number"
    metric = _without_le(labels)
    order = list(dict.fromkeys(_without_le(known) for _, known in family.samples))
    assert metric not in order[:-1], f"{line}: the samples of one metric follow each other"
    family.samples[suffix, labels] = float(value)


def _without_le(labels: Labels) -> Labels:
    return tuple(sorted(item for item in labels if item[0] != "le"))


def _check(name: str, family: Parsed) -> None:
    assert family.kind in SUFFIXES, name
    assert family.help, f"{name} has no HELP"
    assert not family.unit or name.endswith(f"_{family.unit}"), f"{name} ends with its unit"
    assert family.unit or not name.endswith(("_seconds", "_bytes")), f"{name} says its unit"
    if family.kind != "gauge":
        assert all(value >= 0 for value in family.samples.values()), name
    names = {frozenset(label for label, _ in labels if label != "le") for _, labels in family.samples}
    assert len(names) <= 1, f"{name}: all have the same labels"
    if family.kind == "counter":
        totals = {labels for suffix, labels in family.samples if suffix == "_total"}
        assert totals == {labels for _, labels in family.samples}, name
    if family.kind == "histogram":
        _check_histogram(name, family)


def _check_histogram(name: str, family: Parsed) -> None:
    buckets: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for (suffix, labels), value in family.samples.items():
        if suffix == "_bucket":
            bound = dict(labels)["le"]
            assert bound == "+Inf" or bound == repr(float(bound)), f"{name}: le={bound} is canonical"
            buckets[_without_le(labels)].append((float(bound), value))
    for labels, found in buckets.items():
        assert all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(found)), f"{name}: in order"
        assert found[-1] == (float("inf"), family.value("_count", **dict(labels))), f"{name}: +Inf is the count"
        assert family.value("_sum", **dict(labels)) >= 0, name
