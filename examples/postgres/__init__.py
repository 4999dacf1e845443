"""Exactly once into PostgreSQL, in the two ways there are: docs/postgres.md says when to take which."""
