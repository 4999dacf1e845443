"""Docstrings, errors, log lines, pages and names use the field's words, none that only this project's authors know.

Read are the docstrings of all that is public, every text of the code with a space (errors, log lines, help, findings of
the checker), and the pages; the names in the code, and those of tests, as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WORDS = {
    r"doubt(?:s|ed|ful)?": "outcome unknown",
    r"tell(?:s|ing)?|told": "reply, report, raise, return; distinguish",
    r"taken(?! (?:over|effect)\b)|held": "claimed, leased, acknowledged, reserved; occupied",
    r"(?:transactions?|consumers?|subscriptions?) (?:that |which )?holds?": "claims, has leased",
    r"(?:a|an|the|its|their|no|cumulative|individual) holds?(?! up\b)": "claim",
    r"(?:giv(?:e|es|en|ing)|gave) (?:\w+ )?back": "release, redeliver; return",
    r"(?:giv(?:e|es|en|ing)|gave) (?:\w+ )?up": "stop, abandon, drop",
    r"hand(?:s|ing)? (?:\w+ )?(?:out|over)|handed": "deliver, pass",
    r"stock(?:s|ed)?": "prefetched; pool",
    r"intakes?": "delivery",
    r"bury|buries|buried|burying": "move to the dead-letter topic",
    r"(?:stands?|standing|stood) against": "conflict",
    r"mend(?:s|ed|ing)?": "fix",
    r"beside": "next to, with, at the same time as",
    r"rest(?:s|ed|ing)? on": "depend on",
    r"(?:has|have|had) of": "what it is, by its name",
    r"(?<![./\[])fold(?:s|ed|ing)?(?![./\]])": "materialized state; apply",
}
"""What is not said, and what is said instead. ``Hold`` is a name of the format (PROTOCOL.md), and stays one in code."""

FORBIDDEN = re.compile(rf"(?<![\w-])(?:{'|'.join(WORDS)})(?!\w)", re.IGNORECASE)
NAMED = re.compile(
    r"(?:^|_)(?:in_doubt|doubt|doubted|tell|told|handed|intake|stock|bury|mend|beside|give_up|given_up)(?=_|$)"
)
CODE = re.compile(r"``?[\w.]+``?")
"""A name in a text: of code or of a field of the format."""


def forbidden(text: str) -> list[str]:
    """What is said in a text that is not to be said, each with a bit of what is around it."""
    text = " ".join(CODE.sub("``", text).split())
    return [text[max(0, found.start() - 40) : found.end() + 40] for found in FORBIDDEN.finditer(text)]


def texts_of(tree: ast.Module) -> list[str]:
    """The docstrings of what is public, and every other text with a space in it."""
    others: set[ast.AST] = set()
    texts: list[str] = []
    for node, is_public in _walked(tree, public=True):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "..." for part in node.values]
            texts.append("".join(str(part) for part in parts))
            others.update(node.values)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not is_public:
            first = node.body[0]
            if isinstance(first, ast.Expr):
                others.add(first.value)
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in others)
    texts.extend(node.value for node in constants if isinstance(node.value, str))
    return [text for text in texts if " " in text]


def _walked(node: ast.AST, *, public: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it is, or is inside of, what is public."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        public = public and (not node.name.startswith("_") or node.name.endswith("__"))
    yield node, public
    for child in ast.iter_child_nodes(node):
        yield from _walked(child, public=public)


def names_of(tree: ast.Module) -> set[str]:
    """The names that the code gives, in snake case: of classes, functions, arguments, attributes and variables."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in names}


def names_of_tests(text: str) -> set[str]:
    """The names of the tests in a module. By its text: to parse four hundred modules takes seconds."""
    return set(re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE))


def modules(package: str) -> dict[str, ast.Module]:
    paths = sorted((ROOT / package).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def pages() -> dict[str, str]:
    paths = [
        ROOT / "README.md",
        ROOT / "PROTOCOL.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}
    return {name: text for name, text in texts.items() if not name.startswith("docs/decisions/")}


def judge(found: dict[str, list[str]]) -> None:
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("package", ["txnlog", "catalog", "spark_ext"])
def test_docstrings_errors_and_log_lines_use_the_words_of_the_field(package: str) -> None:
    found = {
        name: [word for text in texts_of(tree) for word in forbidden(text)] for name, tree in modules(package).items()
    }
    assert len(found) >= 15
    judge(found)


def test_pages_use_the_words_of_the_field() -> None:
    found = {name: forbidden(text) for name, text in pages().items()}
    assert len(found) >= 25
    judge(found)


@pytest.mark.parametrize("package", ["txnlog", "catalog", "spark_ext"])
def test_names_use_the_words_of_the_field(package: str) -> None:
    found = {name: sorted(filter(NAMED.search, names_of(tree))) for name, tree in modules(package).items()}
    judge(found)


def test_names_of_tests_use_the_words_of_the_field() -> None:
    texts = {path.as_posix(): path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    named = {name: names_of_tests(text) for name, text in texts.items()}
    assert len(named) >= 300
    assert sum(map(len, named.values())) >= 3_000
    judge({name: sorted(filter(NAMED.search, names)) for name, names in named.items()})


@pytest.mark.parametrize(
    "text",
    [
        "the commit is in doubt",
        "it is told so",
        "Tells people",
        "the slot is taken",
        "messages that are held",
        "the transaction holds them",
        "ends its hold",
        "gives it back",
        "what was given\nup",
        "Handed over at once",
        "hands messages out",
        "a stock of numbers",
        "the intake of a consumer",
        "it is buried",
        "what stands against it",
        "mend the store",
        "objects beside the log",
        "what rests on it",
        "what a consumer has of a topic",
        "the fold of the log",
        "whoever folded it",
    ],
)
def test_a_word_of_ours_is_found(text: str) -> None:
    assert forbidden(text)


@pytest.mark.parametrize(
    "text",
    [
        "the file holds rows",
        "a lock that holds up nobody",
        "``txnlog.fold.apply`` and txnlog/fold/apply.py",
        "the field ``held``, and `told`",
        "by hand, at hand, besides",
        "the rest of it",
        "unfold, manifold, threefold",
        "take, takes and took",
        "another consumer has taken over",
        "the call may have taken effect",
        "[fold](../txnlog/fold)",
    ],
)
def test_an_everyday_word_is_none(text: str) -> None:
    assert forbidden(text) == []


def test_every_kind_of_text_is_read() -> None:
    source = '''
"""The module tells."""

class Public:
    """A class tells."""

    def call(self):
        """A method tells."""
        raise ValueError(f"{self} was told {self} twice", advice="an advice tells")

    def _own(self):
        """A private one tells."""

VALUE = 1
"""A constant tells."""
'''
    assert len([word for text in texts_of(ast.parse(source)) for word in forbidden(text)]) == 6
    assert names_of(ast.parse("class InDoubt:\n    def told(self, tell): self.given_up = stock = 1")) == {
        "in_doubt",
        "told",
        "self",
        "tell",
        "given_up",
        "stock",
    }
