"""Putting back what is missing or damaged: from a copy what the log names, from the log what follows from it."""
