"""Apache Kafka 4.1 as one broker in KRaft mode on loopback, and Spark's Kafka source: jars of Maven's, fetched once."""

from __future__ import annotations

import importlib.metadata
import subprocess
import uuid
from pathlib import Path
from typing import Final

from tools.install import ROOT
from tools.maven import jars
from tools.server_processes import Server, free_port, java

VERSION: Final = "4.1.0"
JARS: Final = ROOT / "out" / "jars" / f"kafka-{VERSION}"
MAVEN_TIMEOUT_S: Final = 600
GROUPS: Final = ("org.apache.spark", "org.apache.kafka", "org.apache.commons")
"""Whose jars of Spark's Kafka source are taken: the others on the list are Spark's own."""

_PATIENCE_S: Final = 60.0
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def broker_jars() -> None:
    """Fetch the jars of the broker, where they are not there. Raises NoJarsError."""
    jars(JARS, f"org.apache.kafka:kafka_2.13:{VERSION}", timeout_s=MAVEN_TIMEOUT_S)


def spark_jars() -> list[str]:
    """The jars of the Kafka source that fits the installed Spark, for ``spark.jars``. Raises NoJarsError."""
    spark = importlib.metadata.version("pyspark")
    folder = ROOT / "out" / "jars" / f"spark-kafka-{spark}"
    artifact = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}"
    return jars(folder, artifact, groups=GROUPS, timeout_s=MAVEN_TIMEOUT_S)


class Broker:
    """A broker that runs until it is ended; its data is in a folder, which it formats.

    Args:
        folder: an empty one.
        settings: lines of properties in addition.
        heap: of its Java.
    """

    def __init__(self, folder: Path, settings: str = "", *, heap: str = "1g") -> None:
        broker, controller = free_port(), free_port()
        properties = folder / "server.properties"
        text = _PROPERTIES.format(broker=broker, controller=controller, data=folder / "data") + settings
        properties.write_text(text, encoding="utf-8")
        program = [java(), f"-Xms{heap}", f"-Xmx{heap}", "-cp", f"{JARS}/*"]
        made = ["kafka.tools.StorageTool", "format", "-t", str(uuid.uuid4()), "-c", str(properties)]
        subprocess.run([*program, *made], cwd=folder, check=True, capture_output=True, timeout=_PATIENCE_S)
        self._server = Server([*program, "kafka.Kafka", str(properties)], folder / "log", folder)
        self._server.wait_for_port(broker)
        self.address = f"127.0.0.1:{broker}"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._server.pid

    def end(self) -> None:
        """End it, by force where it does not end by itself."""
        self._server.end()


__all__ = ["JARS", "VERSION", "Broker", "broker_jars", "spark_jars"]
