"""Roots and their namespaces: schema evolution, Delta views of topics, registration in Spark."""
