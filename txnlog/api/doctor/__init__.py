"""Looking at a namespace, its store and this machine for what somebody should do: ``ns.doctor()``."""
