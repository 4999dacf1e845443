"""Group commit between processes: who collects, who proposes, and the bytes of a proposal. An optimisation only."""
