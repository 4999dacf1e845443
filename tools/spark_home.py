"""Print a home of the installed Spark without its zipped copy of PySpark, for what starts Spark here.

Spark puts ``python/lib/pyspark.zip`` of its home before all else on the path of each Python process that it starts. A
zip keeps nothing compiled, so each of them would compile PySpark anew: half a second of a processor, a hundred times in
the tests. The home printed is a folder of links in the environment. Its Python processes find PySpark where pip
installed it, compiled, which is the same code.
"""

import contextlib
import hashlib
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Final

LINKED: Final = ("bin", "jars", "sbin")


def main() -> int:
    """Print it."""
    sys.stdout.write(f"{spark_home(Path(sys.prefix))}\n")
    return 0


def home_in(folder: Path) -> Path:
    """Where the home lies that belongs to this PySpark."""
    return folder / f"spark-home-{hashlib.sha256(str(_package()).encode()).hexdigest()[:16]}"


def spark_home(folder: Path) -> Path:
    """The home below a folder, made if it is not there yet."""
    home = home_in(folder)
    if not home.exists():
        package = _package()
        with tempfile.TemporaryDirectory(prefix="home-", dir=folder) as parent:
            made = Path(parent) / "made"
            made.mkdir()
            for name in LINKED:
                (made / name).symlink_to(package / name)
            with contextlib.suppress(OSError):  # somebody else was first: links to the same
                made.replace(home)
    return home


def _package() -> Path:
    # Looked up and not imported: that would take longer than all else.
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "a PySpark in this environment"
    return Path(str(found.origin)).parent


if __name__ == "__main__":
    sys.exit(main())
