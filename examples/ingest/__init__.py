"""Data in from Kafka, files and Delta's change data feed, and out to Kafka: docs/ingest.md shows these programs."""
