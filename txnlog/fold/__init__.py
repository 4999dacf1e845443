"""From entries to the state of a namespace, action by action. Pure."""
