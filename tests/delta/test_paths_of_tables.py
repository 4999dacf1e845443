"""A Delta table whose path has a dollar and braces, which Spark's SQL would replace by the value of a setting."""

from __future__ import annotations

import pytest

from tests.delta.lives import Death, Shop, shop

__all__ = ["shop"]  # a fixture


def test_the_history_that_is_looked_at_is_that_of_the_table_and_not_of_another(shop: Shop) -> None:
    app = shop.spark.conf.get("spark.app.name")
    shop.empty().write.format("delta").save(f"{shop.folder}/bills-{app}")
    shop.table = f"{shop.folder}/bills-${{spark.app.name}}"
    shop.empty().write.format("delta").save(shop.table)
    shop.born(4)
    with pytest.raises(Death):
        shop.process()
    assert (shop.in_topic(), shop.in_delta()) == ([], [0, 1, 2, 3]), "appended, and not committed here"
    shop.born()
    shop.process()
    assert (shop.in_topic(), shop.in_delta()) == (list(range(8)), list(range(8)))
