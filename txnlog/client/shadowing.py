"""Modules of this distribution that a user's own module hides: it has their name, and comes first on Python's path.

``catalog`` is a name that many projects have, too.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from typing import Final

from txnlog.errors import UnsupportedFeature

_ADVICE: Final = (
    "rename that file or folder, or have Python find the folder in which txnlog is installed before it (sys.path); "
    "the rest of txnlog works as it is"
)


def check_not_hidden(module: str) -> None:
    """Raise UnsupportedFeature naming the file that Python finds in the place of a module. Nothing is imported.

    Args:
        module: its whole name, such as ``catalog.publication.publications``.
    """
    package, *rest = module.split(".")
    place, folders = _found(package)
    if place is None:
        raise UnsupportedFeature(
            f"the module {module} is missing: Python finds no {package}", advice="install all packages of txnlog"
        )
    for part in rest:
        # By the last part of its name: with a whole one the finder asks the packages above, which may not be imported.
        spec = None if folders is None else importlib.machinery.PathFinder.find_spec(part, folders)
        if spec is None:
            raise UnsupportedFeature(
                f"txnlog's module {module} cannot be imported: what Python finds as {package!r} is {place}",
                advice=_ADVICE,
            )
        folders = spec.submodule_search_locations


def not_loaded(name: str, module: str, error: Exception) -> UnsupportedFeature:
    """Error for a module that cannot be loaded, with the file that Python found: it may be another of that name."""
    place, _ = _found(module.partition(".")[0])
    text = f"{name} cannot be loaded from {place}: {error}"
    return UnsupportedFeature(text, advice=f"if that is not txnlog's: {_ADVICE}")


def _found(name: str) -> tuple[str | None, Sequence[str] | None]:
    """Of a top-level module its file or folder, and where its submodules are if it is a package; imported or not."""
    known = sys.modules.get(name)
    if known is not None:
        folders = getattr(known, "__path__", None)
        return getattr(known, "__file__", None) or repr(known), None if folders is None else list(folders)
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None, None
    places = spec.submodule_search_locations
    return spec.origin or next(iter(places or ()), None), places


__all__ = ["check_not_hidden", "not_loaded"]
