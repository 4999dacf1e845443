"""What Spark tells of an error, taken apart."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from spark_ext.support import spark_errors
from txnlog.errors import SchemaMismatch, StoreError, TopicNotFound, TxnLogError

MARK = "(of the job 7)"
TASK = "Traceback (most recent call last):\n  File x, line 1, in _write_partition\n"


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (f"{TASK}txnlog.errors.SchemaMismatch: a null\n{MARK}\n", SchemaMismatch),
        (f"{TASK}txnlog.errors.SchemaMismatch: a null\n\n\tat org.apache.spark\n", None),
        (f"{TASK}ValueError: a row says\ntxnlog.errors.ProducerFenced: stop\n\tat org.apache.spark\n", None),
        (f"{TASK}txnlog.errors.SchemaMismatch: a null\n{MARK}\ntxnlog.errors.ProducerFenced: stop\n", SchemaMismatch),
    ],
)
def test_an_error_is_ours_only_where_our_own_task_raised_it(text: str, ours: type | None) -> None:
    found = spark_errors.typed(PythonException(text), MARK)
    assert (None if found is None else type(found)) is ours


@pytest.mark.parametrize(
    "error",
    [
        TopicNotFound("no topic 'x'", advice="there are: a (and b)"),
        SchemaMismatch("a null (in id)"),
        StoreError("no answer"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_a_task_is_reported_as_it_was(error: TxnLogError) -> None:
    found = spark_errors.typed(PythonException(f"{TASK}txnlog.errors.{type(error).__name__}: {error}\n{MARK}\n"), MARK)
    assert (type(found), str(found)) == (type(error), str(error))


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("ModuleNotFoundError: No module named 'spark_ext'\n SQLSTATE: 38000\n\tat org.apache.spark\n", "spark_ext"),
        ("ModuleNotFoundError: No module named 'txnlog.errors'\n", "txnlog.errors"),
        ("ModuleNotFoundError: No module named 'txnlogs'; 'txnlog' is not there\n", None),
        ("ModuleNotFoundError: No module named 'pandas'\n", None),
        ("ModuleNotFoundError: No module named 'txnlog_helpers'\n", None),
        ("ModuleNotFoundError: No module named 'spark_extras.rows'\n", None),
    ],
)
def test_tasks_that_cannot_import_us_name_the_way_out(text: str, module: str | None) -> None:
    found = spark_errors.without_txnlog(PythonException(f"{TASK}{text}"))
    if module is None:
        assert found is None
    else:
        assert found is not None
        assert found.message.endswith(f" {module}")
        assert "PYSPARK_PYTHON" in str(found)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no five\nnor six"), "ValueError: no five"),
        (ValueError(), "ValueError: "),
        (TopicNotFound("no topic 'ordres'", advice="did you mean 'orders'?"), "TopicNotFound: no topic 'ordres'"),
        (
            RuntimeError(
                "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
                '  File "a.py", line 3, in f\n    f=lambda x:{}[x]\n      ~~^^^\nKeyError: 0\nand more'
            ),
            "RuntimeError: KeyError: 0",
        ),
        (
            RuntimeError(
                "Traceback (most recent call last):\n  File 'a.py'\nKeyError: 0\n\nDuring handling of the above "
                "exception, another exception occurred:\n\n"
                "Traceback (most recent call last):\n  File 'a.py'\nOSError: gone"
            ),
            "RuntimeError: OSError: gone",
        ),
        (RuntimeError("broken\nTraceback (most recent call last):\n  cut"), "RuntimeError: broken"),
    ],
)
def test_a_line_of_an_error_is_the_one_that_says_what_it_was(error: Exception, line: str) -> None:
    assert spark_errors.in_a_line(error) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[PATH_NOT_FOUND] Path does not exist: /no.\nat line 2", "[PATH_NOT_FOUND] Path does not exist: /no."),
        (
            "An error occurred while calling o9.load.\n: java.io.IOException: gone\n\tat a.b",
            "java.io.IOException: gone",
        ),
        ("An error occurred while calling o9.load", "An error occurred while calling o9.load"),
        ("", ""),
        ("x" * 301, "x" * 300),
    ],
)
def test_the_first_line_says_what_went_wrong_not_what_was_called(text: str, line: str) -> None:
    assert spark_errors.first_line(RuntimeError(text)) == line


@pytest.mark.parametrize(
    ("text", "raised"),
    [
        ("[PYTHON_DATA_SOURCE_ERROR] it failed:\ntxnlog.errors.StoreError: no answer\n\tat a.b", StoreError),
        ("\n[PYTHON_DATA_SOURCE_ERROR] it failed:\ntxnlog.errors.StoreError: no answer\n\tat a.b", StoreError),
        ("it failed:\ntxnlog.errors.Nothing: no answer", None),
        ("it failed:\ntxnlog.errors.Durable: no error", None),
        (f"it failed:\n{TASK}txnlog.errors.StoreError: no answer", None),
    ],
)
def test_only_what_the_format_raised_is_reported_without_a_traceback(text: str, raised: type | None) -> None:
    assert spark_errors.raised_by_format(PythonException(text)) is raised
    assert spark_errors.raised_by_format(RuntimeError(text)) is None
