"""Transactional topics on object storage."""
