"""Work off the commit path: checkpoints, and later optimize, vacuum and fsck."""
