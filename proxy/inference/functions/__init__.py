"""Intervals of what is computed from released numbers: combinations, ratios, all else."""
