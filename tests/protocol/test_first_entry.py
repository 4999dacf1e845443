"""Entry 0 of a namespace's log follows from the entry that registers it: the document's example, byte by byte."""

from __future__ import annotations

import pytest

from tests.protocol.document import json_blocks
from txnlog.format.actions import Header
from txnlog.format.codec import digest_of
from txnlog.log.root_log import namespace_entry


@pytest.mark.clause("P-230")
def test_the_first_entry_of_the_document_is_the_one_that_is_written() -> None:
    header = Header(12, "6f1c0d5e2b7a49c3a1d8e4f09b3c7a52", 1_767_225_600_000)
    written = namespace_entry("sales", 7, header)
    examples = json_blocks()
    assert written.decode() in examples
    (registered,) = [text for text in examples if text.startswith('{"action":"register"')]
    assert digest_of(written) in registered
