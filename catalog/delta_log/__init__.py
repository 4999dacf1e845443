"""Reading and writing the logs of Delta tables."""
