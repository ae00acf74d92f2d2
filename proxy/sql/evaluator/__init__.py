"""The evaluator: DuckDB, in this process or in a child with bounds, for domain and results alike."""
