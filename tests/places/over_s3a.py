"""``make test-s3a``: Spark's own scan through ``s3a://``, beside our writers; the server tells what it was asked.

Not among the usual tests: it fetches 690 MB.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from spark_ext.options import STORAGE_CONF
from tests.places.s3a import noting, s3a_jars
from tests.places.support import DEADLINE_S, SMALL, check, run_pipeline
from tools.servers import ACCESS_KEY, SECRET_KEY, s3_server

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)


def test_the_native_scan_reads_what_our_writers_wrote_and_nothing_is_ever_copied(tmp_path: Path) -> None:
    jars = ",".join(s3a_jars())
    with s3_server() as server, noting(server.endpoint) as noted:
        client = {**server.storage_options["client_kwargs"], "endpoint_url": noted.endpoint}
        storage = {"key": ACCESS_KEY, "secret": SECRET_KEY, "client_kwargs": client}
        conf = {
            **SMALL,
            "spark.master": "local[2]",
            "spark.jars": jars,
            f"{STORAGE_CONF}key": ACCESS_KEY,
            f"{STORAGE_CONF}secret": SECRET_KEY,
            f"{STORAGE_CONF}client_kwargs": json.dumps(client),
            "spark.hadoop.fs.s3a.endpoint": noted.endpoint,
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
    methods = Counter(method for method, _, _ in noted.seen)
    print(f"requests: {dict(methods)}")
    assert [target for _, target, source in noted.seen if source is not None] == []
    segments = {
        target.partition("?")[0] for method, target, _ in noted.seen if method == "PUT" and ".parquet" in target
    }
    read = {target.partition("?")[0] for method, target, _ in noted.seen if method == "GET" and ".parquet" in target}
    assert segments & read
