"""Checking a namespace: its log, its checkpoints, its segments. Reads and lists, and writes nothing."""
