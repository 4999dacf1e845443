"""What the places share: the wheel that is shipped with a job, and a second Python to ship it to."""

from __future__ import annotations

import pytest

from tests.packaging.conftest import project_files, wheel  # noqa: F401 - fixtures
from tests.places.environment import second_environment


@pytest.fixture(scope="session")
def second_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with pyspark, pyarrow and pandas, and nothing of ours."""
    return str(second_environment(tmp_path_factory.mktemp("second")))
