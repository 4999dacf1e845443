"""The exporter serves valid metrics, and alerts and dashboard ask for nothing that it does not serve."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml  # comes with myst-parser, which builds the pages

import txnlog
from examples.monitoring.exporter import Exporter, main
from spark_ext.streaming.lag import TopicLag
from spark_ext.streaming.lag_openmetrics import lag_text
from tests.open_metrics import SUFFIXES, Parsed, parsed
from tests.pages import ROOT, page

EXAMPLES = ROOT / "examples" / "monitoring"
PROMETHEUS_OWN = {"up"}
LAG = TopicLag("totals", 0, "sales", "orders", None, 3, 1, 1500, 3, 3, 3.0)
METRIC = re.compile(r"\b(txnlog_\w+|up)\b(?:\{([^}]*)\})?")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Any]:
    with txnlog.open(tmp_path / "lake", namespace="sales", create=True) as ns:
        ns.create_topic("orders", partitions=2)
        ns.produce("orders", [{"value": b"1"}])
        ns.create_subscription("orders", "billing")
        yield ns


@pytest.fixture
def served(lake: Any) -> Iterator[tuple[Any, str]]:
    """A handle whose metrics are served, and the address."""
    with (
        txnlog.open(lake.root, namespace="sales", mode="r") as ns,
        Exporter(ns, ("127.0.0.1", 0), partitions=True) as exporter,
    ):
        thread = threading.Thread(target=exporter.serve_forever)
        thread.start()
        try:
            yield ns, f"http://127.0.0.1:{exporter.server_address[1]}"
        finally:
            exporter.shutdown()
            thread.join()


def get(url: str) -> tuple[int, str, str]:
    """Status, type and text of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_the_exporter_serves_what_the_handle_says_now(lake: Any, served: tuple[Any, str]) -> None:
    _, url = served
    status, kind, text = get(f"{url}/metrics")
    assert (status, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert parsed(text)["txnlog_topic_messages"].total(topic="orders") == 1
    assert "txnlog_subscription_partition_lag_messages" in parsed(text)
    lake.produce("orders", [{"value": b"2"}])
    found = parsed(get(f"{url}/metrics")[2])
    assert found["txnlog_topic_messages"].total(topic="orders") == 2
    assert found["txnlog_transactions_committed"].total() == 1


def test_in_a_driver_of_spark_it_serves_how_far_queries_are_behind_as_well(lake: Any) -> None:
    monitor: Any = SimpleNamespace(metrics=lambda: lag_text([LAG], 0, 0))
    with Exporter(lake, ("127.0.0.1", 0), monitor=monitor) as exporter:
        found = parsed(exporter.text())
    assert found.keys() == parsed(lake.metrics()).keys() | parsed(monitor.metrics()).keys()
    assert found["txnlog_query_lag_messages"].value(query="totals") == 3


def test_there_is_nothing_else_to_be_had(served: tuple[Any, str]) -> None:
    assert get(f"{served[1]}/")[0] == 404


def test_a_failure_is_an_error_of_the_request(served: tuple[Any, str]) -> None:
    ns, url = served
    ns.close()
    status, kind, text = get(f"{url}/metrics")
    assert (status, kind) == (500, "text/plain; charset=utf-8")
    assert text.startswith("InvalidTransactionState: the handle of the namespace 'sales' was closed")


def test_the_program_opens_the_namespace_for_reading(
    lake: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[Exporter] = []

    def interrupted(exporter: Exporter) -> None:
        opened.append(exporter)
        raise KeyboardInterrupt

    monkeypatch.setattr(Exporter, "serve_forever", interrupted)
    with caplog.at_level("INFO", "txnlog.exporter"):
        main([f"{lake.root}/sales", "--port", "0"])
    (exporter,) = opened
    assert "mode='r'" in repr(exporter.ns)
    assert exporter.server_address[0] == "127.0.0.1"
    assert [record.getMessage() for record in caplog.records][-1] == "stopped"


# --- alerts and dashboard ---------------------------------------------------------------------------------------------


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((EXAMPLES / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((EXAMPLES / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    return found


def expressions() -> list[str]:
    return [rule["expr"] for rule in alerts()] + [target["expr"] for item in panels() for target in item["targets"]]


@pytest.fixture
def families(lake: Any) -> dict[str, Parsed]:
    """What is emitted, by the names of samples."""
    found = parsed(lake.metrics()) | parsed(lag_text([LAG], 0, 0))
    return {f"{name}{suffix}": family for name, family in found.items() for suffix in SUFFIXES[family.kind]}


def test_every_metric_that_is_asked_for_is_emitted_with_the_labels_that_are_asked_for(
    families: dict[str, Parsed],
) -> None:
    asked = [match for text in expressions() for match in METRIC.findall(text)]
    assert len(asked) > 30
    assert {name for name, _ in asked} - set(families) - PROMETHEUS_OWN == set()
    for name, selectors in asked:
        if name in PROMETHEUS_OWN:
            continue
        for label, operator, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', selectors):
            values = families[name].labels(label)
            assert values or not families[name].samples, f"{name} has no label {label}"
            assert operator == "=~" or value in values, f"{label} of {name} is never {value}"


def test_alerts_name_labels_that_their_values_have(families: dict[str, Parsed]) -> None:
    given = {"instance", "job", "error"}  # of every scrape; and of failures, which there are none of here
    for rule in alerts():
        known = given | {
            label for name, _ in METRIC.findall(rule["expr"]) if name in families for label in _names(families[name])
        }
        texts = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= known, rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}


def _names(family: Parsed) -> set[str]:
    return {label for _, pairs in family.samples for label, _ in pairs}


def test_the_page_says_of_each_alert_what_to_do() -> None:
    text = page("docs/operations/monitoring.md")
    assert [rule["alert"] for rule in alerts()] == re.findall(r"^### (Txnlog\w+)$", text, re.MULTILINE)
    severities = dict(re.findall(r"^\| \[`(Txnlog\w+)`\]\(#\w+\) \| (\w+) \|", text, re.MULTILINE))
    assert severities == {rule["alert"]: rule["labels"]["severity"] for rule in alerts()}


def test_the_page_lists_every_metric_as_it_is_emitted(lake: Any) -> None:
    text = page("docs/operations/monitoring.md")
    listed = dict(re.findall(r"^\| `(txnlog_\w+)` \| A (\w+)\b", text, re.MULTILINE))
    emitted = parsed(lake.metrics(partitions=True)) | parsed(lag_text([LAG], 0, 0))
    found = {name: family.kind for name, family in emitted.items()}
    assert listed == {f"{name}_total" if kind == "counter" else name: kind for name, kind in found.items()}


def test_panels_have_a_place_each_and_a_title() -> None:
    places = [(item["gridPos"]["x"], item["gridPos"]["y"]) for item in panels()]
    assert len(set(places)) == len(places) == len({item["title"] for item in panels()})
    assert [item["id"] for item in panels()] == list(range(1, len(places) + 1))
