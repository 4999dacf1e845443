"""Settings of Kafka's client that Spark's source takes, and an ingestion does not. Each of these tests fails."""

from __future__ import annotations

from pathlib import Path

from tests.kafka.lake import Lake, lake

__all__ = ["lake"]  # a fixture


def test_settings_may_come_from_a_config_provider_as_for_sparks_source(lake: Lake, tmp_path: Path) -> None:
    """Kafka's own way to keep secrets out of options: here the servers, as a password needs a broker that asks."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, [1, 2])
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"servers={lake.cluster.address}\n", encoding="utf-8")
    options = {
        "kafka.bootstrap.servers": f"${{file:{secrets}:servers}}",
        "kafka.config.providers": "file",
        "kafka.config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    frame = lake.spark.read.format("kafka").options(**options).option("subscribe", lake.source).load()
    print("Spark's source reads", frame.count())
    lake.ingest(options)
    assert lake.ids() == [1, 2]
