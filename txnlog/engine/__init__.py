"""What runs the client: commands and what they await, one thread that owns the state, time and chance."""
