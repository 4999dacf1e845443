"""Metrics of namespaces for Prometheus: an exporter, alert rules and a dashboard."""
