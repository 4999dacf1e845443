"""``make test-s3a``: Spark's own scan through ``s3a://``, beside our writers; the server tells what it was asked.

Not among the usual tests: it fetches 690 MB.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest

from spark_ext.support.options import STORAGE_CONF
from tests.places.noting import Requests, noting
from tests.places.support import DEADLINE_S, ROOT, SMALL, check, run_pipeline
from tools.maven import jars
from tools.servers import ACCESS_KEY, SECRET_KEY, s3_server

HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
"""Of the Hadoop in Spark 4.2. With the bundle of Amazon's SDK it is 690 MB."""

FETCH_S = 1_800

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)


def test_the_native_scan_reads_what_our_writers_wrote_and_nothing_is_ever_copied(tmp_path: Path) -> None:
    found = jars(ROOT / "out" / "jars" / HADOOP_AWS.replace(":", "-"), HADOOP_AWS, timeout_s=FETCH_S)
    with s3_server() as server, noting(server.endpoint) as ours, noting(server.endpoint) as sparks:
        client = {**server.storage_options["client_kwargs"], "endpoint_url": ours.endpoint}
        storage = {"key": ACCESS_KEY, "secret": SECRET_KEY, "client_kwargs": client}
        conf = {
            **SMALL,
            "spark.master": "local[2]",
            "spark.jars": ",".join(found),
            f"{STORAGE_CONF}key": ACCESS_KEY,
            f"{STORAGE_CONF}secret": SECRET_KEY,
            f"{STORAGE_CONF}client_kwargs": json.dumps(client),
            "spark.hadoop.fs.s3a.endpoint": sparks.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": client["region_name"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
        }
        steps = ("write", "read", "transaction", "native", "visible", "stream", "sink", "process", "refused")
        root = server.url("lake")
        seen = run_pipeline(
            tmp_path, steps, conf=conf, root=root, spark_root=root.replace("s3:", "s3a:"), storage=storage
        )
    check(seen)
    assert SECRET_KEY not in seen["told"]
    for whose, noted in (("ours", ours), ("Spark's own", sparks)):
        print(f"requests, {whose}: {dict(Counter(method for method, _, _ in noted.seen))}")
        assert [target for _, target, source in noted.seen if source is not None] == []
    written = segments(ours, "PUT")
    assert written
    assert segments(sparks, "GET"), "the native scan reads through Spark's own file system"
    assert segments(sparks, "GET") <= written
    assert {method for method, _, _ in sparks.seen} <= {"GET", "HEAD"}, "Spark itself writes nothing"


def segments(noted: Requests, method: str) -> set[str]:
    """The segments that were put or read."""
    asked = {unquote(target.partition("?")[0]) for name, target, _ in noted.seen if name == method}
    return {key for key in asked if key.endswith(".parquet")}
