"""Writing DataFrames in transactions."""
