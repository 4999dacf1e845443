"""What recipes tell people to install and to set is what the project has, and what is tested elsewhere."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from tests.pages import ROOT, page
from tests.places.over_s3a import HADOOP_AWS
from tests.places.support import settings

PAGES = [
    "docs/operations/databricks.md",
    "docs/operations/emr.md",
    "docs/operations/kubernetes.md",
    "docs/spark.md",
    "docs/tour.md",
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WHEEL = f"{PROJECT['name']}-{PROJECT['version']}-py3-none-any.whl"


@pytest.mark.parametrize("name", PAGES)
def test_a_wheel_has_the_name_that_is_built_and_extras_that_there_are(name: str) -> None:
    text = page(name)
    assert set(re.findall(r"txnlog-\d\S*?\.whl", text)) <= {WHEEL}
    for extras in re.findall(r"\.whl\[([\w,]+)\]", text):
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_page_on_emr_names_the_jars_that_are_tested() -> None:
    coordinates = re.findall(r"--packages (\S+?)`", page("docs/operations/emr.md"))
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    delta = f"io.delta:delta-spark_{spark}_2.13:{importlib.metadata.version('delta-spark')}"
    assert coordinates == [HADOOP_AWS, delta]


def test_the_page_on_emr_has_each_setting_that_a_cluster_needs() -> None:
    text = page("docs/operations/emr.md")
    needed = settings(Path("/tmp") / WHEEL, "./environment/bin/python")
    assert needed.pop("spark.submit.pyFiles").endswith(WHEEL)
    assert f"--py-files {WHEEL}" in text
    for name, value in needed.items():
        assert f"--conf {name}={value}" in text


def test_the_pages_on_platforms_say_which_sparks_the_project_takes() -> None:
    (needed,) = (item for item in PROJECT["optional-dependencies"]["spark"] if item.startswith("pyspark"))
    assert needed == "pyspark>=4.0,<4.3"
    lines = page("docs/operations/databricks.md").splitlines()
    rows = [line.split("|")[2].strip() for line in lines if re.match(r"\| (up to |\[?\d\d)", line)]
    assert rows == ["3.5", "4.0", "4.1", "4.2"]
