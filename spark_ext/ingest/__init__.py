"""Ingestion from other systems: Kafka's messages into topics, exactly once."""
