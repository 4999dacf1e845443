"""``make monitoring``: Prometheus' own checker loads the alerts, the configuration, and what the exporter serves.

Not among the usual tests: the checker is built first, which takes minutes.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # comes with myst-parser, which builds the pages

import txnlog
from tests.pages import ROOT, blocks, page
from tools.promtool import build

EXAMPLES = ROOT / "examples" / "monitoring"

pytestmark = pytest.mark.timeout(3_600)


def promtool(*arguments: str, given: str = "", returns: int = 0) -> str:
    """What the checker prints, with a text as its standard input."""
    done = subprocess.run(
        [str(build()), *arguments], input=given, capture_output=True, text=True, cwd=EXAMPLES, check=False
    )
    assert done.returncode == returns, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture
def metrics(tmp_path: Path) -> str:
    """The metrics of a namespace in which something was done, and failed."""
    with txnlog.open(tmp_path / "lake", namespace="sales", create=True) as ns:
        ns.create_topic("orders", partitions=2)
        ns.create_subscription("orders", "billing")
        ns.metrics()
        ns.produce("orders", [{"value": b"1"}])
        fenced = ns.producer("loader").begin()
        fenced.produce("orders", [{"value": b"2"}])
        ns.producer("loader")
        with pytest.raises(txnlog.errors.ProducerFenced):
            fenced.commit()
        return ns.metrics(partitions=True)


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((EXAMPLES / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_the_rules_are_valid() -> None:
    assert f"SUCCESS: {len(alerts())} rules found" in promtool("check", "rules", "alerts.yml")


def test_the_configuration_is_valid_and_finds_the_rules() -> None:
    said = promtool("check", "config", "--lint=all", "prometheus.yml")
    assert "prometheus.yml is valid prometheus config file syntax" in said
    assert "SUCCESS: 1 rule files found" in said


def test_the_configuration_of_the_readme_is_valid(tmp_path: Path) -> None:
    (given,) = [text for text in blocks(page("examples/monitoring/README.md"), "yaml") if "scrape_configs" in text]
    (tmp_path / "alerts.yml").write_bytes((EXAMPLES / "alerts.yml").read_bytes())
    (tmp_path / "readme.yml").write_text(given, encoding="utf-8")
    assert "is valid prometheus config file syntax" in promtool("check", "config", str(tmp_path / "readme.yml"))


def test_each_alert_is_silent_and_then_fires() -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")
    given = yaml.safe_load((EXAMPLES / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    cases = [case for test in given for case in test["alert_rule_test"]]
    fired = {case["alertname"] for case in cases if case["exp_alerts"]}
    silent = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert fired == silent == {rule["alert"] for rule in alerts()}


def test_a_rule_that_asks_for_something_else_fails_its_test(tmp_path: Path) -> None:
    rules = (EXAMPLES / "alerts.yml").read_text(encoding="utf-8")
    assert "txnlog_newest_entry_age_seconds > 3600" in rules
    (tmp_path / "alerts.yml").write_text(rules.replace("age_seconds > 3600", "age_seconds > 7200"), encoding="utf-8")
    (tmp_path / "alerts_test.yml").write_bytes((EXAMPLES / "alerts_test.yml").read_bytes())
    assert "TxnlogNoCommit" in promtool("test", "rules", str(tmp_path / "alerts_test.yml"), returns=1)


def test_the_checker_has_nothing_against_the_metrics_but_what_the_older_format_does_not_know(metrics: str) -> None:
    """It reads the text format before OpenMetrics, in which a counter's family has no other name than its samples."""
    complaints = promtool("check", "metrics", given=metrics, returns=3).splitlines()
    assert complaints
    assert [line for line in complaints if not re.fullmatch(r"txnlog_\w+_(total|created) no help text", line)] == []
    names = re.findall(r"^# TYPE (\w+) counter$", metrics, re.MULTILINE)
    older = "".join(
        f"{line}\n" for line in metrics.splitlines() if not re.match(r"\w+_created[{ ]|# UNIT |# EOF", line)
    )
    for name in names:
        older = re.sub(rf"^# (TYPE|HELP) {name} ", rf"# \1 {name}_total ", older, flags=re.MULTILINE)
    assert promtool("check", "metrics", given=older) == ""


def test_prometheus_own_parser_of_openmetrics_takes_every_sample(metrics: str, tmp_path: Path) -> None:
    """Backfilling reads that format; it wants a time with each sample, which a scrape adds by itself."""
    at = 1_795_000_000
    timed = re.sub(r"^([a-z]\S* \S+)$", rf"\1 {at}", metrics, flags=re.MULTILINE)
    (tmp_path / "metrics.om").write_text(timed, encoding="utf-8")
    promtool("tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "metrics.om"), str(tmp_path / "data"))
    (tmp_path / "data" / "wal").mkdir()  # a dump wants one
    dumped = promtool("tsdb", "dump", str(tmp_path / "data")).splitlines()
    samples = [line for line in metrics.splitlines() if not line.startswith("#")]
    assert len(dumped) == len(samples) > 60
    assert any('__name__="txnlog_handle_commit_failures_total", error="ProducerFenced"' in line for line in dumped)
