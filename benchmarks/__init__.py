"""Benchmarks: one script a question. ``python -m benchmarks.run`` runs them all and writes RESULTS.md."""
