"""The peers on this machine: ``make bench-peers`` brings them, measures, stops them, and writes a report."""
