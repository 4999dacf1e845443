"""The public surface, the reference and what editors see are one: names, members, stubs, ``help()`` and examples."""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import types

import pytest

import catalog
import spark_ext
import txnlog
from tests.packaging.surface import ATTRIBUTES, CALLS
from tests.pages import ROOT, page
from tools import reference
from txnlog import doctor_report, errors, results, testing

MODULES = {"txnlog": txnlog, "catalog": catalog, "spark_ext": spark_ext, "errors": errors, "testing": testing}
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "reference").glob("*.md"))

ENTRY = re.compile(
    r"```\{eval-rst\}\n\.\. py:currentmodule:: (?P<module>[\w.]+)\n\n"
    r"\.\. auto\w+:: (?P<name>[\w.]+)\n(?:   [^\n]*\n)*```\n"
    r"(?P<rest>.*?)(?=```\{eval-rst\}|\Z)",
    re.DOTALL,
)


def entries():
    """By module and name of an entry of the reference what stands below it, up to the next entry."""
    return {(found["module"], found["name"]): found["rest"] for name in PAGES for found in ENTRY.finditer(page(name))}


def public():
    """Every public name, as (module, name): what ``__all__`` has, and the members of the classes in it."""
    names = {(module.__name__, name) for module in MODULES.values() for name in module.__all__}
    names = {
        item for item in names if not isinstance(getattr(importlib.import_module(item[0]), item[1]), types.ModuleType)
    }
    members = {(owner, name) for owner, name in CALLS if inspect.isclass(owner)}
    members |= {
        (owner, name)
        for owner, text in ATTRIBUTES.items()
        for name in text.split()
        if isinstance(_member(owner, name), property)
    }
    homes = {
        owner: package
        for package in ("txnlog", "catalog", "spark_ext")
        for owner in (getattr(MODULES[package], name) for name in MODULES[package].__all__)
        if inspect.isclass(owner)
    }
    return names | {(homes.get(owner, owner.__module__), f"{owner.__name__}.{name}") for owner, name in members}


def _member(owner, name):
    return inspect.getattr_static(owner, name, None)


NAMES = sorted(public())
HOMES = {
    ("txnlog.testing", "ACTOR_KINDS"): ("txnlog.testing.actors", "ACTOR_KINDS"),
    ("catalog", "ForeignDeltaLog"): ("txnlog.errors", "ForeignDeltaLog"),
}
"""Entries that stand under another module, whose documentation Sphinx finds there only."""


def test_there_is_a_surface_to_compare():
    assert len(NAMES) > 130
    assert {("txnlog", "Namespace.create_topic"), ("spark_ext", "process"), ("txnlog.errors", "ReadOnly")} <= set(NAMES)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_name_has_an_entry_with_an_example_that_uses_it(module, name):
    rest = entries().get(HOMES.get((module, name), (module, name)))
    assert rest is not None, f"no entry of {module}.{name} in docs/reference"
    code = "".join(re.findall(r"```python\n(.*?)```", rest, re.DOTALL))
    assert code, f"no example below {module}.{name}"
    shown = "".join(re.findall(r"```(?:python|text)\n(.*?)```", rest, re.DOTALL))
    if not (inspect.isclass(getattr(importlib.import_module(module), name, None)) and module in {"txnlog", "catalog"}):
        last = name.rpartition(".")[2]
        assert re.search(rf"\b{last}\b", shown), f"the example of {module}.{name} does not show it"


@pytest.mark.parametrize("module", MODULES.values(), ids=list(MODULES))
def test_help_and_all_and_dir_agree(module):
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(module.__all__) <= set(dir(module))
    undocumented = [name for name in module.__all__ if not inspect.getdoc(getattr(module, name))]
    assert undocumented == []


@pytest.mark.parametrize("package", ["txnlog", "spark_ext"])
def test_what_type_checkers_see_of_a_lazy_package_is_what_it_gives(package):
    """The names below ``TYPE_CHECKING`` stand for stubs: the packages ship ``py.typed`` and no ``.pyi``."""
    module = MODULES[package]
    source = (ROOT / package / "__init__.py").read_text(encoding="utf-8")
    seen = set(re.findall(r"^    from [\w.]+ import (?:\w+ as )?(\w+(?:, \w+)*)", source, re.MULTILINE))
    assert {name for names in seen for name in names.split(", ")} == set(module.__all__) == set(module._HOMES)


@pytest.mark.parametrize("package", ["txnlog", "catalog", "spark_ext"])
def test_a_package_is_typed_by_its_source(package):
    assert (ROOT / package / "py.typed").is_file()
    assert list((ROOT / package).rglob("*.pyi")) == []


def test_the_reference_names_nothing_that_is_not_public():
    returned = {("txnlog.results", name) for name in results.__all__}
    returned |= {("txnlog.doctor_report", name) for name in doctor_report.__all__}
    members = {(owner.__module__, f"{owner.__name__}.{name}") for owner, name in CALLS if inspect.isclass(owner)}
    members |= {("txnlog", f"TxnId.{name}") for name in ("parse", "from_bytes", "to_bytes")}
    known = set(NAMES) | returned | members | set(HOMES.values())
    assert sorted(item for item in entries() if item not in known) == []


def test_helpers_of_the_errors_are_no_part_of_the_surface():
    assert [name for name in errors.__all__ if not name[0].isupper()] == []


@pytest.mark.parametrize("name", [name for name in PAGES if "{eval-rst}" in page(name)])
def test_a_page_has_a_table_of_its_names_for_readers_of_the_repository(name):
    text = page(name)
    assert reference.page(ROOT / name) == text, "run: python -m tools.reference"
    table = text.partition(reference.NAMES[0])[2].partition(reference.NAMES[1])[0]
    rows = dict(re.findall(r"^\| \[`([\w.]+)[^`]*`\]\([^)]+\) \| (.*) \|$", table, re.MULTILINE))
    assert {found["name"] for found in ENTRY.finditer(text)} <= set(rows)
    assert [name for name, sentence in rows.items() if not re.match(r"\S.*[\w)`\"}].?$", sentence)] == []


def test_the_site_has_the_docstrings_and_not_the_table_of_them():
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    found = [conf["LEFT_OUT"].sub("", page(name)) for name in PAGES]
    assert [text for text in found if reference.NAMES[0] in text or "the name leads to the file" in text] == []
    assert sum("{eval-rst}" in text for text in found) > 10
