"""The README's Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def blocks(title):
    """The Python blocks of a section."""
    section = README.read_text(encoding="utf-8").split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_the_quick_start_runs(tmp_path, capsys):
    code = "\n".join(blocks("Quick start in Python"))
    assert "/tmp/lake" in code
    exec(compile(code.replace("/tmp/lake", str(tmp_path / "lake")), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "Committed(" in printed
    assert "_offset" in printed
    assert "('sales',)" in printed
