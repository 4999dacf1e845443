"""What others noted with a commit of a Delta table is no record of ours; one of ours that is broken is damage."""

from __future__ import annotations

import pytest

from spark_ext.delta.delta_table import _check_url, _record_of
from txnlog.errors import InvalidInputError

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "note",
    [
        None,
        "nightly",
        '{"txnlog":3}',
        '{"txnlog":',
        f'{{"txnlog":{DEEP}}}',
        '{"txnlog":{"app":"txnlog/b","version":1}}',
        '{"txnlog":{"app":3,"of":"txnlog/a"}}',
        '{"app":"txnlog/a"}',
    ],
)
def test_a_note_that_is_not_of_the_application_is_none(note: str | None) -> None:
    assert _record_of(note, "txnlog/a") is None


@pytest.mark.parametrize("rest", ['"version":', '"version":' + "1" * 5_000 + "}}", f'"of":{DEEP}}}}}'])
def test_a_note_of_the_application_that_cannot_be_parsed_is_damage(rest: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        _record_of(f'{{"txnlog":{{"app":"txnlog/a",{rest}', "txnlog/a")


def test_a_note_of_the_application() -> None:
    assert _record_of('{"txnlog":{"app":"txnlog/a","version":1}}', "txnlog/a") == {"app": "txnlog/a", "version": 1}


@pytest.mark.parametrize("secret", ["secret", "sec/ret", "sec#ret", "sec?ret", "[secret", ""])
def test_a_url_with_a_password_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidInputError, match="carries a password") as told:
        _check_url(f"s3a://key:{secret}@bucket/bills")
    assert not secret or secret not in str(told.value)


@pytest.mark.parametrize(
    "table",
    [
        "abfss://bills@account.dfs.core.windows.net/a",
        "s3a://bucket/a@b:c",
        "hdfs://name:9000/a@b",
        "/a:b@c",
        "a.b",
        "`a@b:c`",
    ],
)
def test_a_table_without_a_password(table: str) -> None:
    _check_url(table)
