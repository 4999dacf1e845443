"""What a signal's handler raises in the middle of a conversion is no answer about the data."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from tests.interrupts import hearing_signal
from tests.unit.segment_files import TABLE, read_back
from txnlog.common.signal_errors import raise_of_handler
from txnlog.data import segment_columns
from txnlog.data.row_buffer import conform
from txnlog.data.segment_file import encode
from txnlog.errors import SchemaMismatch

SCHEMA = pa.schema([("id", pa.int64())])


class TimeLimit(TimeoutError):
    """An OSError, as are those of Arrow for bytes that do not decode."""


def limit(_number: int, _frame: FrameType | None) -> None:
    raise TimeLimit


class Limit:
    """The same, in other forms."""

    def __call__(self, *_of_signal: object) -> None:
        raise TimeLimit

    def method(self, *_of_signal: object) -> None:
        raise TimeLimit


def once(number: int, _frame: FrameType | None) -> None:
    """For one signal: the next one is for whom it was for before."""
    signal.signal(number, signal.SIG_IGN)
    raise TimeLimit


class Slow:
    """Data that is converted when the time is over."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("handler", [limit, Limit(), Limit().method, partial(partial(limit)), once])
def test_a_time_limit_while_a_data_frame_is_converted_reaches_the_caller(handler: Callable[..., None]) -> None:
    with hearing_signal(handler), pytest.raises(TimeLimit):
        conform(Slow(), SCHEMA, topic="t")


def test_a_time_limit_while_a_segment_is_decoded_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    segment = encode(TABLE)
    monkeypatch.setattr(segment_columns, "_own_types", lambda _buffer: signal.raise_signal(signal.SIGUSR1))
    with hearing_signal(limit), pytest.raises(TimeLimit):
        read_back(segment.data, segment.checksum, TABLE)


def test_an_error_of_a_data_frame_is_a_refusal_whatever_handlers_there_are() -> None:
    class Broken:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            raise TimeLimit

    with hearing_signal(limit), pytest.raises(SchemaMismatch):
        conform(Broken(), SCHEMA, topic="t")


def test_an_error_that_was_never_raised_is_no_handlers() -> None:
    with hearing_signal(limit):
        raise_of_handler(TimeLimit())
