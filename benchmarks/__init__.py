"""Benchmarks: one script a question, and ``benchmarks.peers`` for other systems beside ours. README.md says more."""
