"""Text to a sqlglot tree: tokens, dialects, the utility clause, parameters, literals, the clock."""
