"""Work off the commit path: merging small segments, deleting what nobody can need, and both as ``maintain``."""
