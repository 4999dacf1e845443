"""Examples: programs that use txnlog as its users do, from public calls."""
