"""What runs the client: tasks and what they await, one thread that owns the state, time and chance."""
