"""What every layer uses and nothing of txnlog is below: ids, names, limits, ranges, arguments, growing pauses."""
