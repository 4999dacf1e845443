"""What runs the client: tasks and what they await, one thread at a time that owns the state, time and chance."""
