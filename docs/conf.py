"""How Sphinx builds the site: `make docs`. The pages are the repository's own Markdown, where they lie."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

project = "txnlog"
author = "the txnlog authors"
copyright = "the txnlog authors. Apache License 2.0"
version = release = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]

# The source folder is the repository: so links between README.md, docs/ and PROTOCOL.md are the same here and in git.
root_doc = "README"
include_patterns = [
    "README.md", "PROTOCOL.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**.md",
    "benchmarks/RESULTS.md", "benchmarks/peers/results/RESULTS.md",
]  # fmt: skip
exclude_patterns = [".venv*", "build", "dist", "out", ".git", ".*_cache", "tests", "spark-warehouse"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["attrs_inline", "attrs_block", "deflist"]
myst_heading_anchors = 4
default_role = "code"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
copybutton_exclude = ".linenos, .gp"

html_theme = "furo"
html_title = f"txnlog {release}"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
templates_path = ["site/templates"]
html_additional_pages = {"index": "index.html"}
html_theme_options = {"navigation_with_keys": False}

# In the order of the handbook; a page that it does not name comes last.
_HANDBOOK = ["index", "first-day", "access", "monitoring", "doctor", "retention", "backup", "damage", "upgrade", "cost", "kubernetes", "emr", "databricks"]
_PAGES = [path.stem for path in sorted((ROOT / "docs" / "operations").glob("*.md"))]
OPERATIONS = [f"docs/operations/{name}" for name in [*_HANDBOOK, *sorted({*_PAGES} - {*_HANDBOOK})][1:]]

NAVIGATION = {
    "Guide": [
        "Overview </docs/guide/index>", "docs/guide/install", "docs/guide/first-topic", "docs/guide/how-it-works", "docs/guide/transactions",
        "docs/guide/consumers", "docs/guide/spark", "docs/guide/streams", "docs/guide/errors", "docs/guide/production",
        "docs/guide/compared",
    ],
    "Recipes": [
        "Overview </docs/recipes/index>", "docs/recipes/load-files-once", "docs/recipes/nightly-job", "docs/recipes/one-version",
        "docs/recipes/join-two-topics",
        "docs/recipes/time-travel", "docs/recipes/process-again", "docs/recipes/replace-a-topic", "docs/recipes/bad-messages", "docs/recipes/add-a-column",
        "docs/postgres", "docs/recipes/notebooks",
    ],
    "In depth": ["docs/tour", "docs/python", "docs/spark", "docs/ingest", "docs/delta"],
    "Operations": ["Overview </docs/operations/index>", "docs/stores", *OPERATIONS],
    "Reference": ["Overview </docs/reference/index>", *(f"docs/reference/{name}" for name in (
        "open", "namespace", "transaction", "producer", "consumer", "snapshot", "backup", "results", "errors", "catalog",
        "spark_ext", "testing", "command-line",
    )), "PROTOCOL"],
    "The project": [
        "docs/guarantees", "docs/testing", "docs/decisions", "Benchmarks </benchmarks/RESULTS>",
        "Kafka, Pulsar and others </benchmarks/peers/results/RESULTS>", "docs/map", "CHANGELOG", "CONTRIBUTING", "SECURITY",
    ],
}  # fmt: skip
"""The site's navigation. README.md is its first page, and has none in git."""

LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^()\s]+)\)")


def _toctree(pages: list[str], *options: str) -> str:
    return "\n".join(["", "", "```{toctree}", ":glob:", *options, "", *(page if "<" in page else f"/{page}" for page in pages), "```", ""])


ADDED = {
    root_doc: "".join(_toctree(pages, ":hidden:", f":caption: {name}") for name, pages in NAVIGATION.items()),
    "docs/decisions": _toctree(["docs/decisions/*"], ":maxdepth: 1"),
}
"""What pages have behind their own text in the site alone: it would be noise where git shows them."""


LEFT_OUT = re.compile("<!-- names: .*?<!-- end of names -->", re.DOTALL)
"""What readers of the repository have in place of docstrings, which the site shows themselves."""


def _read(app: Any, docname: str, content: list[str]) -> None:
    """Show links to files that are no pages as what they are, names in the repository; add what the site needs."""
    folder = (ROOT / docname).parent

    def link(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = target.partition("#")[0]
        if not path or "://" in target or target.startswith("mailto:"):
            return found[0]
        file = (folder / path).resolve()
        if not file.exists():
            return found[0]  # the builder warns
        name = file.relative_to(ROOT).as_posix()
        if name.removesuffix(".md") in app.env.found_docs:
            return found[0]
        return f'[{text}]{{.repository title="{name} in the repository"}}'

    lines, fence = [], ""
    for line in LEFT_OUT.sub("", content[0]).split("\n"):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        lines.append(line if fence or mark else LINK.sub(link, line))
    content[0] = "\n".join(lines) + ADDED.get(docname, "")


MADE_BY_CALLS = {
    "Consumer", "Messages", "Namespace", "Producer", "Snapshot", "Transaction", "Committed", "Catalog", "NamespaceInfo",
    "Published", "PublishedVersion", "DataFrameTransaction", "Processed", "TopicInfo", "SubscriptionInfo", "PartitionLag",
    "TransactionInfo", "EntryInfo", "BackedUp", "Restored", "Compacted", "Erased", "FileWithErasedRows", "Optimized", "Vacuumed", "Maintained", "FsckReport", "Finding",
    "DeletedRecords", "RetentionInfo", "KeptFor", "Report", "Failure", "Client",
}  # fmt: skip
"""Classes of which nobody makes an instance but the calls that return one: their constructors are no part of the surface."""


def _signature(app: Any, what: str, name: str, *_: Any) -> tuple[str, None] | None:
    return ("", None) if what == "class" and name.rpartition(".")[2] in MADE_BY_CALLS else None


def _first_line(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Napoleon takes what stands before a colon in a property's first line for its type: ours are sentences."""
    if what in {"property", "attribute", "data"}:
        lines[:0] = ["..", ""]  # an empty comment


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _first_line, priority=400)  # before Napoleon
    app.connect("autodoc-process-signature", _signature)
    app.connect("source-read", _read)
