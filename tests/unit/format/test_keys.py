from __future__ import annotations

import posixpath

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.names import TopicName, parse_topic_name
from txnlog.errors import NameNotAllowed
from txnlog.format.keys import (
    BACKUP_LOG_KEY,
    FILE_NAME,
    RESTORE_KEY,
    SEGMENTS_TABLE,
    DeltaKey,
    EntryKey,
    HeartbeatKey,
    ManifestKey,
    PartKey,
    SegmentKey,
    TableFileKey,
    backup_key,
    backup_version,
    delta_checkpoint_key,
    delta_commit_key,
    delta_hint_key,
    delta_prefix,
    entry_key,
    heartbeat_key,
    kind_of,
    manifest_key,
    parse_key,
    part_key,
    relative_segment_key,
    segment_key,
    table_file_key,
    topic_folder,
)

versions = st.integers(0, 10**14 - 1)
uniques = st.binary(min_size=16, max_size=16).map(bytes.hex)
numbers = st.integers(0, MAX_NUMBER)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", fullmatch=True)


def topic_names(text: str) -> TopicName:
    try:
        return parse_topic_name(text)
    except NameNotAllowed:
        assume(False)
        raise


@pytest.mark.clause("P-1")
def test_slots_lie_in_folders_of_ten_thousand():
    assert entry_key(0) == "_log/0000000000/00000000000000000000.json"
    assert entry_key(42) == "_log/0000000000/00000000000000000042.json"
    assert entry_key(9_999) == "_log/0000000000/00000000000000009999.json"
    assert entry_key(10_000) == "_log/0000000001/00000000000000010000.json"


@pytest.mark.clause("P-1")
def test_keys_look_as_the_protocol_says():
    assert manifest_key(42) == "_log/checkpoints/00000000000000000042.json"
    assert part_key("ab" * 16) == f"_log/checkpoints/parts/{'ab' * 16}.parquet"
    assert heartbeat_key(13, 42) == "_hints/13/00000000000000000042.json"
    assert segment_key("orders~12", 7, f"{'0' * 32}.parquet") == f"orders~12/_txnlog_segment=7/{'0' * 32}.parquet"


def test_the_key_of_a_backup_leads_back_to_its_version_and_is_none_of_a_namespace():
    assert [backup_version(backup_key(version)) for version in (0, 7, 10**18)] == [0, 7, 10**18]
    assert [backup_version(key) for key in (BACKUP_LOG_KEY, entry_key(7), "_backup/7.json")] == [None] * 3
    assert [parse_key(key) for key in (backup_key(7), BACKUP_LOG_KEY, RESTORE_KEY)] == [None] * 3


@pytest.mark.clause("P-1")
@given(versions)
@example(0)
@example(10**14 - 1)
def test_the_key_of_an_entry_or_manifest_leads_back_to_its_version(version):
    assert parse_key(entry_key(version)) == EntryKey(version)
    assert parse_key(manifest_key(version)) == ManifestKey(version)


@pytest.mark.clause("P-1")
@given(numbers, versions)
def test_the_key_of_a_hint_leads_back_to_subscription_and_epoch(subscription, epoch):
    assert parse_key(heartbeat_key(subscription, epoch)) == HeartbeatKey(subscription, epoch)


@pytest.mark.clause("P-1")
@given(uniques)
def test_the_key_of_a_part_leads_back_to_it(unique):
    assert parse_key(part_key(unique)) == PartKey(unique)


@pytest.mark.clause("P-1", "P-2")
@given(names, st.booleans(), numbers, numbers, uniques)
def test_the_key_of_a_segment_leads_back_to_folder_number_and_file(text, first, topic, segment, unique):
    folder = topic_folder(topic_names(text), topic, first=first)
    file = f"{unique}.parquet"
    assert parse_key(segment_key(folder, segment, file)) == SegmentKey(folder, segment, file)


@given(names, st.booleans(), numbers, versions, uniques)
def test_the_keys_of_a_delta_table_lead_back_to_it_and_lie_in_its_folder(text, first, topic, version, unique):
    for folder in (topic_folder(topic_names(text), topic, first=first), SEGMENTS_TABLE):
        keys = {
            delta_commit_key(folder, version): DeltaKey(folder, version),
            delta_checkpoint_key(folder, version): DeltaKey(folder, version, checkpoint=True),
            delta_hint_key(folder): DeltaKey(folder),
        }
        for key, parsed in keys.items():
            assert key.startswith(delta_prefix(folder))
            assert parse_key(key) == parsed
            assert kind_of(f"sales/{key}") == "delta"
    assert parse_key(table_file_key(SEGMENTS_TABLE, unique)) == TableFileKey(unique)
    assert kind_of(f"sales/{table_file_key(SEGMENTS_TABLE, unique)}") == "delta"


@given(names, numbers, uniques)
def test_a_segment_lies_in_its_topics_folder_where_its_relative_path_says(text, segment, unique):
    folder, file = topic_names(text), f"{unique}.parquet"
    assert segment_key(folder, segment, file) == f"{folder}/{relative_segment_key(segment, file)}"


@given(st.lists(st.tuples(names, st.booleans(), numbers), unique=True, max_size=8))
def test_two_topics_never_have_the_same_folder(topics):
    ids = {number for _, _, number in topics}
    assume(len(ids) == len(topics))
    firsts = [name for name, first, _ in topics if first]
    assume(len(set(firsts)) == len(firsts))
    folders = {topic_folder(topic_names(name), number, first=first) for name, first, number in topics}
    assert len(folders) == len(topics)


@given(names, numbers, numbers, uniques)
def test_no_key_escapes_its_folder(text, topic, segment, unique):
    folder = topic_folder(topic_names(text), topic, first=False)
    for key in (entry_key(segment % 10**14), part_key(unique), segment_key(folder, segment, f"{unique}.parquet")):
        assert posixpath.normpath(key) == key
        assert not key.startswith(("/", ".."))


@given(st.text(max_size=80) | st.from_regex(r"[_a-z0-9~./=-]{1,80}"))
def test_any_key_is_ours_or_none_and_never_two(key):
    parsed = parse_key(key)
    match parsed:
        case EntryKey(version):
            assert entry_key(version) == key
        case ManifestKey(version):
            assert manifest_key(version) == key
        case PartKey(unique):
            assert part_key(unique) == key
        case HeartbeatKey(subscription, epoch):
            assert heartbeat_key(subscription, epoch) == key
        case SegmentKey(folder, segment, file):
            assert segment_key(folder, segment, file) == key
        case DeltaKey(folder, None):
            assert delta_hint_key(folder) == key
        case DeltaKey(folder, version, checkpoint):
            assert (delta_checkpoint_key if checkpoint else delta_commit_key)(folder, version) == key
        case TableFileKey(unique):
            assert table_file_key(SEGMENTS_TABLE, unique) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "_log/0000000001/00000000000000000042.json",
        "_log/0000000000/42.json",
        "_log/0000000000/00000000000000000042.json\n",
        "_log/0000000000/00000000000000000042.json/",
        "/_log/0000000000/00000000000000000042.json",
        "_log/0000000000/0000000000000000004\u0662.json",
        "_log/checkpoints/42.json",
        "_hints/13/42.json",
        "_hints/013/00000000000000000042.json",
        "_log/checkpoints/00000000000000000042.crc",
        "_log/checkpoints/parts/x.parquet",
        "orders/_delta_log/00000000000000000000.crc",
        "orders/_delta_log/0.json",
        "orders/_delta_log/00000000000000000000.checkpoint.0000000001.0000000002.parquet",
        "_log/_delta_log/00000000000000000000.json",
        "_delta/other/_delta_log/00000000000000000000.json",
        f"_delta/segments/{'0' * 31}.parquet",
        f"orders/_txnlog_segment=07/{'0' * 32}.parquet",
        f"orders/_txnlog_segment=-1/{'0' * 32}.parquet",
        f"orders/_txnlog_segment={'9' * 20}/{'0' * 32}.parquet",
        f"orders/_txnlog_segment={'9' * 5000}/{'0' * 32}.parquet",
        f"orders/_txnlog_segment=1/{'A' * 32}.parquet",
        f"orders/_txnlog_segment=1/{'0' * 31}.parquet",
        f"orders/_txnlog_segment=1/{'0' * 32}.parquet.crc",
        f"orders/_txnlog_segment=1/sub/{'0' * 32}.parquet",
        f"../orders/_txnlog_segment=1/{'0' * 32}.parquet",
        f"a..b/_txnlog_segment=1/{'0' * 32}.parquet",
        f"a./_txnlog_segment=1/{'0' * 32}.parquet",
        f"_log/_txnlog_segment=1/{'0' * 32}.parquet",
        f"orders~/_txnlog_segment=1/{'0' * 32}.parquet",
        f"orders~07/_txnlog_segment=1/{'0' * 32}.parquet",
        f"orders~7~8/_txnlog_segment=1/{'0' * 32}.parquet",
    ],
)
def test_a_strangers_key_is_none_of_ours(key):
    assert parse_key(key) is None


@pytest.mark.clause("P-2")
@pytest.mark.parametrize(
    "name", ["../../x.parquet", "x.parquet", "0" * 32, f"{'0' * 32}.PARQUET", f"{'0' * 32}.parquet\n"]
)
def test_a_file_name_is_32_digits_and_nothing_else(name):
    assert FILE_NAME.fullmatch(name) is None
