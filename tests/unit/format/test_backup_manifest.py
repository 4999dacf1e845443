"""What names the log of a backup, and what marks a restore: their bytes stay, and neither passes for the other."""

from __future__ import annotations

import pytest

from txnlog.errors import CorruptionError
from txnlog.format.backup_manifest import (
    BACKUP_FORMAT,
    BackupLog,
    RestoreMark,
    decode_backup_log,
    decode_restore_mark,
    encode_backup,
)

LOG = BackupLog(BACKUP_FORMAT, "sales", 7, "bb")
MARK = RestoreMark(BACKUP_FORMAT, "sales", 7, "bb", 9, "cc")


def test_the_stored_bytes_are_those_of_older_versions() -> None:
    named = b'{"format":1,"namespace":"sales","coordinator":7,"beginning":"bb","version":'
    assert b'"backup":' + named + b'null,"digest":""}}\n' in encode_backup(LOG)
    assert b'"backup":' + named + b'9,"digest":"cc"}}\n' in encode_backup(MARK)


def test_each_is_read_as_what_it_is() -> None:
    assert decode_backup_log(encode_backup(LOG), "log") == LOG
    assert decode_restore_mark(encode_backup(MARK), "mark") == MARK
    with pytest.raises(CorruptionError, match="log is damaged"):
        decode_backup_log(encode_backup(MARK), "log")
    with pytest.raises(CorruptionError, match="mark is damaged"):
        decode_restore_mark(encode_backup(LOG), "mark")
