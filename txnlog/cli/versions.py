"""What ``txnlog --version`` prints: with ``--json`` all that a report needs, and nothing about its author."""

from __future__ import annotations

import platform
from typing import Any, Final

import click

from txnlog.cli.output import Printer
from txnlog.common.format_limits import FORMAT_VERSION
from txnlog.common.installed import installed_version
from txnlog.fold.apply import READER_FEATURES, WRITER_FEATURES

_PACKAGES: Final = (
    *("click", "fsspec", "msgspec", "numpy", "pyarrow", "xxhash"),
    *("s3fs", "aiobotocore", "adlfs", "gcsfs"),
    *("pyspark", "pandas", "delta-spark"),
)
"""What txnlog runs on: the core, clients of stores, Spark."""


def versions() -> dict[str, Any]:
    """Versions of txnlog, of the format, of Python, of the packages that are installed, and the kind of machine.

    Paths, the names of the host and of the user, and settings are no part of it: people paste it into public reports.
    """
    # Not platform.platform(): who builds a kernel may write a name of the house into its release.
    library = " ".join(platform.libc_ver()).strip()
    return {
        "txnlog": installed_version("txnlog"),
        "format": {
            "version": FORMAT_VERSION,
            "reader_features": sorted(READER_FEATURES),
            "writer_features": sorted(WRITER_FEATURES),
        },
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": " ".join(part for part in (platform.system(), platform.machine(), library) if part),
        "packages": {name: found for name in _PACKAGES if (found := installed_version(name)) is not None},
    }


def print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version and exit, where ``--version`` was given; all versions with ``--json``."""
    if not wanted or context.resilient_parsing:
        return
    if context.params.get("as_json"):
        Printer(as_json=True).record(versions())
    else:
        click.echo(f"txnlog, version {installed_version('txnlog')}")
    context.exit()


__all__ = ["print_version", "versions"]
