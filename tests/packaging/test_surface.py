"""Names and parameters that users' programs rely on: what is here may be added to, never renamed or taken away."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import catalog
from catalog import Catalog
from spark_ext.processing_run import Processed
from spark_ext.transactions import DataFrameTransaction
from tests.packaging.surface import ATTRIBUTES, CALLS
from txnlog import errors
from txnlog.consumer import Consumer
from txnlog.namespace import Namespace
from txnlog.producer import Producer
from txnlog.snapshot import Snapshot
from txnlog.transaction import Transaction

ROOT = Path(__file__).parents[2]

INTERNALS = {
    Namespace: "connection",
    Transaction: "acknowledge_ranges adopt_segments check_open discard leave leave_in_doubt refuse_prepare set_stream",
    Consumer: "check_delivered check_usable connection give_back",
    DataFrameTransaction: "before_commit decide_by identity work_elsewhere",
    Processed: "",
    Producer: "",
    Snapshot: "",
    Catalog: "after_fork",
}
"""What their public names hold beside the surface: for other modules, and free to change."""

SILENT = {
    (Namespace, "topics"),
    (Namespace, "close"),
    (Producer, "close"),
    (Consumer, "close"),
    (catalog, "open"),
    (Catalog, "close"),
    (Snapshot, "topics"),
}
"""Calls with no error of their own, but for a root that means nothing: what any call may meet they need not say."""

SPARK = {
    "read_topic": "spark path version isolation_level include_metadata timestamp offsets storage_options",
    "visible": "spark path version timestamp offsets storage_options",
    "transaction": "spark path producer txn_app_id txn_version decided_by storage_options",
    "write_delta": "df table txn options",
    "write_stream": "df path checkpoint handler acknowledge trigger query_name txn_app_id storage_options",
    "process": "spark path topics subscription handler max_rows trigger on_error max_attempts include_metadata native "
    "query_name start stop progress storage_options",
    "use": "namespace mode storage_options",
}

GROUPS = "RetriableError AbortableError FencedError InvalidInputError StoreError CorruptionError"
LEAVES = (
    "ProducerFenced ConsumerFenced ConsumerBusy CoordinatorFenced TransactionTimedOut TransactionAborted "
    "InvalidTransactionState TransactionNotFound TransactionConflict OutOfOrderSequence TransactionHasFailedOperation "
    "OutcomeUnknown UnsupportedFeature UnsafeStore ClockSkew ReadOnly SchemaMismatch TopicNotFound TopicExists "
    "NameNotAllowed LimitExceeded"
)


def _lacking(function: object, names: str) -> list[str]:
    known = inspect.signature(function).parameters  # type: ignore[arg-type]  # whatever is there
    return [name for name in names.split() if name not in known]


@pytest.mark.parametrize(("owner", "name"), CALLS, ids=lambda item: getattr(item, "__name__", item))
def test_calls_have_their_parameters(owner, name):
    assert _lacking(getattr(owner, name), CALLS[owner, name]) == []


@pytest.mark.parametrize("owner", ATTRIBUTES, ids=lambda item: item.__name__)
def test_values_have_their_attributes(owner):
    known = {*dir(owner), *getattr(owner, "__dataclass_fields__", ())}
    known |= set(re.findall(r"self\.(\w+)\b", inspect.getsource(owner)))
    assert set(ATTRIBUTES[owner].split()) - known == set()


def public_names(owner: type) -> set[str]:
    """What a class and its own methods put on its instances, without what begins with an underscore."""
    assigned = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(owner)))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    return {name for name in assigned | set(dir(owner)) if not name.startswith("_")}


@pytest.mark.parametrize("owner", INTERNALS, ids=lambda item: item.__name__)
def test_what_is_public_is_the_surface_or_a_named_internal(owner):
    surface = {name for known, name in CALLS if known is owner} | set(ATTRIBUTES[owner].split())
    assert public_names(owner) == surface | set(INTERNALS[owner].split())
    assert not surface & set(INTERNALS[owner].split())


@pytest.mark.parametrize("name", SPARK)
def test_the_spark_functions_have_their_parameters(name):
    function = getattr(importlib.import_module("spark_ext"), name)
    assert _lacking(function, SPARK[name]) == []


def tells_errors(call: object) -> bool:
    """Whether the docstring of a call says what it raises, by the class, or which other call does."""
    text = inspect.getdoc(call) or ""
    known = "|".join(errors.__all__ + catalog.errors.__all__)
    return re.search(rf"\bRaises:?\s[^.]*?\b({known})\b|\bRaises what\b|\b[Ss]ee :(meth|func):`", text) is not None


@pytest.mark.parametrize(("owner", "name"), CALLS, ids=lambda item: getattr(item, "__name__", item))
def test_calls_say_what_they_raise(owner, name):
    assert tells_errors(getattr(owner, name)) != ((owner, name) in SILENT)


@pytest.mark.parametrize("name", SPARK)
def test_the_spark_functions_say_what_they_raise(name):
    assert tells_errors(getattr(importlib.import_module("spark_ext"), name))


def test_every_error_has_one_group_and_one_base():
    groups = [getattr(errors, name) for name in GROUPS.split()]
    for name in LEAVES.split():
        leaf = getattr(errors, name)
        assert issubclass(leaf, errors.TxnLogError)
        assert sum(issubclass(leaf, group) for group in groups) == 1, name


def advised_calls() -> set[tuple[str, str]]:
    """The calls of a namespace that texts of the packages name, with where they stand."""
    found: set[tuple[str, str]] = set()
    for package in ("txnlog", "catalog", "spark_ext"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found |= {(path.name, name) for name in re.findall(r"\bns\.(\w+)\(", node.value)}
    return found


def test_advice_names_only_what_exists():
    calls = advised_calls()
    assert len(calls) > 5
    assert [(file, name) for file, name in sorted(calls) if not hasattr(Namespace, name)] == []


def test_spark_asks_the_connection_and_reads_no_table_of_the_fold_itself():
    modules = sorted((ROOT / "spark_ext").glob("*.py"))
    assert len(modules) > 20
    assert [module.name for module in modules if "follower.state" in module.read_text(encoding="utf-8")] == []
