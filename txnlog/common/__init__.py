"""Small words that every layer uses."""
