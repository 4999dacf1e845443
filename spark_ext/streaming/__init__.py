"""Streaming sources and sinks."""
