"""A release point becomes linear queries: its expressions evaluated over the public domain."""
