"""What is stored: actions, entries, keys and schemas. Pure."""
