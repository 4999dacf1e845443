"""Topics as Delta tables."""
