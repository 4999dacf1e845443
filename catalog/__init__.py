"""The namespaces of a root: which there are, making them, dropping them."""

from catalog.namespaces import Catalog, NamespaceInfo
from catalog.namespaces import open_catalog as open  # noqa: A004 - the public name, as in gzip.open

__all__ = ["Catalog", "NamespaceInfo", "open"]
