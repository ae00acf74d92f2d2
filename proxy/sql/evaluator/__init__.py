"""The evaluator: DuckDB, here or in a child with bounds, for the domain and for results."""
