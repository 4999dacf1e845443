"""Work off the commit path: checkpoints, and deleting what nobody can need."""
