"""What one process knows and does between the log and the public classes."""
