"""How answers are shown: notebooks have a table of each."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from txnlog.common.validation import printable


def _cell(value: object) -> str:
    return html.escape(printable(str(value)))


class Shown:
    """A dataclass that notebooks show as a table of its fields."""

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(item.name)}</th><td>{_cell(getattr(self, item.name))}</td></tr>"
            for item in fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


class Listing(tuple[Any, ...]):
    """A tuple of answers that notebooks show as one table."""

    __slots__ = ()

    def __new__(cls, items: Iterable[Any] = ()) -> Listing:
        """A listing of these answers."""
        return super().__new__(cls, tuple(items))

    def _repr_html_(self) -> str:
        if not self:
            return "<em>none</em>"
        names: Sequence[str] = [item.name for item in fields(self[0])]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(getattr(row, name))}</td>" for name in names) + "</tr>" for row in self
        )
        return f"<table><tr>{head}</tr>{body}</table>"


__all__ = [
    "Listing",
    "Shown",
]
