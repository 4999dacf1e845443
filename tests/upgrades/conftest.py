"""Older and newest clients, each a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.upgrades.versions import NEW, ROOT, Process, tree


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder with the code of a version."""
    trees = {NEW: ROOT}
    folder = tmp_path_factory.mktemp("versions")

    def found(version: str) -> Path:
        if version not in trees:
            trees[version] = tree(version, folder)
        return trees[version]

    return found


@pytest.fixture
def client(code: Callable[[str], Path]) -> Iterator[Callable[[str], Process]]:
    """Starts a client of a version."""
    started: list[Process] = []

    def start(version: str) -> Process:
        started.append(Process(code(version)))
        return started[-1]

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Of a namespace in a root on disk."""
    return str(tmp_path / "lake" / "sales")
