"""``process``: batches of a subscription, each in a transaction."""
