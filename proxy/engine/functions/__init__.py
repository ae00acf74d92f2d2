"""Answers of cells that are computed from released numbers by the outer SQL."""
