"""Names and parameters that users' programs rely on: what is here may be added to, never renamed or taken away."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pydoc
import re
from pathlib import Path

import pytest

import catalog
import txnlog
from catalog import Catalog
from tests.packaging.surface import ATTRIBUTES, CALLS
from txnlog import errors, results
from txnlog.api.consumer import Consumer
from txnlog.api.namespace import Namespace
from txnlog.api.producer import Producer
from txnlog.api.snapshot import Snapshot
from txnlog.api.transaction import Transaction

ROOT = Path(__file__).parents[2]

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
    "metadata": "spark path table limit storage_options",
    "transaction": "spark path producer txn_app_id txn_version decided_by storage_options",
    "write_delta": "df table txn options",
    "write_stream": "df path checkpoint handler acknowledge trigger query_name txn_app_id storage_options",
    "ingest_kafka": "spark path subscribe options topic topic_by columns where name trigger query_name storage_options",
    "end_ingestion": "spark path name from_beginning storage_options",
    "process": "spark path topics subscription handler max_rows trigger on_error max_attempts include_metadata native "
    "query_name start stop progress storage_options",
    "monitor": "spark storage_options warn_after",
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


def public_classes() -> list[type]:
    """The classes that a package's ``__all__`` has, and those that public calls return and raise."""
    names = (vars(module)[name] for module in (catalog, errors, results) for name in module.__all__)
    found = [*names, *(getattr(txnlog, name) for name in txnlog.__all__), *ATTRIBUTES]
    return sorted({item for item in found if inspect.isclass(item)}, key=lambda item: (item.__module__, item.__name__))


def public_names(owner: type) -> set[str]:
    """What a class and its own methods put on its instances, without a leading underscore and what Python has."""
    assigned = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(owner)))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    of_python = {name for base in owner.__mro__ if base.__module__ in {"builtins", "enum"} for name in vars(base)}
    fields = set(getattr(owner, "__dataclass_fields__", ()))
    return {name for name in assigned | fields | set(dir(owner)) if not name.startswith("_")} - of_python


def documented_names(owner: type) -> set[str]:
    """The members of a class with an entry in the reference, and what its docstring lists as attributes."""
    entries = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    found = set(re.findall(rf"^\.\. auto\w+:: {owner.__name__}\.(\w+)$", entries, re.MULTILINE))
    for base in owner.__mro__:
        listed = re.search(r"^Attributes:\n((?:    .*\n?|\n)+)", inspect.getdoc(base) or "", re.MULTILINE)
        for names in re.findall(r"^    (\w+(?:, \w+)*): ", listed[1] if listed else "", re.MULTILINE):
            found |= set(names.split(", "))
    return found


@pytest.mark.parametrize("owner", public_classes(), ids=lambda item: item.__name__)
def test_what_tab_completion_shows_of_a_class_is_documented(owner):
    assert sorted(public_names(owner) - documented_names(owner)) == []


@pytest.mark.parametrize("owner", public_classes(), ids=lambda item: item.__name__)
def test_what_help_shows_of_a_class_is_documented(owner):
    shown = {item.name for item in inspect.classify_class_attrs(owner) if item.defining_class.__module__ != "builtins"}
    visible = {name for name in shown if pydoc.visiblename(name, obj=owner) and not name.startswith("_")}
    assert sorted(visible & public_names(owner) - documented_names(owner)) == []
    text = pydoc.plain(pydoc.render_doc(owner))
    assert [name for name in public_names(owner) - documented_names(owner) if re.search(rf"\b{name}\(", text)] == []


@pytest.mark.parametrize("owner", ATTRIBUTES, ids=lambda item: item.__name__)
def test_the_surface_names_all_that_is_documented_of_a_class(owner):
    surface = {name for known, name in CALLS if known is owner} | set(ATTRIBUTES[owner].split())
    assert public_names(owner) == {name for name in surface if not name.startswith("_")}


def test_an_internal_name_on_a_public_class_is_found(monkeypatch):
    monkeypatch.setattr(Namespace, "connection", property(lambda ns: ns._connection), raising=False)
    assert public_names(Namespace) - documented_names(Namespace) == {"connection"}


def test_other_packages_use_no_private_name_of_a_handle():
    """They take what ``txnlog.api.internals`` has."""
    private = "|".join(sorted(name for name in vars(Transaction) if re.match(r"_[a-z]", name)))
    found = [
        (path.name, line.strip())
        for package in ("catalog", "spark_ext")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(rf"\b(?:ns|namespace)\._[a-z]|\b(?:inner|_txn)\.(?:{private})\b", line)
    ]
    assert found == []


@pytest.mark.parametrize("name", SPARK)
def test_the_spark_functions_have_their_parameters(name):
    function = getattr(importlib.import_module("spark_ext"), name)
    assert _lacking(function, SPARK[name]) == []


def tells_errors(call: object) -> bool:
    """Whether the docstring of a call says what it raises, by the class, or which other call does."""
    text = inspect.getdoc(call) or ""
    known = "|".join(errors.__all__)
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


CAUGHT = {
    "BadValueError": "becomes InvalidInputError, with the name of the option",
    "Cancelled": "thrown into a coroutine whose caller has gone",
    "Crashed": "the end of a simulated process",
    "DamagedCommitError": "becomes CorruptionError, or is repaired",
    "DamagedError": "becomes CorruptionError, with the name of the object",
    "Gone": "a merge that others were ahead of, which is planned again",
    "OutOfDate": "becomes RetriableError, or the commit is prepared again",
    "LeftError": "an object that a repair leaves as it is, which its answer says",
    "MalformedProposal": "what somebody who collects passes over, and counts",
    "MalformedRows": "becomes MalformedProposal",
    "NoAnswerError": "of a reader under test; the kit counts it",
    "ObjectNotFound": "the answer of a store, which the log and the readers take as one",
    "PartitionNotThereError": "becomes CorruptionError of a Delta table",
    "QueryStopped": "what ends a query of Spark that was stopped, in its own thread",
    "RefusedError": "the command line's, which ends the process with it",
    "RepeatBatchError": "the batch is done again",
    "SlotOccupied": "a CorruptionError, which is what callers see of it",
    "SpecialFileError": "becomes StoreError",
    "SymbolicLinkError": "becomes StoreError",
    "Unfit": "becomes SchemaMismatch, with the name of the topic",
    "UnusableCheckpoint": "a CorruptionError, which is what callers see of it",
}
"""Exceptions outside of ``txnlog.errors`` that no caller has to know, with what becomes of them."""


def test_every_exception_of_the_packages_is_in_the_errors_or_never_leaves_them():
    classes = [
        (node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases})
        for package in ("txnlog", "catalog", "spark_ext")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != ROOT / "txnlog" / "errors.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    raised = {
        name for name, item in vars(builtins).items() if isinstance(item, type) and issubclass(item, BaseException)
    }
    raised |= set(errors.__all__) - {"Durable"}
    found: set[str] = set()
    while more := {name for name, bases in classes if bases & (raised | found)} - found:
        found |= more
    assert {name for name in found if not name.startswith("_")} == set(CAUGHT)


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
    modules = sorted((ROOT / "spark_ext").rglob("*.py"))
    assert len(modules) > 20
    assert [module.name for module in modules if "follower.state" in module.read_text(encoding="utf-8")] == []
