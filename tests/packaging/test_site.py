"""The check of the built site finds what it is for; and the pages that the site has are those of the repository."""

from __future__ import annotations

import pytest

from tests.pages import ROOT
from tools import docs

WHOLE = (
    '<h1 id="top">x</h1><a href="b.html#there">b</a><a href="#top">up</a><img src="a.svg"><a href="https://x.org">x</a>'
)


def found(tmp_path, text):
    (tmp_path / "a.html").write_text(text, encoding="utf-8")
    (tmp_path / "b.html").write_text('<p id="there">b</p>', encoding="utf-8")
    (tmp_path / "a.svg").write_text("<svg/>", encoding="utf-8")
    return list(docs.problems(tmp_path))


def test_links_that_lead_somewhere_are_no_problem(tmp_path):
    assert found(tmp_path, WHOLE) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (WHOLE.replace("b.html#there", "b.html#nowhere"), "links to b.html#nowhere, and there is no such place"),
        (WHOLE.replace("b.html#there", "c.html"), "links to c.html, which is not there"),
        (WHOLE.replace("#top", "#bottom"), "links to #bottom, and there is no such place"),
        (WHOLE.replace("a.svg", "lost.svg"), "links to lost.svg, which is not there"),
        (WHOLE.replace("a.svg", "https://fonts.example/a.svg"), "loads https://fonts.example/a.svg from another host"),
        ('<script src="//cdn.example/x.js"></script>', "loads //cdn.example/x.js from another host"),
        ('<link rel="stylesheet" href="http://cdn.example/x.css">', "loads http://cdn.example/x.css from another host"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path, text, problem):
    (one,) = found(tmp_path, text)
    assert one.startswith(f"a.html {problem}")


def test_every_recipe_and_step_of_the_guide_is_in_the_list_of_its_folder():
    for folder in ("guide", "recipes", "operations"):
        index = (ROOT / "docs" / folder / "index.md").read_text(encoding="utf-8")
        names = {path.name for path in (ROOT / "docs" / folder).glob("*.md")} - {"index.md"}
        assert len(names) > 2
        assert sorted(name for name in names if f"({name})" not in index) == []
