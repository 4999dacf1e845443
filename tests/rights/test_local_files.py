"""An unprivileged user on local files, in each role of docs/operations/access.md. Nothing of this is ever skipped.

Where the tests run as root, a forked child becomes another user; elsewhere the same bits of the files bind this one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forks import in_child
from tests.rights.roles import NAMESPACE, OPERATIONS, ROLES, TOPIC, Lake, check, folders, make, outcomes
from txnlog.errors import AccessDenied, StoreError

NOBODY = 65534

LOCAL = [name for name in OPERATIONS if name != "delete an entry"]
"""On local files whoever may write to a folder may delete in it: an entry, and a producer a segment."""


@pytest.fixture
def lake() -> Iterator[Lake]:
    """A root that every user can reach, unlike pytest's own folders, and nobody can write to."""
    with tempfile.TemporaryDirectory(prefix="txnlog-rights-") as folder:
        os.chmod(folder, 0o755)
        found = Lake(f"{folder}/lake")
        make(found)
        for name in ("_hints", "_probe", "_proposals", "_delta"):
            (Path(found.root) / NAMESPACE / name).mkdir(exist_ok=True)
        for path in Path(found.root, "").rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        Path(found.root).chmod(0o555)
        yield found
        for path in [Path(found.root), *Path(found.root).rglob("*")]:
            path.chmod(0o755)


def allow(folder: Path) -> None:
    """Everybody may write below a folder."""
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        path.chmod(0o777)


def give_up_root() -> None:
    """From here on this process is an unprivileged user's."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.umask(0)  # what it makes can be removed by whoever runs the test


@pytest.mark.parametrize("role", [role for role in ROLES if role != "Administrator of the root"])
def test_a_role_can_do_what_the_page_says_and_nothing_else(lake: Lake, role: str) -> None:
    for name in folders(role):
        allow(Path(lake.root, NAMESPACE, name))
    if role == "Producer":  # whose topic's folder is its own, and the table in it is not
        for path in Path(lake.root, NAMESPACE, TOPIC, "_delta_log").rglob("*"):
            path.chmod(0o555)
        Path(lake.root, NAMESPACE, TOPIC, "_delta_log").chmod(0o555)
    before = sorted(Path(lake.root, "_catalog").rglob("*"))

    def tried() -> dict[str, AccessDenied | None]:
        give_up_root()
        return outcomes(lake, *LOCAL)

    check(role, in_child(tried), *(["delete a file"] if role == "Producer" else []))
    assert sorted(Path(lake.root, "_catalog").rglob("*")) == before


def test_whoever_may_not_read_the_root_reads_its_namespaces_and_appends_nothing(lake: Lake) -> None:
    allow(Path(lake.root, NAMESPACE))
    Path(lake.root, "_catalog").chmod(0o000)

    def tried() -> tuple[int, StoreError | None]:
        give_up_root()
        with lake.open(mode="r") as ns:
            read = ns.snapshot().read(TOPIC).num_rows
        try:
            with lake.open() as ns:
                ns.produce(TOPIC, [{"id": 4, "name": "x"}])
        except AccessDenied as error:
            return read, error
        return read, None

    count, error = in_child(tried)
    assert count == 4
    assert isinstance(error, AccessDenied)
    assert (error.right, "_catalog" in error.url) == ("read", True)
    assert "asks the log of its root" in str(error)
