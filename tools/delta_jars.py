"""Print the jars of Delta for Spark, with commas between them, for ``spark.jars``.

``delta-spark`` brings Python only. Its jars come with Maven, once.
Exit code 1 and a message that says what to do where there is no Maven, or it fails.
"""

import importlib.metadata
import sys
from pathlib import Path

from tools.maven import NoJarsError, jars

FOLDER = Path(__file__).parents[1] / "out" / "jars"
GROUPS = ("io.delta", "io.unitycatalog")
"""Whose jars are taken: the others on the list are Spark's own, in other versions."""

MAVEN_TIMEOUT_S = 600

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What a session with these jars has to be told."""


def delta_jars() -> list[str]:
    """The paths of the jars that fit the installed Delta and Spark; the first call fetches them."""
    try:
        delta = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        raise NoJarsError("The package delta-spark is not installed. Run `make install`.") from None
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    folder = FOLDER / f"delta-{delta}-spark-{spark}"
    return jars(folder, f"io.delta:delta-spark_{spark}_2.13:{delta}", groups=GROUPS, timeout_s=MAVEN_TIMEOUT_S)


def main() -> int:
    """Print them and return the exit code."""
    try:
        sys.stdout.write(",".join(delta_jars()) + "\n")
    except NoJarsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
