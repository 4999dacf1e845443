"""Which packages are installed, and which versions of them this distribution is made for."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from typing import Final

DISTRIBUTION: Final = "txnlog"

_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_CLAUSE: Final = re.compile(r"(===|==|!=|~=|<=|>=|<|>)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?")
_OF_DEVELOPERS: Final = re.compile(r"""extra\s*==\s*["'](?:dev|docs|testing)["']""")


def installed_version(package: str) -> str | None:
    """The installed version; None where there is none, as in a folder on the path that nobody installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        loaded = sys.modules.get(package)
        return None if loaded is None else getattr(loaded, "__version__", None)


def supported_versions(package: str) -> str | None:
    """The versions of a package that the distribution asks for, such as ``"<27,>=24"``; None where it says none.

    Of Python, ``"python"``. What only those who develop it have, is left out.
    """
    try:
        if package == "python":
            return importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"]
        wanted = importlib.metadata.requires(DISTRIBUTION) or []
    except (importlib.metadata.PackageNotFoundError, KeyError):
        return None
    for text in wanted:
        match = _REQUIREMENT.fullmatch(text.strip())
        if match is not None and match[1].lower() == package and not _OF_DEVELOPERS.search(match[3] or ""):
            return match[2].strip() or None
    return None


def is_supported(version: str, wanted: str) -> bool:
    """Whether a version is among those that a text like ``"<27,>=24"`` names. What cannot be read is passed over."""
    return all(_fits(version, clause) for clause in wanted.split(","))


def _fits(version: str, clause: str) -> bool:
    match = _CLAUSE.fullmatch(clause.strip())
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    if match is None or found is None:
        return True
    operator, text, any_after = match[1], match[2], match[3] is not None
    has, wants = _numbers(found[0]), _numbers(text)
    same = has[: len(wants)] == wants if any_after else _padded(has, wants) == _padded(wants, has)
    least = _padded(has, wants) >= _padded(wants, has)
    match operator:
        case "==" | "===":
            return same
        case "!=":
            return not same
        case "~=":
            return least and has[: len(wants) - 1] == wants[:-1]
        case ">=":
            return least
        case ">":
            return least and not same
        case "<=":
            return same or not least
    return not least


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _padded(numbers: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return numbers + (0,) * (len(other) - len(numbers))


__all__ = ["installed_version", "is_supported", "supported_versions"]
