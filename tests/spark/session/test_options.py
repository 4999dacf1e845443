"""Options and paths of the ``txnlog`` format: what is understood, and what is refused with the way out."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import txnlog
from spark_ext.support.options import (
    OPTIONS,
    ReadOptions,
    WriteOptions,
    read_options,
    session_storage,
    storage_of_call,
    write_options,
)
from spark_ext.support.paths import Location, locate, normal
from txnlog.errors import InvalidInputError, NamespaceNotFound
from txnlog.log.root_log import Root
from txnlog.store.open import hadoop_url, open_store

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

P = "/lake/sales/orders"
SECRET = "hunter2-is-my-secret"


def read(streaming: bool | None = False, **options: Any) -> ReadOptions:
    return read_options({"path": P, **options}, streaming=streaming)


def write(streaming: bool = False, **options: Any) -> WriteOptions:
    return write_options({"path": P, **options}, streaming=streaming)


def spellings(name: str) -> list[str]:
    return [name, name.lower(), name.upper()]


# --- what is understood -----------------------------------------------------------------------------------------------


def test_a_path_alone_reads_everything_that_is_committed() -> None:
    assert read() == ReadOptions(
        P,
        subscribe=None,
        subscribe_pattern=None,
        starting_offsets=None,
        ending_offsets=None,
        starting_timestamp=None,
        ending_timestamp=None,
        starting_version=None,
        version_as_of=None,
        timestamp_as_of=None,
        isolation_level="read_committed",
        include_metadata=False,
        columns=None,
        filters=(),
        exclude_segments=frozenset(),
        min_partitions=None,
        fail_on_data_loss=True,
        subscription=None,
        max_offsets_per_trigger=None,
        split_transactions=False,
        metadata=None,
        limit=None,
        storage_options={},
    )
    assert write() == WriteOptions(P, None, None, None, None, None, None, {})


@pytest.mark.parametrize(
    ("streaming", "name", "text", "field", "value"),
    [
        (False, "subscribe", "orders, audit", "subscribe", ("orders", "audit")),
        (False, "startingOffsets", " Earliest ", "starting_offsets", "earliest"),
        (False, "startingOffsets", "LATEST", "starting_offsets", "latest"),
        (False, "startingOffsets", '{"a": {"0": 23, "1": -2}}', "starting_offsets", {"a": {0: 23, 1: -2}}),
        (False, "endingOffsets", '{"a": {"0": -1}, "b": {}}', "ending_offsets", {"a": {0: -1}, "b": {}}),
        (False, "versionAsOf", "0", "version_as_of", 0),
        (False, "versionAsOf", " 42 ", "version_as_of", 42),
        (False, "timestampAsOf", "1795248000123", "timestamp_as_of", 1_795_248_000_123),
        (False, "timestampAsOf", "20261121", "timestamp_as_of", 20_261_121),
        (False, "timestampAsOf", " 2026-11-21T08:00:00.123+01:00", "timestamp_as_of", "2026-11-21T08:00:00.123+01:00"),
        (False, "timestampAsOf", "2038-11-21T08:00:00.002Z", "timestamp_as_of", "2038-11-21T08:00:00.002Z"),
        (False, "timestampAsOf", "2026-11-21 08:00:00Z", "timestamp_as_of", "2026-11-21 08:00:00Z"),
        (False, "subscribePattern", "ord.*|(a)b[^c]", "subscribe_pattern", "ord.*|(a)b[^c]"),
        (True, "subscribePattern", " x", "subscribe_pattern", " x"),
        (False, "startingTimestamp", "1795248000123", "starting_timestamp", 1_795_248_000_123),
        (True, "startingTimestamp", "2026-11-21T08:00:00Z", "starting_timestamp", 1_795_248_000_000),
        (False, "startingTimestamp", "2026-11-21T09:00:00.0001+01:00", "starting_timestamp", 1_795_248_000_001),
        (False, "endingTimestamp", "2026-11-21T08:00:00.001000Z", "ending_timestamp", 1_795_248_000_001),
        (False, "endingTimestamp", "1969-12-31T23:59:59.9995Z", "ending_timestamp", 0),
        (False, "startingVersion", "17", "starting_version", 17),
        (True, "startingVersion", "0", "starting_version", 0),
        (False, "isolationLevel", "READ_UNCOMMITTED", "isolation_level", "read_uncommitted"),
        (False, "includeMetadata", "True", "include_metadata", True),
        (False, "columns", "id , amount", "columns", ("id", "amount")),
        (
            False,
            "filters",
            '[["id", ">", 1.50], ["a", "is null"]]',
            "filters",
            (("id", ">", Decimal("1.50")), ("a", "is null")),
        ),
        (True, "filters", " [] ", "filters", ()),
        (False, "excludeSegments", "7, 1031", "exclude_segments", frozenset({7, 1031})),
        (False, "minPartitions", "7", "min_partitions", 7),
        (False, "failOnDataLoss", "false", "fail_on_data_loss", False),
        (True, "startingOffsets", "latest", "starting_offsets", "latest"),
        (True, "subscription", "billing", "subscription", "billing"),
        (True, "maxOffsetsPerTrigger", "1000", "max_offsets_per_trigger", 1000),
        (True, "includeMetadata", "FALSE", "include_metadata", False),
        (None, "subscription", "billing", "subscription", "billing"),
        (None, "versionAsOf", "7", "version_as_of", 7),
    ],
)
def test_an_option_of_a_read_is_understood_in_any_case(
    streaming: bool | None, name: str, text: str, field: str, value: Any
) -> None:
    for spelling in spellings(name):
        assert getattr(read(streaming, **{spelling: text}), field) == value


@pytest.mark.parametrize(
    ("streaming", "name", "field"),
    [
        (False, "topic", "topic"),
        (False, "transactionalId", "transactional_id"),
        (True, "topic", "topic"),
        (True, "txnAppId", "txn_app_id"),
        (True, "acknowledge", "acknowledge"),
        (True, "checkpointLocation", "checkpoint_location"),
    ],
)
def test_an_option_of_a_write_is_understood_in_any_case(streaming: bool, name: str, field: str) -> None:
    for spelling in spellings(name):
        assert getattr(write(streaming, **{spelling: "Some-Name"}), field) == "Some-Name"


def test_an_idempotent_write_has_an_app_and_a_version() -> None:
    found = write(txnAppId="nightly", txnVersion="20261121")
    assert (found.txn_app_id, found.txn_version) == ("nightly", 20_261_121)
    halves: tuple[dict[str, Any], ...] = ({"txnAppId": "nightly"}, {"txnVersion": "1"})
    for half in halves:
        with pytest.raises(InvalidInputError, match=r"'txnAppId' and 'txnVersion' go together"):
            write(**half)


def test_a_transaction_is_split_only_where_there_is_a_limit() -> None:
    found = read(True, splitTransactions="true", maxOffsetsPerTrigger="10")
    assert (found.split_transactions, found.max_offsets_per_trigger) == (True, 10)
    assert not read(True, splitTransactions="false").split_transactions
    with pytest.raises(InvalidInputError, match=r"'splitTransactions' needs 'maxOffsetsPerTrigger'.*give both"):
        read(True, splitTransactions="true")


def test_a_query_has_a_name_as_a_consumer_only_where_it_is_one() -> None:
    assert read(True, txnAppId="nightly", subscription="billing").txn_app_id == "nightly"
    with pytest.raises(InvalidInputError, match=r"'txnAppId' .*needs 'subscription'"):
        read(True, txnAppId="nightly")


def test_the_tour_lists_the_options_that_there_are() -> None:
    tour = (Path(__file__).parents[3] / "docs" / "tour.md").read_text(encoding="utf-8")
    uses = {
        "batch reads": {"read"},
        "streaming reads": {"readStream"},
        "writes": {"write"},
        "streaming writes": {"writeStream"},
        "all": {"read", "readStream", "write", "writeStream"},
    }
    told: dict[str, set[str]] = {use: set() for use in uses["all"]}
    for where, cell in re.findall(r"^\| ([a-z ]+) \| (.*) \|$", tour, re.MULTILINE):
        for use in uses.get(where, ()):
            told[use] |= {name for name in re.findall(r"`(\w+)`", cell) if name != "spark"}
    for use, names in told.items():
        known = {option.name for option in OPTIONS if use in option.uses}
        assert names == known - {"path", "queryName"}, use


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("streaming", "name", "texts", "problem"),
    [
        (False, "versionAsOf", ["", "-1", "1.0", "1e3", "٣", "9" * 20, "latest"], "a whole number from 0 on"),
        (False, "excludeSegments", ["", "-4", "[7]", "7;8"], "a list of the numbers of segments"),
        (False, "minPartitions", ["0", "-4", "two"], "a whole number from 1 on"),
        (True, "maxOffsetsPerTrigger", ["0", "", "1_000"], "a whole number from 1 on"),
        (False, "includeMetadata", ["yes", "1", ""], "true or false"),
        (False, "failOnDataLoss", ["no"], "true or false"),
        (True, "splitTransactions", ["on"], "true or false"),
        (False, "isolationLevel", ["committed", "", "serializable"], "read_committed or read_uncommitted"),
        (True, "startingTimestamp", ["5", "999999999"], "a time, in epoch milliseconds such as 1795248000000 (0 is"),
        (True, "startingTimestamp", ["now", "", "-5", "9" * 16, "1e3"], "a time: epoch milliseconds, or like 2026-"),
        (False, "endingTimestamp", ["2026-11-21T08:00:00"], "a time with its zone, like 2026-"),
        (True, "startingVersion", ["-1", "latest", "1.0"], "a whole number from 0 on"),
        (False, "subscribePattern", ["ord(", "*", "a{2,1}"], "is a regular expression ("),
        (False, "subscribePattern", [" ", ""], "some text"),
        (False, "subscribePattern", ["(" * 9_000 + ")" * 9_000, "a{" + "9" * 30 + "}"], "is a regular expression"),
        (False, "timestampAsOf", ["yesterday", "", "-5", "9" * 16], "a time: epoch milliseconds, or like 2026-"),
        (False, "timestampAsOf", ["2026-11-21", "2026-11-21T08:00:00"], "a time with its zone, like 2026-"),
        (False, "subscribe", ["", "orders,,audit", " "], "a list of names, separated by commas"),
        (False, "columns", ["id,id"], "names each thing once"),
        (
            False,
            "startingOffsets",
            [
                "",
                "first",
                "[]",
                "7",
                '{"a": 5}',
                '{"a": {"x": 5}}',
                '{"a": {"0": "5"}}',
                '{"a": {"0": true}}',
                '{"a": {"0": -3}}',
                '{"a": {"0": 1.5}}',
                '{"a": {"-1": 5}}',
                '{"a": {"00": 5}}',
                '{"a": {"' + "9" * 5_000 + '": 5}}',
                '{"a": {"0": ' + "9" * 5_000 + "}}",
                '{"a": {"0": 5}',
            ],
            'earliest, latest or JSON like {"orders"',
        ),
        (True, "subscription", ["", "  "], "some text"),
        (False, "storageOptions", ["", "{", "[]", "null", "key=value"], "a JSON object like"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_the_option_and_what_it_should_be(
    streaming: bool, name: str, texts: list[str], problem: str
) -> None:
    for text in texts:
        with pytest.raises(InvalidInputError, match=f"the option '{name}' .*{re.escape(problem)}"):
            read(streaming, **{name.lower(): text})


def test_a_value_is_shown_shortly_and_escaped_unless_it_is_a_secret() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read(versionAsOf="\x1b[2J" + "x" * 10_000)
    assert "\\x1b[2J" in str(caught.value)
    assert len(str(caught.value)) < 400
    with pytest.raises(InvalidInputError) as caught:
        read(storageOptions='{"secret": "' + SECRET)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("versionAsof2", "versionAsOf"),
        ("startingOffset", "startingOffsets"),
        ("isolation", "isolationLevel"),
        ("include_metadata", "includeMetadata"),
        ("subscribes", "subscribe"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(given: str, nearest: str) -> None:
    for streaming in (False, None):
        with pytest.raises(InvalidInputError, match=f"unknown option '{given}' .*did you mean '{nearest}'"):
            read(streaming, **{given: "1"})


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("endingVersion", "use 'versionAsOf', the last version that is read"),
        ("readChangeFeed", "leave it out: 'startingVersion' gives"),
        ("readChangeData", "leave it out: 'startingVersion' gives"),
    ],
)
def test_an_option_of_deltas_change_feed_is_refused_with_what_stands_here_for_it(given: str, advice: str) -> None:
    for streaming in (False, True, None):
        for name in (given, given.lower()):
            with pytest.raises(InvalidInputError, match=f"unknown option '{name}' .{advice}"):
                read(streaming, **{name: "1"})


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("allow_unacknowledged", "use txn.write.* in a spark_ext.transaction"),
        ("allowUnacknowledged", "use txn.write.* in a spark_ext.transaction"),
        ("mergeSchema", "add the columns before, with ns.alter_topic"),
        ("newestBy", "use spark_ext.read_topic"),
        ("newest_by", "use spark_ext.read_topic"),
        ("overwriteSchema", "a topic keeps its columns"),
    ],
)
def test_an_option_that_is_a_call_here_is_refused_with_that_call(given: str, advice: str) -> None:
    for parse in (read_options, write_options):
        with pytest.raises(InvalidInputError, match=f"unknown option '{given}' .{advice}"):
            parse({"path": P, given: "true"}, streaming=False)


def test_an_unknown_option_in_lower_case_as_spark_passes_it_is_answered_with_the_documented_name() -> None:
    for option in OPTIONS:
        for use in option.uses:
            parse = read_options if use.startswith("read") else write_options
            for wrong in (option.name.lower()[1:], f"{option.name.lower()}_x"):
                with pytest.raises(InvalidInputError, match=f"unknown option '{wrong}' .*did you mean '{option.name}'"):
                    parse({"path": P, wrong: "1"}, streaming=use.endswith("Stream"))


@pytest.mark.parametrize(
    ("use", "name", "places"),
    [
        ("read", "subscription", "spark.readStream"),
        ("readStream", "metadata", "spark.read"),
        ("write", "metadata", "spark.read"),
        ("read", "maxOffsetsPerTrigger", "spark.readStream"),
        ("read", "splitTransactions", "spark.readStream"),
        ("read", "topic", "df.write and df.writeStream"),
        ("read", "checkpointLocation", "df.writeStream"),
        ("readStream", "versionAsOf", "spark.read"),
        ("readStream", "timestampAsOf", "spark.read"),
        ("readStream", "endingOffsets", "spark.read"),
        ("readStream", "endingTimestamp", "spark.read"),
        ("write", "startingTimestamp", "spark.read and spark.readStream"),
        ("readStream", "isolationLevel", "spark.read"),
        ("readStream", "acknowledge", "df.writeStream"),
        ("write", "columns", "spark.read and spark.readStream"),
        ("write", "acknowledge", "df.writeStream"),
        ("writeStream", "txnVersion", "df.write"),
        ("writeStream", "subscription", "spark.readStream"),
    ],
)
def test_an_option_in_the_wrong_place_is_refused_with_the_right_one(use: str, name: str, places: str) -> None:
    given = {"path": P, name.lower(): "1"}
    parse = read_options if use.startswith("read") else write_options
    problem = re.escape(f"the option '{name}' belongs to {places} (leave it out here")
    with pytest.raises(InvalidInputError, match=problem):
        parse(given, streaming=use.endswith("Stream"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"versionAsOf": "1", "timestampAsOf": "1"}, "'versionAsOf' and 'timestampAsOf' exclude each other"),
        ({"isolationLevel": "read_uncommitted", "startingOffsets": "earliest"}, "'startingOffsets' needs read_com"),
        ({"isolationLevel": "read_uncommitted", "endingOffsets": "latest"}, "'endingOffsets' needs read_committed"),
        ({"isolationLevel": "read_uncommitted", "startingTimestamp": "0"}, "'startingTimestamp' needs read_committed"),
        ({"isolationLevel": "read_uncommitted", "endingTimestamp": "0"}, "'endingTimestamp' needs read_committed"),
        ({"isolationLevel": "read_uncommitted", "startingVersion": "1"}, "'startingVersion' needs read_committed"),
        ({"subscribe": "a", "subscribePattern": "a"}, "'subscribe' and 'subscribePattern' exclude each other"),
        ({"startingOffsets": "earliest", "startingTimestamp": "0"}, "'startingOffsets' and 'startingTimestamp' excl"),
        ({"startingVersion": "3", "startingTimestamp": "0"}, "'startingTimestamp' and 'startingVersion' exclude"),
        ({"startingVersion": "3", "startingOffsets": "earliest"}, "'startingOffsets' and 'startingVersion' exclude"),
        ({"endingOffsets": "latest", "endingTimestamp": "0"}, "'endingOffsets' and 'endingTimestamp' exclude"),
        (
            {"startingTimestamp": "2026-11-21T08:00:00Z", "endingTimestamp": "0"},
            "'startingTimestamp' is behind that of 'endingTimestamp'",
        ),
        ({"startingVersion": "8", "versionAsOf": "7"}, r"'startingVersion' \(8\) is behind 'versionAsOf' \(7\)"),
        ({"limit": "7"}, r"'limit' needs 'metadata' \(call limit\(...\) of the DataFrame"),
        ({"metadata": "files", "columns": "key"}, "'columns' does not fit 'metadata'.*select and where"),
        ({"metadata": "files", "minPartitions": "2"}, "'minPartitions' does not fit 'metadata'"),
        ({"metadata": "segments", "subscribe": "orders"}, "'subscribe' does not fit 'metadata'"),
        ({"metadata": "segments", "versionAsOf": "1", "timestampAsOf": "1"}, "exclude each other"),
        ({"provider": "txnlog"}, "a table of the format txnlog cannot be created.*CREATE TEMPORARY VIEW"),
        ({"Owner": "me"}, "a table of the format txnlog cannot be created"),
        ({"paths": '["a", "b"]'}, "load takes one path.*subscribe='a,b'"),
        ({"path": " "}, "the option 'path' is some text"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        read(**options)


def test_without_a_path_there_is_advice_for_each_way_to_give_one() -> None:
    for call in (lambda: read_options({}), lambda: write_options({}, streaming=True)):
        with pytest.raises(InvalidInputError, match=r"the path is missing.*load, save or start.*TEMPORARY VIEW"):
            call()


# --- storage options --------------------------------------------------------------------------------------------------


def test_storage_options_are_given_as_json_and_stand_in_no_repr() -> None:
    for options in (
        read(storageOptions=f'{{"secret": "{SECRET}", "client_kwargs": {{"region_name": "x"}}}}'),
        write(storageOptions=f'{{"secret": "{SECRET}", "client_kwargs": {{"region_name": "x"}}}}'),
    ):
        assert options.storage_options == {"secret": SECRET, "client_kwargs": {"region_name": "x"}}
        assert SECRET not in repr(options)


def session(**settings: str) -> Any:
    return SimpleNamespace(conf=SimpleNamespace(getAll={name.replace("__", "."): v for name, v in settings.items()}))


def test_storage_options_come_from_the_settings_of_a_session_as_well() -> None:
    found = session_storage(
        session(
            spark__txnlog__storage__key="abc",
            spark__txnlog__storage__anon="true",
            spark__txnlog__storage__client_kwargs=' {"region_name": "x"}',
            spark__txnlog__storages="no",
            spark__app__name="other",
        )
    )
    assert found == {"key": "abc", "anon": True, "client_kwargs": {"region_name": "x"}}
    with pytest.raises(InvalidInputError, match=r"'spark.txnlog.storage.client_kwargs' begins like JSON") as caught:
        session_storage(session(spark__txnlog__storage__client_kwargs=f'{{"secret": {SECRET}'))
    assert SECRET not in str(caught.value)


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["lake/sales/orders", "./orders", "orders", " lake/sales"])
def test_a_relative_path_is_refused_since_it_means_another_folder_in_sparks_processes(path: str) -> None:
    for options in (
        partial(read_options),
        partial(write_options, streaming=False),
        partial(write_options, streaming=True),
    ):
        with pytest.raises(InvalidInputError, match=r"is relative.*abspath"):
            options({"path": path})
    for other in ("/lake/sales", "file:///lake/sales", "~/lake/sales", "s3a://bucket/sales"):
        assert read_options({"path": other}).path == other


@pytest.mark.parametrize(
    ("given", "ours", "sparks"),
    [
        ("/data/lake/", "/data/lake", "file:///data/lake"),
        ("/data//x/../lake", "/data/lake", "file:///data/lake"),
        ("file:/data/lake", "/data/lake", "file:///data/lake"),
        ("file:///data/a%20b", "/data/a b", "file:///data/a b"),
        ("file://localhost/data", "/data", "file:///data"),
        ("s3a://bucket/lake/", "s3://bucket/lake", "s3a://bucket/lake"),
        ("S3://bucket/lake", "s3://bucket/lake", "s3a://bucket/lake"),
        ("s3n://bucket", "s3://bucket", "s3a://bucket"),
        ("gcs://bucket/x", "gs://bucket/x", "gs://bucket/x"),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x", None),
    ],
)
def test_a_path_is_written_as_our_stores_and_as_spark_know_it(given: str, ours: str, sparks: str | None) -> None:
    assert normal(given) == ours
    assert normal(ours) == ours
    assert hadoop_url(ours) == (ours if sparks is None else sparks)


@pytest.mark.parametrize(
    ("given", "problem"),
    [("", "the path is empty"), ("  ", "the path is empty"), ("file://host/data", "file:///path"), ("file:x", "file:")],
)
def test_a_path_that_means_nothing_is_refused(given: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        normal(given)


def test_the_store_reports_whether_a_path_names_a_namespace_or_a_topic(namespace: Namespace) -> None:
    root = namespace.root
    for given in (f"{root}/sales", f"{root}/sales/", f"file://{root}/sales"):
        assert locate(given) == Location(root, "sales")
        assert locate(given, topics_named=True) == Location(root, "sales")
    assert locate(f"{root}/sales/orders") == Location(root, "sales", "orders")
    with pytest.raises(InvalidInputError, match=r"names the topic 'orders', and an option.*path ends in 'sales'"):
        locate(f"{root}/sales/orders", topics_named=True)


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        ("", r"neither a namespace nor a topic of one \(this is a root: append one of its namespaces \(sales\)"),
        ("/saels", r"no namespace 'saels' at '.*/lake/saels' \(did you mean 'sales'\?; in Python txnlog.open\("),
        ("/saels/orders", r"no namespace 'saels' at '.*/lake/saels' \(did you mean 'sales'"),
        ("/sales/orders/more", "neither a namespace nor a topic"),
        ("-elsewhere/a/b", "a path is ROOT/NAMESPACE/TOPIC"),
    ],
)
def test_a_path_without_a_log_is_refused_with_what_is_near(namespace: Namespace, tail: str, problem: str) -> None:
    with pytest.raises(NamespaceNotFound, match=problem):
        locate(f"{namespace.root}{tail}")


def test_the_nearest_root_above_a_path_reports_it_as_python_does(namespace: Namespace) -> None:
    """Whatever folder further up is a root, too: one that somebody made by mistake, and that has no namespace."""
    above, _, name = namespace.root.rpartition("/")
    with pytest.raises(InvalidInputError, match="is a root, a folder"):
        txnlog.open(above, namespace=name, create=True)
    Root(open_store(above), namespace._connection.runtime).ensure_safe()
    with pytest.raises(NamespaceNotFound) as pythons:
        txnlog.open(namespace.root, namespace="saels")
    with pytest.raises(NamespaceNotFound, match="did you mean 'sales'") as sparks:
        locate(f"{namespace.root}/saels")
    assert str(sparks.value) == str(pythons.value)
    with pytest.raises(NamespaceNotFound, match=r"append one of its namespaces \(sales\)"):
        locate(namespace.root)


def test_what_is_no_session_is_reported_with_a_type() -> None:
    nothing: Any = None
    for given in (None, {"key": "value"}):
        with pytest.raises(InvalidInputError, match="the first argument is a SparkSession, not NoneType"):
            storage_of_call(nothing, given)
