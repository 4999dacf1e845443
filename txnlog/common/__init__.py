"""What every layer uses: ids, names, limits, ranges, arguments, growing pauses. Below it are the errors alone."""
