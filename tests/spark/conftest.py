"""One Spark session for all tests that need one, and a namespace on the local disk for each test."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
import traceback
import types
from collections import namedtuple
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import datasource

from tests.client.support import FakeRuntime, Place, trusting_probe, unique_name
from tests.sessions import (
    namespace,  # noqa: F401 - a fixture
    set_surroundings,
)
from tools.java_archive import QUICK
from txnlog.client import session_owner
from txnlog.log import root_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """On an older Spark a test of what it lacks passes where it meets the error that says so, and in no other way."""
    try:
        return (yield)
    except BaseException as error:  # also what pytest.raises and pytest.fail raise
        if _names_what_is_lacking("".join(traceback.format_exception(error))):
            return True
        raise


def _stand_in_for_what_is_lacking() -> None:
    """On an older Spark, in this process only, so that modules can be imported that Spark itself would not come to."""
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
        names = ("ReadAllAvailable", "ReadLimit", "SupportsTriggerAvailableNow")
        module = types.ModuleType("pyspark.sql.streaming.datasource")
        vars(module).update({name: type(name, (), {}) for name in names})
        vars(module)["ReadMaxRows"] = namedtuple("ReadMaxRows", "max_rows")
        sys.modules[module.__name__] = module
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        vars(datasource)["DataSourceStreamArrowWriter"] = datasource.DataSourceStreamWriter


_stand_in_for_what_is_lacking()

# Before 4.1 Spark measures no batches: there is nothing to spare it.
collect_ignore = ["test_arrow_batches.py"] if importlib.metadata.version("pyspark").startswith("4.0.") else []


def _names_what_is_lacking(text: str) -> bool:
    """Whether an error tells of this version of Spark that it lacks something: never on the one we are made for."""
    version = importlib.metadata.version("pyspark")
    lacks = re.search(rf"UnsupportedFeature: [^\n]{{1,60}} needs PySpark 4\.\d, this is {re.escape(version)} ", text)
    return lacks is not None and version.startswith(("4.0.", "4.1."))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session: two cores, UTC, few shuffle partitions, no web page."""
    from pyspark.sql import SparkSession

    set_surroundings()
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("txnlog-tests")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Duser.timezone=UTC -Dderby.system.home={warehouse} {QUICK}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.streaming.schemaInference", "false")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _active(request: pytest.FixtureRequest) -> None:
    """Where Ctrl-C broke a call of an earlier test, Python comes back in another thread of Java, which has no session.

    Spark finds formats by the session of the thread: it would know of none that is written in Python.
    """
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A root in memory, at which nobody waits."""
    monkeypatch.setattr(session_owner, "Runtime", FakeRuntime)
    monkeypatch.setattr(root_log, "probe", trusting_probe)
    place = Place("memory", f"memory://{unique_name()}")
    yield place
    place.close()
