"""Scans of topics, native ones and those of the format."""
