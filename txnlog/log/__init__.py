"""Reading the log, following it, and appending to it."""
