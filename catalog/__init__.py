"""Roots and their namespaces: schema evolution, Delta views of topics, registration in Spark."""

from catalog.namespaces import Catalog, NamespaceInfo
from catalog.namespaces import open_catalog as open  # noqa: A004 - the public name, as in gzip.open

__all__ = ["Catalog", "NamespaceInfo", "open"]
