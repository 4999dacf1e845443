"""Print the jars of Delta for Spark, with commas between them, for ``spark.jars``.

``delta-spark`` brings Python only. Its jars come with Maven, once: ``mvn`` reads a small pom and copies them.
Exit code 1 and a message that says what to do where there is no Maven, or it fails.
"""

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "out" / "jars"
GROUPS = "io.delta,io.unitycatalog"
"""Whose jars are taken: the others on the list are Spark's own, in other versions."""

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
MAVEN_TIMEOUT_S = 600

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>txnlog</groupId>
  <artifactId>delta-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>io.delta</groupId>
      <artifactId>delta-spark_{spark}_2.13</artifactId>
      <version>{delta}</version>
    </dependency>
  </dependencies>
</project>
"""


class NoJarsError(Exception):
    """Delta's jars cannot be had; the text says what to do."""


def delta_jars() -> list[str]:
    """The paths of the jars that fit the installed Delta and Spark; the first call fetches them."""
    try:
        delta = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        raise NoJarsError("The package delta-spark is not installed. Run `make install`.") from None
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    folder = FOLDER / f"delta-{delta}-spark-{spark}"
    if not folder.exists():
        _fetch(folder, POM.format(spark=spark, delta=delta))
    return sorted(str(jar) for jar in folder.glob("*.jar"))


def _fetch(folder: Path, pom: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJarsError(
            "Delta's jars come with Maven, and there is no `mvn` on the path. Install Maven 3.8 or newer."
        )
    making = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    (making / "pom.xml").write_text(pom, encoding="utf-8")
    command = [maven, "-q", "-B", PLUGIN, "-DincludeScope=runtime", f"-DincludeGroupIds={GROUPS}"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={making}"],
        cwd=making,
        capture_output=True,
        text=True,
        timeout=MAVEN_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise NoJarsError(f"Maven could not fetch Delta's jars:\n{(done.stdout + done.stderr)[-2000:]}")
    making.rename(folder)


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
