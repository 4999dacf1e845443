"""The text of metrics and its inverse: values come back with their labels, whatever these hold."""

from __future__ import annotations

import pytest

from txnlog.common.open_metrics import Family, Labels, Sample, encoded, samples


@pytest.mark.parametrize(
    "label", ["", "plain", 'a "quoted" one', "back\\slash", "\\n", "two\nlines", 'x="1",y="2"} 7', "ż \u2028"]
)
def test_what_is_encoded_comes_back(label: str) -> None:
    gauge = Family("topic_size_bytes", "gauge", "How big it is.\nOr not.")
    gauge.add(12, Labels({"topic": label, "id": "7"}))
    gauge.add(0.25, Labels({}))
    counter = Family("entries", "counter", "So many.", created_ms=1_500)
    counter.add(3, Labels({"topic": label}))
    assert list(samples(encoded([gauge, counter]))) == [
        Sample("topic_size_bytes", {"topic": label, "id": "7"}, 12),
        Sample("topic_size_bytes", {}, 0.25),
        Sample("entries_total", {"topic": label}, 3),
        Sample("entries_created", {"topic": label}, 1.5),
    ]


def test_whole_numbers_stay_whole() -> None:
    family = Family("entries", "gauge", "So many.")
    family.add(2**60 + 1, Labels({}))
    (found,) = samples(encoded([family]))
    assert (found.value, type(found.value)) == (2**60 + 1, int)
