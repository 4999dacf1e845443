"""From a URL to a store: what opens, what is refused, and what the store then calls itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import txnlog.store.open as open_module
from txnlog.errors import Durable, InvalidInputError, StoreError, UnsafeStore
from txnlog.store import Created, FsspecStore, LocalStore, MemoryStore, Store, identity_of, open_store
from txnlog.store.open import absolute
from txnlog.store.probe import probe

ABFSS = "abfss://container@account.dfs.core.windows.net/lake"


@pytest.mark.parametrize(
    ("url", "kind", "address"),
    [
        ("s3://bucket/lake", "s3/s3fs", "s3://bucket/lake/_log/1"),
        ("s3://bucket/lake/", "s3/s3fs", "s3://bucket/lake/_log/1"),
        ("s3://bucket", "s3/s3fs", "s3://bucket/_log/1"),
        ("s3a://bucket/a/b", "s3/s3fs", "s3://bucket/a/b/_log/1"),
        ("S3://bucket/a", "s3/s3fs", "s3://bucket/a/_log/1"),
        (ABFSS, "azure/adlfs", f"{ABFSS}/_log/1"),
        ("az://container/lake", "azure/adlfs", "az://container/lake/_log/1"),
        ("gs://bucket/lake", "gcs/gcsfs", "gs://bucket/lake/_log/1"),
        ("gcs://bucket/lake", "gcs/gcsfs", "gs://bucket/lake/_log/1"),
        ("memory://name", "memory", "memory://name/_log/1"),
        ("memory://name/below/it", "memory", "memory://name/below/it/_log/1"),
        ("/data/lake", "local", "/data/lake/_log/1"),
        ("file:///data/lake", "local", "/data/lake/_log/1"),
        ("file:///data/with%20space", "local", "/data/with space/_log/1"),
        ("file://localhost/data/lake", "local", "/data/lake/_log/1"),
        ("file:/data/lake", "local", "/data/lake/_log/1"),
        ("FILE:/data/lake", "local", "/data/lake/_log/1"),
        ("local:///data/lake", "local", "/data/lake/_log/1"),
    ],
)
def test_a_url_opens_the_store_it_names_without_a_connection(url: str, kind: str, address: str) -> None:
    store = open_store(url)
    assert identity_of(store).store_kind == kind
    assert store.url("_log/1") == address
    assert isinstance(store, Store)


def test_a_path_may_be_relative_an_object_or_begin_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_store("lake").url("k") == str(tmp_path / "lake/k")
    assert open_store(tmp_path / "lake").url("k") == str(tmp_path / "lake/k")
    assert open_store("~/lake").url("k") == str(tmp_path / "home/lake/k")


def test_a_root_made_absolute_is_the_one_that_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for root in ("lake", "./lake", "../lake", ".", "~/lake", "~nobody-of-this-name/lake"):
        made = absolute(root)
        assert made.startswith("/")
        assert open_store(made).url("k") == open_store(root).url("k")
    for root in ("", "/", "/tmp/../lake", "file:///tmp/lake", "memory://lake", "s3a://bucket/lake"):
        assert absolute(root) == root


def test_a_file_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    with pytest.raises(InvalidInputError, match="lake' is a file"):
        open_store(tmp_path / "lake")


def test_an_unknown_storage_option_is_named_as_that() -> None:
    store = open_store("s3://bucket/lake", {"bad_option": True, "key": "a", "secret": "b"})
    with pytest.raises(StoreError, match="bad_option") as caught:
        store.get("_log/1")
    assert "names in storage_options" in caught.value.advice
    assert caught.value.durable is Durable.NOTHING


def test_a_relative_root_stays_where_it_was_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("lake")
    monkeypatch.chdir("/")
    store.put("k", b"x")
    assert (tmp_path / "lake/k").read_bytes() == b"x"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "\0",
        "/a\0b",
        "s3:/bucket/lake",
        "s3:bucket",
        "C:\\data",
        "s3://",
        "s3:///lake",
        "s3://bucket/../other",
        "s3://bucket/a//b",
        "s3://bucket/./b",
        "s3://bucket/lake?versionId=1",
        "s3://bucket/lake#part",
        "s3://key:hunter2secret@bucket/lake",
        "s3://user@bucket/lake",
        "abfss://container:hunter2secret@account.dfs.core.windows.net/lake",
        "simplecache::s3://bucket/lake",
        "zip://a.zip::s3://bucket/lake",
        "file://elsewhere/data",
        "file:///data?x=1",
        "file:///data?",
        "file:",
        "file:data",
        "file:////data",
        "memory://",
        "memory://name/../other",
        "memory://name/a b",
        "nonsense://bucket/lake",
    ],
    ids=ascii,
)
def test_a_url_that_means_nothing_or_several_things_is_refused_with_advice(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store(url)
    assert caught.value.advice
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["/data/lake", "file:///data/lake", "file:/data/lake", "memory://name"])
def test_options_for_a_store_that_has_none_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store(url, {"key": "hunter2secret"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("s3://bucket", "s3fs", "txnlog[s3]"),
        (ABFSS, "adlfs", "txnlog[azure]"),
        ("gs://bucket", "gcsfs.core", "txnlog[gcs]"),
    ],
)
def test_a_missing_library_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInputError) as caught:
        open_store(url)
    assert f"pip install {extra}" in str(caught.value)


def test_memory_roots_of_one_name_are_one_store_and_others_are_not() -> None:
    assert open_store("memory://shared-1").create("a", b"x") is Created.CREATED
    assert open_store("memory://shared-1").get("a") == b"x"
    assert list(open_store("memory://shared-2").list("")) == []
    assert list(MemoryStore().list("")) == []
    open_store("memory://shared-1/below").put("b", b"y")
    assert [info.key for info in open_store("memory://shared-1").list("")] == ["a", "below/b"]


@pytest.mark.parametrize("root", ["dbfs:/lake", "dbfs:/Volumes/main/default/lake", "DBFS:/lake", "dbfs://lake"])
def test_a_path_of_databricks_is_answered_with_the_bucket_behind_it(root: str) -> None:
    with pytest.raises(UnsafeStore, match="atomic create-if-absent") as caught:
        open_store(root)
    assert "name the bucket or container behind it, as s3://, abfss:// or gs://" in caught.value.advice


@pytest.mark.parametrize(
    ("root", "way_out"),
    [("s3:/bucket/lake", "write 's3://bucket/path'"), ("C:\\data", "a local path, file:// or one of s3://")],
)
def test_a_root_with_half_a_scheme_is_answered_with_the_way_out(root: str, way_out: str) -> None:
    with pytest.raises(InvalidInputError, match=r"begins with .* but not with") as caught:
        open_store(root)
    assert way_out in caught.value.advice


@pytest.mark.parametrize("scheme", ["hdfs", "http", "https", "ftp", "sftp"])
def test_schemes_without_create_if_absent_say_so_and_name_those_that_have_it(scheme: str) -> None:
    with pytest.raises(UnsafeStore, match=r"has no atomic create-if-absent.*use a local path, file:// or one of s3://"):
        open_store(f"{scheme}://127.0.0.1/data")


def test_other_file_systems_of_fsspec_open_and_the_probe_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_module, "_NOT_ATOMIC", frozenset())
    store = open_store("http://127.0.0.1/data")
    assert isinstance(store, FsspecStore)
    assert not identity_of(store).sends_condition
    with pytest.raises(UnsafeStore):
        probe(store, "_catalog/probe/")


# --- identity -------------------------------------------------------------------------------------------------------


def s3(endpoint: str | None, **options: Any) -> dict[str, Any]:
    return {**options, **({"client_kwargs": {"endpoint_url": endpoint}} if endpoint else {})}


def hashed(url: str | Path, options: dict[str, Any] | None = None) -> str:
    return identity_of(open_store(url, options)).endpoint_hash


def test_roots_in_one_bucket_share_an_identity_and_other_buckets_and_endpoints_do_not() -> None:
    same = {
        hashed("s3://bucket/one", s3("http://127.0.0.1:9000")),
        hashed("s3a://bucket/two/", s3("http://127.0.0.1:9000/")),
        hashed("s3://bucket", {"endpoint_url": "http://127.0.0.1:9000"}),
        hashed("s3://bucket", s3("http://user:password@127.0.0.1:9000?token=1")),
    }
    others = {
        hashed("s3://bucket/one", s3(None)),
        hashed("s3://bucket/one", s3("http://127.0.0.1:9001")),
        hashed("s3://other/one", s3("http://127.0.0.1:9000")),
        hashed("gs://bucket/one"),
        hashed("az://bucket/one", {"account_name": "a"}),
        hashed("az://bucket/one", {"account_name": "b"}),
    }
    assert len(same) == 1
    assert len(others - same) == 6


def test_an_azure_account_is_the_same_however_it_is_named() -> None:
    assert (
        hashed(ABFSS)
        == hashed("az://container/x", {"account_name": "account"})
        == hashed("az://container/x", {"connection_string": "AccountName=account;AccountKey=hunter2secret"})
    )


def test_credentials_do_not_change_the_identity() -> None:
    first = hashed("s3://bucket", s3("http://127.0.0.1:9000", key="one", secret="two", token="three"))
    assert first == hashed("s3://bucket", s3("http://127.0.0.1:9000"))


def test_an_endpoint_from_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = hashed("s3://bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000")
    assert hashed("s3://bucket") == hashed("s3://bucket", s3("http://127.0.0.1:9000")) != plain


def test_a_local_root_is_the_same_by_every_path_to_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "link")
    assert hashed(tmp_path / "real") == hashed(tmp_path / "link") == hashed(f"file://{tmp_path}/link/")
    assert hashed(tmp_path / "real") != hashed(tmp_path / "other")
    assert isinstance(open_store(tmp_path / "real"), LocalStore)
