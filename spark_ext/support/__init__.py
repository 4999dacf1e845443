"""What reading, writing and streaming share."""
