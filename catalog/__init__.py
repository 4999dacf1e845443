"""The namespaces of a root: which there are, making them, dropping them; and their topics as Delta tables."""

from catalog.namespaces import Catalog, NamespaceInfo
from catalog.namespaces import open_catalog as open  # noqa: A004 - the public name, as in gzip.open
from catalog.publication.publications import Published, PublishedVersion
from txnlog.errors import ForeignDeltaLog

__all__ = ["Catalog", "ForeignDeltaLog", "NamespaceInfo", "Published", "PublishedVersion", "open"]
