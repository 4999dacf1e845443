"""Exactly once into PostgreSQL, in the two ways there are: docs/other-systems.md says when to take which."""
