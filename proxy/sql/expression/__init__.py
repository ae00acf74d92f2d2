"""Scalar expressions: PostgreSQL's types and functions, lowered to DuckDB's SQL."""
