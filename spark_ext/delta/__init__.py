"""Delta tables that take part in transactions."""
