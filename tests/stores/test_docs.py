"""The bucket policy in docs/stores.md covers the keys that it is about."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest

from tests.pages import blocks, page
from txnlog.format import keys


def statements() -> dict[str, dict[str, Any]]:
    (text,) = blocks(page("docs/stores.md"), "json")
    return {statement["Sid"]: statement for statement in json.loads(text)["Statement"]}


@pytest.mark.parametrize("folder", ["sales", keys.CATALOG_FOLDER])
@pytest.mark.parametrize("sid", ["EntriesOnlyIfAbsent", "EntriesStay"])
def test_the_policy_covers_entries_and_manifests_and_nothing_that_is_put_or_vacuumed(sid: str, folder: str) -> None:
    pattern = statements()[sid]["Resource"].removeprefix("arn:aws:s3:::")

    def covered(key: str) -> bool:
        return fnmatchcase(f"BUCKET/ROOT/{folder}/{key}", pattern)

    assert covered(keys.entry_key(0))
    assert covered(keys.entry_key(123_456_789))
    assert covered(keys.manifest_key(1_000))
    assert not covered(keys.part_key("0" * 32))
    assert not covered(keys.segment_key("orders", 7, "0" * 32 + ".parquet"))
    assert not covered("orders/_delta_log/00000000000000000001.json")


def test_the_policy_denies_to_everybody_and_exempts_the_parts_of_multipart_uploads() -> None:
    found = statements()
    assert {(statement["Effect"], statement["Principal"]) for statement in found.values()} == {("Deny", "*")}
    assert found["EntriesOnlyIfAbsent"]["Condition"] == {
        "Null": {"s3:if-none-match": "true"},
        "Bool": {"s3:ObjectCreationOperation": "true"},
    }
    assert set(found["EntriesStay"]["Action"]) == {"s3:DeleteObject", "s3:DeleteObjectVersion"}
