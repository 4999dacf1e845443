"""What the places share: the wheel that is shipped with a job, a second Python to ship it to, and an S3 server."""

from __future__ import annotations

import pytest

from tests.packaging.conftest import project_files, wheel  # noqa: F401 - fixtures
from tests.places.environment import second_environment
from tests.stores.conftest import s3  # noqa: F401 - a fixture


@pytest.fixture(scope="session")
def second_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with pyspark, pyarrow and pandas, and nothing of ours."""
    return str(second_environment(tmp_path_factory.mktemp("second")))
